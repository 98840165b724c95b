package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var poolLowFreeBlocks = audit.Check{
	ID:         "pool/low-free-blocks",
	Title:      "the blocks of a pool that are allocatable or releasable are under 10 % or under 2",
	Severities: []state.Severity{state.Warning, state.Info},
	Graded:     "warning, or info while other pools that serve the same nodes and namespaces have enough",
	Why: "The next nodes to join, or nodes that fill their block, take the last blocks; after that nodes borrow addresses or get none. " +
		"This is the time to add a pool: before it, not after.",
	Confirm:  "calicoctl ipam show --show-blocks, and count the blocks of the pool against what its CIDR holds.",
	Misread:  "A percentage misleads for a small pool: with four blocks, one left is 25 % and still only enough for one node.",
	Remedies: []remedies.Remedy{remedies.ReleaseBlock, remedies.AddPool},
	Never:    "Never shrink the block size of a pool in use to gain blocks: blocks of the old size stay, and new ones may overlap them.",
	Requires: []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations},
	Optional: state.ReleaseReads,
	Run: func(st *state.State, f *audit.Findings) {
		if !st.ReleasableKnown() {
			f.Inconclusive("releasable blocks were not evaluated: %s", st.FirstMissing(state.ReleaseReads))
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
				Message: fmt.Sprintf("pool %s has %s of its %s left to claim, and %s releasable%s", p.Name, p.Slots.Allocatable, phrase.PluralCount(p.Slots.Capacity, "block"), p.Releasable, relief),
				Evidence: state.Evidences(
					"allocatable", p.Slots.Allocatable.String(), "releasable", p.Releasable.String(),
					"claimed", p.Slots.Claimed.String(), "reserved", p.Slots.Reserved.String(), "needed by its nodes", p.Needed.String()),
				Root: remedies.Of(st).RootOfPool(p),
			})
		}
	},
}
