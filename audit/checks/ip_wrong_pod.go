package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/collector"
	"github.com/calico-audit/calico-audit/audit/state/misrecorded"
	"github.com/calico-audit/calico-audit/blocks"
)

var ipWrongPod = audit.Check{
	ID:         "ip/wrong-pod",
	Title:      "an allocation names a pod that no longer exists, and a live pod uses the address",
	Severities: []state.Severity{state.Critical},
	Why: "Calico's collector looks up only the pod that the allocation names. It treats the address as leaked and frees it under " +
		"the live pod; the next pod then gets the same address. This happens if the datastore was restored from a backup: then repair --after-restore plans the whole recovery.",
	Confirm:  "calicoctl ipam show --ip=ADDRESS names the recorded pod; kubectl get pods --all-namespaces -o wide shows the pod that has the address.",
	Remedies: []remedies.Remedy{remedies.RecordAddresses},
	Never:    "Never release the address: a live pod uses it.",
	Requires: []blocks.Resource{blocks.Blocks, blocks.Nodes, blocks.Pods},
	Optional: slices.Concat(state.RecordIPReads, collector.Reads),
	Run: func(st *state.State, f *audit.Findings) {
		if name, unread := st.UnreadPod(); unread {
			f.Inconclusive("not evaluated where an allocation may name pod %s, which could not be read", name)
		}
		for _, x := range misrecorded.Of(st) {
			a, w, attr := x.Addr(), x.User, x.Attributes()
			if named := st.MayUse(state.IPPrefix(a)); named != nil {
				f.SkipPartial("not evaluated for %s: pod %s names it and was read only in part", a, named.FullName())
				continue
			}
			if !st.Cluster.Live && !st.PastGrace(w.Created) {
				f.SkipPartial("not evaluated for %s: its pod is younger than the grace, and files hold one reading only", a)
				continue
			}
			f.Add(audit.Finding{
				Absence: true, Severity: state.Critical, Subject: state.IPSubject(a, w.Node), Pools: state.PoolsOf(x.Block.Pool), Nodes: []string{attr.Node, x.Block.Owner.Node()},
				Message: fmt.Sprintf("%s is used by pod %s on %s, and its allocation names %s", a, w.FullName(), w.Node, x.Named),
				Evidence: state.Evidences("used by", w.FullName(), "recorded node", attr.Node, "block", x.Block.CIDR, "handle", attr.Handle,
					"assigned", attr.Assigned, collector.EvidenceName, collector.OfAddress(st, x.AllocationRef).Text("pod "+w.FullName())),
				Root: remedies.Of(st).RootOfUnrecorded(), Remedies: remedies.Of(st).RecordRemedies(a),
			})
		}
	},
}
