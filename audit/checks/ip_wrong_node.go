package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/misrecorded"
	"github.com/calico-audit/calico-audit/blocks"
)

var ipWrongNode = audit.Check{
	ID:         "ip/wrong-node",
	Title:      "a live pod uses the address, and the allocation names another node",
	Severities: []state.Severity{state.Warning},
	Why: "If the named node is gone, Calico's collector may take the address for leaked and release it under the pod; Felix may " +
		"route it to the wrong node. This happens if a machine keeps an old name in /var/lib/calico/nodename.",
	Confirm: "calicoctl ipam show --ip=ADDRESS shows the recorded node; kubectl get pod -o wide shows the real one.",
	Remedies: []remedies.Remedy{
		remedies.Restart("restart the pod, unless it runs a virtual machine; if it happens again on the same machine, compare /var/lib/calico/nodename there with the node's name",
			"its address is recorded again, for its node"),
	},
	Never:    "Never release the address: the pod uses it.",
	Requires: []blocks.Resource{blocks.Blocks, blocks.Pods},
	Run: func(st *state.State, f *audit.Findings) {
		for _, b := range st.IPBlocks {
			for i, o := range b.Ordinals {
				if o == blocks.Free {
					continue
				}
				attr := b.At(i)
				if attr == nil || attr.Node == "" || attr.Cooling() || b.SoftDeleted {
					continue
				}
				r := state.AllocationRef{Block: b, Ordinal: i}
				w := st.LiveUserOf(r)
				if w == nil || w.Node == "" || w.Node == attr.Node || attr.Tunnel() || alternateOwner(attr, w) || misrecorded.Has(st, r) { // ip/wrong-pod
					continue
				}
				f.Add(audit.Finding{
					Absence: true, Severity: state.Warning, Subject: state.IPSubject(b.Address(i), w.Node), Pools: state.PoolsOf(b.Pool), Nodes: []string{attr.Node, b.Owner.Node()},
					Message:  fmt.Sprintf("%s is used by pod %s on %s, and its allocation names node %s", b.Address(i), w.FullName(), w.Node, attr.Node),
					Evidence: state.Evidences("pod's node", w.Node, "recorded node", attr.Node, "block", b.CIDR.String(), "handle", attr.Handle),
					Remedies: remedies.RestartRemedies(w, "its address is recorded again, for its node"), Fix: wrongNodeLook(w),
				})
			}
		}
	},
}

// wrongNodeLook shows the virtual machine of a pod. No advice restarts such a pod.
func wrongNodeLook(w *blocks.Workload) audit.Fix {
	if w.Extras().VM == "" {
		return audit.Fix{}
	}
	return audit.Look("kubectl get virtualmachineinstance --namespace " + phrase.Arg(w.Namespace) + " " + phrase.Arg(w.Extras().VM))
}
