package checks

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var blockSizeMismatch = audit.Check{
	ID:         "block/size-mismatch",
	Title:      "a block's size differs from its pool's block size",
	Severities: []state.Severity{state.Error, state.Info},
	Graded:     "info; error if the block overlaps a CIDR that the allocator may still claim",
	Why: "Calico looks for free blocks by exact CIDR. It may claim a block of the pool's size that overlaps this one, and assign " +
		"its addresses twice. If all such blocks exist already, the mismatch is harmless.",
	Confirm: "Compare calicoctl ipam show --show-blocks with the pool's blockSize.",
	Misread: "\"I changed blockSize, and new nodes still get the old size\": existing blocks keep their size.",
	Remedies: []remedies.Remedy{
		remedies.Restart("add a pool with another CIDR and the wanted block size, then "+remedies.DisablePool+" and restart its pods, one controller at a time",
			"no block overlaps another"),
	},
	Never:    "Never change the blockSize of a pool that has blocks.",
	Requires: []blocks.Resource{blocks.Blocks, blocks.Pools, blocks.Reservations},
	Run: func(st *state.State, f *audit.Findings) {
		for _, b := range st.IPBlocks {
			if b.Pool == nil || b.CIDR.Bits() == b.Pool.BlockSize {
				continue
			}
			// If no future block can overlap it, no action is needed.
			sev, risk, ways := state.Info, "", []remedies.Remedy(nil)
			switch slot, ok := claimableOver(st, b); {
			case ok && (st.BlockMayCover(b.CIDR) || st.PoolMayCover(b.CIDR) || len(st.Unreadable(blocks.Reservations)) > 0):
				f.SkipPartial("whether Calico may claim a block that overlaps %s was not evaluated: a block, pool or IPReservation that cannot be read may prevent it", b.CIDR)
			case ok:
				sev, risk, ways = state.Error, slot.String(), f.Check.Remedies
			}
			message := fmt.Sprintf("block %s differs from the block size /%[3]d of pool %[2]s", b.CIDR, b.Pool.Name, b.Pool.BlockSize)
			if risk != "" {
				message += fmt.Sprintf("; Calico may still claim %s, which overlaps it", risk)
			}
			f.Add(audit.Finding{
				Severity: sev, Subject: state.BlockSubject(b), Pools: state.PoolsOf(b.Pool), Nodes: []string{b.Owner.Node()}, Message: message, Absence: sev == state.Error,
				Evidence: state.Evidences("pool", b.Pool.Name, "pool's block size", fmt.Sprintf("/%d", b.Pool.BlockSize), "claimable over it", risk,
					"owner", b.Owner, "in use", b.Used),
				Remedies: ways,
			})
		}
	},
}

// claimableOver returns the first slot of the block's pool that overlaps the block and that the
// allocator may still claim.
func claimableOver(st *state.State, b *state.Block) (netip.Prefix, bool) {
	p := b.Pool
	if !p.HandsOut() {
		return netip.Prefix{}, false
	}
	var near []*blocks.Block // p.Blocks are in CIDR order, and no slot starts after the blocks in it
	for i, _ := slices.BinarySearchFunc(p.Blocks, b, func(a, b *state.Block) int { return a.CIDR.Addr().Compare(b.CIDR.Masked().Addr()) }); i < len(p.Blocks); i++ {
		if !p.Blocks[i].CIDR.Overlaps(b.CIDR) {
			break
		}
		near = append(near, p.Blocks[i].Block)
	}
	if slot, err := b.CIDR.Addr().Prefix(p.BlockSize); err == nil && st.BlockOf(slot) != nil {
		near = append(near, st.BlockOf(slot).Block) // the slot's own block, which contains b
	}
	return blocks.FirstAllocatable(p.Pool, b.CIDR, near, st.Reserved)
}
