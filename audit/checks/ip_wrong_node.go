package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/collector"
	"github.com/calico-audit/calico-audit/audit/state/identity"
	"github.com/calico-audit/calico-audit/blocks"
)

var ipWrongNode = audit.Check{
	ID:         "ip/wrong-node",
	Title:      "a live pod uses the address, and the allocation names another node",
	Severities: []state.Severity{state.Warning},
	Why: "If the named node exists, Calico's collector treats the address as leaked and frees it under the pod; Felix may route it to " +
		"the wrong node. This happens if a machine has another node's name in /var/lib/calico/nodename, or its calico-node in NODENAME.",
	Confirm: "calicoctl ipam show --ip=ADDRESS shows the recorded node; kubectl get pod -o wide shows the real one.",
	Remedies: []remedies.Remedy{
		remedies.FixNodeName,
		remedies.Restart("restart the pod, unless it runs a virtual machine", "its address is recorded again, for its node"),
	},
	Never:    "Never release the address: the pod uses it.",
	Requires: []blocks.Resource{blocks.Blocks, blocks.Pods},
	Optional: append(slices.Clip(collector.Reads), blocks.Nodes),
	Run: func(st *state.State, f *audit.Findings) {
		for _, x := range identity.WrongNodes(st) {
			attr, w := x.Attributes(), x.Pod
			root := remedies.Of(st).RootOfNodeName(w.Node)
			ways := remedies.RestartRemedies(w, "its address is recorded again, for its node")
			if root != "" {
				ways = nil // the root's remedies apply
			}
			f.Add(audit.Finding{
				Absence: true, Severity: state.Warning, Subject: state.IPSubject(x.Addr(), w.Node), Pools: state.PoolsOf(x.Block.Pool), Nodes: []string{attr.Node, x.Block.Owner.Node()},
				Message: fmt.Sprintf("%s is used by pod %s on %s, and its allocation names node %s", x.Addr(), w.FullName(), w.Node, attr.Node),
				Evidence: state.Evidences("pod's node", w.Node, "recorded node", attr.Node, "block", x.Block.CIDR, "handle", attr.Handle,
					collector.EvidenceName, collector.OfAddress(st, x.AllocationRef).Text("pod "+w.FullName())),
				Root: root, Remedies: ways, Fix: wrongNodeLook(w),
			})
		}
	},
}

// wrongNodeLook shows the virtual machine of a pod. No advice restarts such a pod.
func wrongNodeLook(w *blocks.Workload) audit.Fix {
	if w.Extras().VM == "" {
		return audit.Fix{}
	}
	return audit.Look("kubectl get virtualmachineinstance --namespace %s %s", w.Namespace, w.Extras().VM)
}
