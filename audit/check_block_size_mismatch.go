package audit

import (
	"fmt"
	"net/netip"

	"github.com/calico-audit/calico-audit/blocks"
)

func init() {
	register(Check{
		ID:       "block/size-mismatch",
		Title:    "a block's size is not its pool's",
		Severity: "info, or error if it overlaps what the allocator may still claim",
		Why: "Calico looks for free blocks by exact CIDR: it may claim a block of the pool's size that overlaps this one, and hand its addresses out twice. " +
			"Where every such block exists already, the mismatch is harmless.",
		Confirm: "calicoctl ipam show --show-blocks, beside the pool's blockSize.",
		Misread: "\"I changed blockSize, and new nodes still get the old size\": blocks that exist keep theirs.",
		Fix:     "Disable the pool at once, add one with the wanted block size and another CIDR, and move the pods by restarting them.",
		Never:   "Never change the blockSize of a pool that has blocks.",
		Needs:   []blocks.Resource{blocks.Blocks, blocks.Pools, blocks.Reservations},
		Run: func(st *State, f *Findings) {
			for _, b := range st.IPBlocks {
				if b.Pool == nil || b.CIDR.Bits() == b.Pool.BlockSize {
					continue
				}
				sev, risk := Info, ""
				if slot, ok := st.claimableOver(b); ok {
					sev, risk = Error, slot.String()
				}
				message := fmt.Sprintf("block %s is not of pool %s's block size /%d", b.CIDR, b.Pool.Name, b.Pool.BlockSize)
				if risk != "" {
					message += fmt.Sprintf("; Calico may still claim %s, which overlaps it", risk)
				}
				f.Add(Finding{
					Severity: sev, Subject: blockSubject(b), Pools: poolsOf(b.Pool), Nodes: []string{b.Owner.Node()}, Message: message, Absence: sev == Error,
					Evidence: Evidences("pool", b.Pool.Name, "pool's block size", fmt.Sprintf("/%d", b.Pool.BlockSize), "claimable over it", risk,
						"owner", ownerText(b.Owner), "in use", fmt.Sprint(b.Used)),
					Fix: Fix{"manual", fmt.Sprintf("set disabled: true on pool %s until no block of another size is left in it", b.Pool.Name)},
				})
			}
		},
	})
}

// claimableOver returns a slot of the block's pool that overlaps the block and
// that the allocator may still claim: no block has exactly that CIDR, and it is
// not wholly reserved.
func (st *State) claimableOver(b *Block) (netip.Prefix, bool) {
	p := b.Pool
	if p.Disabled || p.NotAllocatable != "" || !p.Deleting.IsZero() || p.BlockSize < p.CIDR.Bits() {
		return netip.Prefix{}, false
	}
	from := b.CIDR.Addr()
	if !p.CIDR.Contains(from) {
		from = p.CIDR.Addr() // the block begins before the pool
	}
	slot, err := from.Prefix(p.BlockSize)
	for err == nil && slot.Overlaps(b.CIDR) && p.CIDR.Contains(slot.Addr()) {
		if st.BlockOf(slot) == nil && !st.reserved.Covers(slot) {
			return slot, true
		}
		next := lastAddr(slot).Next()
		if !next.IsValid() {
			break
		}
		slot, err = next.Prefix(p.BlockSize)
	}
	return netip.Prefix{}, false
}

func lastAddr(p netip.Prefix) netip.Addr {
	raw := p.Addr().AsSlice()
	for i := p.Bits(); i < len(raw)*8; i++ {
		raw[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(raw)
	return a
}
