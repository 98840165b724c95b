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
	Title:      "an allocation names no owner that can be looked up",
	Severities: []state.Severity{state.Info},
	Why: "A container of another runtime, a virtual machine or a person may have assigned the address, so it counts as in use. " +
		"Neither Calico's collector nor calico-audit ever releases it; if it was forgotten, it holds its block for good.",
	Confirm: "calicoctl ipam show --ip=ADDRESS prints the handle and the attributes. For a handle podman.ID, run podman ps on the " +
		"node; for NETWORK.vmi.NAMESPACE.NAME, kubectl get virtualmachines --all-namespaces.",
	Misread: "This is not a leak: the owner may be something other than a pod.",
	Remedies: []remedies.Remedy{
		remedies.ByHand("find out who assigned it (allow reading kubevirt.io if that is refused); if the owner is gone, release it with the component that assigned it, such as podman or calicoctl",
			"the address can be assigned again", "an address that is still in use is assigned a second time"),
	},
	Never:    "Never release it only because Kubernetes knows no user of it.",
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
				Message: fmt.Sprintf("%s is allocated to an unknown owner: %s", r.Addr(), r.Why()),
				Evidence: state.Evidences("block", r.Block.CIDR, "owner of the block", r.Block.Owner, "handle", phrase.OrNone(attr.Handle),
					"virtual machine", phrase.FullName(namespace, vm), "node", attr.Node, "assigned", attr.Assigned),
			})
		}
	},
}
