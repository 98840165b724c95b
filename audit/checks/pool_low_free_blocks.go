package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var poolLowFreeBlocks = audit.Check{
	ID:         "pool/low-free-blocks",
	Title:      "under 10 % of the pool's blocks, or fewer than 2, are allocatable or releasable",
	Severities: []state.Severity{state.Warning, state.Info},
	Graded:     "warning; info while other pools that serve the same nodes and namespaces have enough",
	Why: "The next nodes that join, or that fill their blocks, take the last blocks. After that, nodes borrow addresses or get " +
		"none. Add a pool before that happens.",
	Confirm:  "Compare the blocks in calicoctl ipam show --show-blocks with the number of blocks that the pool's CIDR holds.",
	Misread:  "For a small pool a percentage misleads: one block left of four is 25 %, but it is enough for one node only.",
	Remedies: []remedies.Remedy{remedies.ReleaseBlock, remedies.AddPool},
	Never:    "Never shrink the block size of a pool in use to gain blocks: old blocks keep their size, and new ones may overlap them.",
	Requires: []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations},
	Optional: append(slices.Clip(remedies.RootReads), state.ReleaseReads...),
	Run: func(st *state.State, f *audit.Findings) {
		if !st.ReleasableKnown() {
			f.Inconclusive("releasable blocks were not evaluated: %s", st.Lacking(state.ReleaseReads))
			return
		}
		for _, p := range st.Pools {
			if !p.LowOnBlocks() {
				continue
			}
			sev, relief := state.Warning, ""
			if st.Relieved(p, func(q *state.Pool) bool { return q.ServesWorkloads() && !q.LowOnBlocks() }) {
				sev, relief = state.Info, "; other pools for the same nodes have enough"
			}
			f.Add(audit.Finding{
				Severity: sev, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p),
				Message: fmt.Sprintf("pool %s is low on blocks (left to claim: %s of %s, releasable: %s)%s%s", p.Name, p.Slots.Allocatable, p.Slots.Capacity, p.Releasable, relief, unreadNote(st.UnreadInPool(p))),
				Evidence: state.Evidences(
					"allocatable", p.Slots.Allocatable, "releasable", p.Releasable,
					"claimed", p.Slots.Claimed, "reserved", p.Slots.Reserved, "needed by its nodes", p.Needed),
				Root: remedies.Of(st).RootOfPool(p),
			})
		}
	},
}
