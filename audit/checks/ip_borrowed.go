package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var ipBorrowed = audit.Check{
	ID:         "ip/borrowed",
	Title:      "an address is used on a node other than the owner of its block",
	Severities: []state.Severity{state.Error, state.Warning},
	Graded:     "warning; error for a tunnel address",
	Why: "The block's owner drops traffic to addresses of its blocks for which it has no route. A borrowed address works only if " +
		"the owner learns a route to that single address, and in some topologies it does not.",
	Confirm:  "calicoctl ipam show --show-borrowed; on the owner, ip route get ADDRESS (\"Invalid argument\" means black-holed).",
	Misread:  "Calico's \"ipam check\" does not count borrowed addresses as a problem.",
	Remedies: append(slices.Clip(remedies.Borrowing), remedies.RenewTunnel),
	Verify:   "The restarted pod has an address from a block of its own node, and pods on the former owner reach it.",
	Never: "Never release the address while its pod runs. Never restart a virtual machine's pod for it: the machine keeps its " +
		"address wherever it runs.",
	Requires: []blocks.Resource{blocks.Blocks, blocks.Nodes, blocks.Pods},
	Optional: remedies.RootReads,
	Run: func(st *state.State, f *audit.Findings) {
		for _, b := range st.Borrows {
			sev, user := state.Warning, borrowUser(st, b)
			if b.Tunnel {
				sev = state.Error
			}
			f.Add(audit.Finding{
				Severity: sev, Subject: state.IPSubject(b.Addr, b.User), Pools: state.PoolsOf(b.Block.Pool), Nodes: []string{b.Owner},
				Message: fmt.Sprintf("%s is used on %s by %s, but its block belongs to %s", b.Addr, b.User, user, b.Owner),
				Evidence: state.Evidences("owner", b.Owner, "borrower", b.User, "block", b.Block.CIDR, "pool", state.PoolName(b.Block.Pool),
					"used by", user, "handle", b.Attributes.Handle, "assigned", b.Attributes.Assigned),
				Root: remedies.Of(st).RootOfBorrow(b), Remedies: remedies.Of(st).BorrowRemedies(b),
			})
		}
	},
}

// borrowUser describes the user of a borrowed address.
func borrowUser(st *state.State, b *state.Borrow) string {
	_, unread := st.Missing(blocks.Pods)
	kind, _ := b.Attributes.TunnelOf()
	namespace, vm, _ := b.Attributes.VMOf()
	switch {
	case b.Tunnel:
		return fmt.Sprintf("the node's own tunnel (%s)", kind)
	case b.VM && vm != "":
		return "virtual machine " + namespace + "/" + vm
	case b.Workload != nil:
		return "pod " + b.Workload.FullName()
	case b.Attributes.Pod != "" && unread:
		return fmt.Sprintf("pod %s/%s, according to its allocation (pods were not read)", b.Attributes.Namespace, b.Attributes.Pod)
	case b.Attributes.Pod != "":
		return fmt.Sprintf("pod %s/%s, which was not found running", b.Attributes.Namespace, b.Attributes.Pod)
	}
	return "an unknown pod"
}
