package state

import (
	"net/netip"
)

// SlotOf returns the CIDR of the block that an address would lie in; invalid if the address is
// outside all pools.
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
