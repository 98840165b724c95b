package state

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
)

// SlotOf returns the CIDR of the block that an address would lie in; invalid if
// it lies outside all pools.
func (st *State) SlotOf(a netip.Addr) netip.Prefix {
	p := st.PoolOf(netip.PrefixFrom(a, a.BitLen()))
	if p == nil || p.BlockSize < p.CIDR.Bits() {
		return netip.Prefix{}
	}
	slot, err := a.Prefix(p.BlockSize)
	if err != nil {
		return netip.Prefix{}
	}
	return slot
}

// SlotStatus says, of a block that does not exist, whether a node could claim it.
func (st *State) SlotStatus(slot netip.Prefix, p *Pool) (text string, claimable bool) {
	gap, unread := st.Missing(blocks.Pools)
	others := slices.DeleteFunc(st.BlocksAt(slot), func(b *Block) bool { return b.CIDR == slot })
	switch {
	case p == nil && unread:
		return "which pool it lies in is not known: " + gap.String(), false
	case p == nil:
		return "it lies outside all pools", false
	case p.BlockSize < p.CIDR.Bits():
		return fmt.Sprintf("pool %s is smaller than one of its own blocks (/%d), so that nothing can be claimed in it", p.Name, p.BlockSize), false
	case !slot.IsValid() || slot.Bits() != p.BlockSize || !blocks.PrefixContains(p.CIDR, slot):
		return fmt.Sprintf("pool %s is cut into blocks of /%d, of which it is none", p.Name, p.BlockSize), false
	case st.BlockMayCover(slot):
		return "a block that could not be understood may hold it", false
	case p.Disabled:
		return fmt.Sprintf("it cannot be claimed, as pool %s is disabled", p.Name), false
	case !p.HandsOut():
		return fmt.Sprintf("it cannot be claimed from pool %s: %s", p.Name, p.WhyClosed()), false
	case p.SelectorError() != nil:
		return fmt.Sprintf("it cannot be claimed, as a selector of pool %s cannot be parsed", p.Name), false
	case st.Reserved.Covers(slot):
		return fmt.Sprintf("it is reserved as a whole by %s, so that no node claims it", phrase.Each(st.ReservedBy(slot))), false
	case len(others) > 0:
		return fmt.Sprintf("it overlaps %s; Calico's allocator compares exact CIDRs only, and may claim it all the same", phrase.Each(CIDRs(others))), true
	case !p.Allows(blocks.UseWorkload) && !p.Allows(blocks.UseTunnel):
		return "it is free to be claimed for LoadBalancer services", true
	case !p.Automatic:
		return fmt.Sprintf("it is free to be claimed for pods that ask for pool %s", p.Name), true
	}
	return "it is free to be claimed by any node that the pool selects", true
}

// ReservedBy names the reservations that touch a CIDR.
func (st *State) ReservedBy(p netip.Prefix) (out []string) {
	for i := range st.Reservations {
		r := &st.Reservations[i]
		if slices.ContainsFunc(r.CIDRs, p.Overlaps) {
			out = append(out, "ipreservation/"+r.Name)
		}
	}
	return out
}
