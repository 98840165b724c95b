package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
)

var whereaboutsDuplicate = audit.Check{
	ID: "whereabouts/duplicate", Title: "two live pods use one address of a secondary network", Severities: []state.Severity{state.Critical},
	Why:     "Traffic for one pod reaches the other, or neither.",
	Confirm: "kubectl get pods --all-namespaces -o yaml shows the address in two k8s.v1.cni.cncf.io/network-status annotations.",
	Misread: "Separate networks (network_name, or enable_overlapping_ranges: false with their own ranges) may use the same addresses. " +
		"So may the two pods of a virtual machine during a live migration.",
	Remedies: []remedies.Remedy{
		remedies.ByHand("restart the pod that the pool does not name for the address", "one owner is left", "the pod restarts: find out first which of the two owns the address"),
	},
	Verify:   "Each pod answers at an address of its own.",
	Never:    "Never remove the address from the pool: one of the two pods owns it.",
	Requires: []blocks.Resource{blocks.Pods, blocks.NetworkAttachments}, Optional: []blocks.Resource{blocks.WhereaboutsPools},
	Run: func(st *state.State, f *audit.Findings) {
		v := whereabouts.Of(st)
		for _, d := range v.Duplicates() {
			var who, nodes []string
			for _, w := range d.Pods {
				who, nodes = append(who, "pod "+w.FullName()+" on "+w.Node), append(nodes, w.Node)
			}
			f.Add(audit.Finding{
				Absence: true, Severity: state.Critical, Subject: networkSubject(d.Addr, d.Network, ""), Nodes: nodes, Remedies: f.Check.Remedies, Pools: servingPools(v, d.Network, d.Addr),
				Message:  fmt.Sprintf("%s of a secondary network is used by %s", d.Addr, phrase.ListBy(" and by ", who)),
				Evidence: state.Evidences("used by", phrase.ListBy("; ", who), "network", d.Pods[0].AttachedOf(d.Addr)),
			})
		}
	},
}
