package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
)

var whereaboutsDuplicate = audit.Check{
	ID: "whereabouts/duplicate", Title: "two live pods use the same address of a secondary network, or a migrated guest's address may get a second user", Severities: []state.Severity{state.Critical, state.Error, state.Warning},
	Graded:  "critical; warning if host-local or static assigned the address on several nodes, because the nodes' networks may be separate; after a live migration, error if another pod has the guest's former address, warning if another may get it",
	Why:     "Traffic for one pod reaches the other, or neither. KubeVirt moves a guest with its address, while Whereabouts frees that address and gives the virtual machine's new pod another one.",
	Confirm: "kubectl get pods --all-namespaces -o yaml shows the address in two k8s.v1.cni.cncf.io/network-status annotations.",
	Misread: "Separate networks (network_name, or enable_overlapping_ranges: false with their own ranges) may use the same addresses. So may the two pods of a virtual machine during a live migration.",
	Remedies: []remedies.Remedy{
		remedies.ByHand("restart the pod that the pool does not name for the address", "one owner is left", "the pod restarts: find out first which of the two owns the address"),
		remedies.ByHand("let Whereabouts assign the network's addresses (ipam in the NetworkAttachmentDefinition), or give each node its own range (host-local) or each pod its own address (static), then restart the pods", "each address has one user", "the pods' addresses change",
			"kubectl get network-attachment-definitions --all-namespaces -o yaml"),
	},
	Verify:   "Each pod answers at an address of its own.",
	Never:    "Never remove the address from the pool: one of the two pods owns it.",
	Requires: []blocks.Resource{blocks.Pods, blocks.NetworkAttachments}, Optional: []blocks.Resource{blocks.WhereaboutsPools},
	Run: func(st *state.State, f *audit.Findings) {
		v := whereabouts.Of(st)
		for _, d := range v.Duplicates() {
			var who, nodes blocks.Names
			for _, w := range d.Pods {
				who, nodes = append(who, "pod "+w.FullName()+" on "+w.Node), append(nodes, w.Node)
			}
			x := audit.Finding{
				Absence: true, Severity: d.Severity(), Subject: networkSubject(d.Addr, d.Network, ""), Nodes: nodes, Remedies: f.Check.Remedies[:1], Pools: servingPools(v, d.Network, d.Addr),
				Message:  fmt.Sprintf("%s of a secondary network is used by %s", d.Addr, who) + d.Why(),
				Evidence: state.Evidences("used by", who, "network", d.Pods[0].AttachedOf(d.Addr)),
			}
			if d.LocalIPAM != "" {
				x.Remedies = f.Check.Remedies[1:]
			}
			f.Add(x)
		}
		for _, k := range v.Kept() {
			x := audit.Finding{
				Absence: true, Severity: state.Warning, Subject: networkSubject(k.Addr, k.NetworkName, k.Now.Node), Nodes: []string{k.Now.Node}, Remedies: guestRemedies, Pools: servingPools(v, k.NetworkName, k.Addr),
				Message:  fmt.Sprintf("virtual machine %s/%s was migrated, and its guest may still use %s of %s, while its pod now has %s", k.Now.Namespace, k.Now.Extras().VM, k.Addr, k.Network, k.NowAddr),
				Evidence: state.Evidences("former pod", k.Former.FullName(), "present pod", k.Now.FullName(), "network", k.Network),
			}
			if len(k.Others) > 0 {
				x.Severity, x.Nodes = state.Error, append(x.Nodes, k.Others[0].Node)
				x.Message += ", and pod " + k.Others[0].FullName() + " has the former"
			}
			f.Add(x)
		}
	},
}

// guestRemedies are for a guest with an address that Whereabouts does not record for it.
var guestRemedies = []remedies.Remedy{
	remedies.ByHand("restart the virtual machine, or renew its guest's DHCP lease", "the guest takes the address of its pod", "the virtual machine's address changes"),
	remedies.ByHand("give virtual machines on the network addresses without IPAM: from DHCP outside the cluster, or set in the guest (cloud-init), outside the range", "an address survives each migration", "none until the machines restart",
		"kubectl get network-attachment-definitions --all-namespaces -o yaml"),
}
