package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var ipUnknownOwner = audit.Check{
	ID:         "ip/unknown-owner",
	Title:      "an allocation that names no owner that can be looked up",
	Severities: []state.Severity{state.Info},
	Why: "The address is in use as far as can be known: by a container of another runtime, a virtual machine, an address assigned by hand. " +
		"Neither Calico's own collector nor calico-audit ever releases it, so that one that was forgotten holds its block for good.",
	Confirm: "calicoctl ipam show --ip=ADDRESS prints the handle and the attributes. podman ps on the node lists containers whose handle is podman.ID; " +
		"kubectl get virtualmachines --all-namespaces the machine of a handle NETWORK.vmi.NAMESPACE.NAME.",
	Misread: "It is not a leak: that no pod names the address says nothing about an owner that is not a pod.",
	Remedies: []remedies.Remedy{
		remedies.ByHand("find out who assigned it, and permit reading virtual machines (kubevirt.io) where that is missing; if its owner is gone, the component that assigned it releases it, as with podman network disconnect or calicoctl ipam release",
			"the address can be handed out again", "an address that is still in use is handed out a second time"),
	},
	Never:    "Never release it because nothing that Kubernetes knows uses it.",
	Requires: []blocks.Resource{blocks.Blocks, blocks.Nodes, blocks.Pods},
	Optional: []blocks.Resource{blocks.VMs, blocks.VMInstances},
	Run: func(st *state.State, f *audit.Findings) {
		for _, r := range st.Unowned() {
			if !r.Unknown {
				continue
			}
			attr := r.Attributes()
			namespace, vm, _ := attr.VMOf()
			f.Add(audit.Finding{
				Absence: true, Severity: state.Info, Subject: state.IPSubject(r.Addr(), attr.Node), Pools: state.PoolsOf(r.Block.Pool), Nodes: []string{r.Block.Owner.Node()},
				Message: fmt.Sprintf("%s is allocated, and who owns it is not known: %s", r.Addr(), r.Why()),
				Evidence: state.Evidences("block", r.Block.CIDR.String(), "owner of the block", phrase.Owner(r.Block.Owner), "handle", phrase.OrNone(attr.Handle),
					"virtual machine", phrase.FullName(namespace, vm), "node", attr.Node, "assigned", phrase.Time(attr.Assigned)),
				Fix: audit.Look("calico-audit explain " + r.Addr().String()),
			})
		}
	},
}
