package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var configNoAutoBlocks = audit.Check{
	ID: "config/no-auto-blocks", Title: "automatic blocks are off, and a node has no free address left",
	Severities: []state.Severity{state.Error, state.Warning}, Graded: "error if a pod waits on such a node; else warning",
	Why:      "While autoAllocateBlocks is false, no node claims a block. A node's pods get addresses of its existing blocks until these are full.",
	Confirm:  "calicoctl ipam show --show-configuration; calicoctl ipam show --show-blocks",
	Misread:  "The pool may have many free blocks. While automatic blocks are off, no node claims them.",
	Remedies: []remedies.Remedy{remedies.AutoBlocks},
	Verify:   "The node's next pod gets an address of a block of its own.",
	Never:    "Never release a node's empty block while automatic blocks are off: no node claims it again.",
	Requires: slices.Concat([]blocks.Resource{blocks.IPAMConfigs}, state.BlockStatusReads),
	Run: func(st *state.State, f *audit.Findings) {
		if st.IPAM.AutoAllocateBlocks {
			return
		}
		var nodes, waiting blocks.Names
		for _, h := range st.NodeStates {
			if h.Node == nil || !lacksFreeAddress(st, h) {
				continue
			}
			nodes = append(nodes, h.Name)
			for _, w := range h.Workloads {
				if w.Waiting() {
					waiting = append(waiting, w.FullName())
				}
			}
		}
		if len(nodes) == 0 {
			return
		}
		sev, text := state.Warning, "their next pods get none"
		if len(waiting) > 0 {
			sev, text = state.Error, fmt.Sprintf("pods waiting there: %d", len(waiting))
		}
		f.Add(audit.Finding{
			Absence: true, Severity: sev, Subject: state.ConfigSubject(), Nodes: nodes,
			Message:  fmt.Sprintf("automatic blocks are off, and no free address is left on %s: %s", nodes, text),
			Evidence: state.Evidences("nodes without a free address", nodes, "waiting pods", waiting, "autoAllocateBlocks", "false"),
			Remedies: f.Check.Remedies,
		})
	},
}

// lacksFreeAddress reports whether, in a family in use, the node's own or claimed blocks have no
// address for its next pod. If no pod has an address, every family with a pool counts.
func lacksFreeAddress(st *state.State, h *state.NodeState) bool {
	families := st.Families
	if len(families) == 0 {
		families = []blocks.Family{blocks.IPv4, blocks.IPv6}
	}
	return slices.ContainsFunc(families, func(f blocks.Family) bool {
		n := &state.NodeBlockStatus{Host: h, Family: f}
		pools := state.GeneralPools(st.WorkloadPools(h.Node, f))
		return len(pools) > 0 && st.DoubtOf(n) == "" && !st.HealsItself(n, pools) && !slices.ContainsFunc(h.Blocks, func(b *state.Block) bool {
			return slices.Contains(pools, b.Pool) && (st.Keepable(b) || st.AffinityMayExist(b.CIDR, h.Name) && b.Usable() && st.Unused(b) > 0)
		})
	})
}
