package audit

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// fewHandles is up to how many missing handles are believed when not one handle
// was read from files: beyond it, the files were made without handles.
const fewHandles = 3

var handleMissing = Check{
	ID:       "handle/missing",
	Title:    "a handle that blocks refer to does not exist",
	Severity: "warning",
	Why: "Calico releases a pod's addresses through its handle: without one they stay allocated after the pod has gone, " +
		"until the collector finds them.",
	Confirm: "kubectl get ipamhandles NAME (in lower case): not found.",
	Misread: "Calico's \"ipam check\" prints such handles and does not count them as a problem.",
	Fix:     "Nothing is urgent while the pod lives. After it has gone, look for ip/leaked.",
	Never:   "Never make a handle up by hand.",
	Needs:   []blocks.Resource{blocks.Handles, blocks.Blocks},
	Run: func(st *State, f *Findings) {
		ids := st.ReferencedHandles()
		if !st.Cluster.Live && len(st.Handles) == 0 && len(ids) > fewHandles {
			f.Unjudged("blocks refer to %d handles and the files hold none: they seem to have been made without ipamhandles", len(ids))
			return
		}
		unread := map[string]bool{}
		for _, g := range st.Unreadable(blocks.Handles) {
			unread[g.Name] = true
		}
		for _, id := range ids {
			refs := slices.DeleteFunc(slices.Clone(st.HandleRefs(id)), func(r AllocationRef) bool { return r.Block.SoftDeleted })
			if len(refs) == 0 || st.Handle(id) != nil || unread[id] || !st.refsSettled(refs) {
				continue
			}
			attr := refs[0].Attributes()
			var addrs []string
			for _, r := range refs {
				addrs = append(addrs, r.Addr().String())
			}
			f.Add(Finding{
				Absence: true, Severity: Warning, Subject: HandleSubject(attr.Handle), Pools: poolsOf(refs[0].Block.Pool), Nodes: []string{attr.Node},
				Message: fmt.Sprintf("handle %s does not exist, and %s recorded under it: %s", attr.Handle, numberIs(len(refs), "address"), List(addrs)),
				Evidence: Evidences("addresses", List(addrs), "pod", joinNonEmpty(attr.Namespace, attr.Pod), "node", attr.Node,
					"assigned", FormatTime(attr.Assigned), "observed", observed),
				Fix: Fix{"look", "calico-audit explain " + addrs[0]},
			})
		}
	},
}

func joinNonEmpty(namespace, name string) string {
	if name == "" {
		return ""
	}
	return namespace + "/" + name
}

// refsSettled tells whether all allocations of a handle are older than the
// grace.
func (st *State) refsSettled(refs []AllocationRef) bool {
	for _, r := range refs {
		if !st.PastGrace(AssignedAt(r)) {
			return false
		}
	}
	return true
}
