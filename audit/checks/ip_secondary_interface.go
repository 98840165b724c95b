package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/collector"
	"github.com/calico-audit/calico-audit/blocks"
)

var ipSecondaryInterface = audit.Check{
	ID:         "ip/secondary-interface",
	Title:      "a live pod's address on a secondary interface is in a block, and Calico's collector frees it",
	Severities: []state.Severity{state.Warning},
	Why: "Calico's collector compares an allocation with the addresses in the pod's status, which are those of its first interface. " +
		"It treats the address of a secondary interface as leaked and frees it under the live pod; the next pod then gets the same address.",
	Confirm: "kubectl get pod -o yaml shows the address in the annotation k8s.v1.cni.cncf.io/network-status and not in status.podIPs; " +
		"kubectl get kubecontrollersconfigurations -o yaml shows leakGracePeriod.",
	Misread:  "The address is not leaked, and calico-audit never releases it. There is no finding while leakGracePeriod is 0.",
	Remedies: remedies.Secondary,
	Never:    "Never release the address: a live pod uses it.",
	Requires: []blocks.Resource{blocks.Blocks, blocks.Nodes, blocks.Pods, blocks.ControllerConfig},
	Optional: collector.Reads,
	Run: func(st *state.State, f *audit.Findings) {
		st.EachAllocation(func(r state.AllocationRef, _ string) {
			w := collector.FurtherUser(st, r)
			if w == nil {
				return
			}
			p := collector.OfAddress(st, r)
			if !p.Frees {
				return
			}
			attr := r.Attributes()
			f.Add(audit.Finding{
				Absence: true, Severity: state.Warning, Subject: state.IPSubject(r.Addr(), w.Node), Pools: state.PoolsOf(r.Block.Pool), Nodes: []string{r.Block.Owner.Node()},
				Message: fmt.Sprintf("%s is used by pod %s on %s on a secondary interface, and Calico's collector frees it", r.Addr(), w.FullName(), w.Node),
				Evidence: state.Evidences("used by", w.FullName(), "network", w.AttachedOf(r.Addr()), "block", r.Block.CIDR, "handle", attr.Handle,
					collector.EvidenceName, p.Text("pod "+w.FullName())),
				Root: "secondary-interfaces", Remedies: remedies.Secondary,
			})
		})
	},
}
