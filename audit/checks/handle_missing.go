package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/handles"
	"github.com/calico-audit/calico-audit/blocks"
)

var handleMissing = audit.Check{
	ID:         "handle/missing",
	Title:      "blocks refer to a handle that does not exist",
	Severities: []state.Severity{state.Warning},
	Why: "Calico releases a pod's addresses through its handle. Without the handle they stay allocated after the pod has ended, " +
		"until the collector finds them.",
	Confirm:  "kubectl get ipamhandles NAME (in lower case) returns NotFound.",
	Misread:  "Calico's \"ipam check\" prints such handles but does not count them as a problem.",
	Remedies: []remedies.Remedy{remedies.CreateHandle},
	Never:    "Never create a handle by hand.",
	Requires: []blocks.Resource{blocks.Handles, blocks.Blocks},
	Optional: []blocks.Resource{blocks.Pods},
	Run: func(st *state.State, f *audit.Findings) {
		if referred, leftOut := st.HandlesLeftOut(); leftOut {
			f.Inconclusive("blocks refer to %d handles and the files hold none: they seem to have been made without ipamhandles", referred)
			return
		}
		unread := map[string]bool{}
		for _, g := range st.Unreadable(blocks.Handles) {
			unread[g.Name] = true
		}
		st.EachMissingHandle(func(id string, refs []state.AllocationRef) {
			refs = slices.DeleteFunc(slices.Clone(refs), func(r state.AllocationRef) bool { return r.Block.SoftDeleted })
			if len(refs) == 0 || unread[id] || !refsPastGrace(st, refs) {
				return
			}
			attr := refs[0].Attributes()
			missing := &blocks.Handle{Meta: blocks.Meta{Name: id}, ID: attr.Handle}
			var addrs blocks.Names
			for _, r := range refs {
				addrs = append(addrs, r.Addr().String())
			}
			f.Add(audit.Finding{
				Absence: true, Severity: state.Warning, Subject: state.HandleSubject(attr.Handle), Pools: state.PoolsOf(refs[0].Block.Pool), Nodes: []string{attr.Node},
				Message: fmt.Sprintf("handle %s does not exist, although blocks record it for %s", attr.Handle, addrs),
				Evidence: state.Evidences("addresses", addrs, "pod", phrase.FullName(attr.Namespace, attr.Pod), "node", attr.Node,
					"assigned", attr.Assigned, "observed", state.Observed),
				Remedies: []remedies.Remedy{remedies.CreateHandle.Unless(handles.CreateBar(st, missing))},
			})
		})
	},
}

// refsPastGrace reports whether all allocations of a handle are older than the grace.
func refsPastGrace(st *state.State, refs []state.AllocationRef) bool {
	for _, r := range refs {
		if !st.PastGrace(state.AssignedAt(r)) {
			return false
		}
	}
	return true
}
