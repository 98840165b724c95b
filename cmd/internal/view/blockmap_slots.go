package view

import (
	"net/netip"

	"github.com/calico-audit/calico-audit/blocks"
)

// reservedIn joins reservations as a report writes them.
func reservedIn(cidrs []string) blocks.ReservedSet {
	var all blocks.Reservation
	for _, c := range cidrs {
		if p, err := netip.ParsePrefix(c); err == nil {
			all.CIDRs = append(all.CIDRs, p.Masked())
		}
	}
	return blocks.NewReservedSet([]blocks.Reservation{all})
}

// slotAt returns a slot of a pool by its number.
func slotAt(pool netip.Prefix, bits, number int) netip.Prefix {
	raw := pool.Addr().AsSlice()
	shift := len(raw)*8 - bits
	for i, carry := len(raw)-1-shift/8, uint64(number)<<(shift%8); i >= 0 && carry > 0; i-- {
		carry += uint64(raw[i])
		raw[i] = byte(carry)
		carry >>= 8
	}
	a, _ := netip.AddrFromSlice(raw)
	return netip.PrefixFrom(a, bits)
}

// slotsOf returns which slots of a pool a CIDR covers or lies in: the first, and
// how many. It is for pools whose slots are few.
func slotsOf(pool netip.Prefix, bits int, p netip.Prefix) (from, n int) {
	if p.Bits() <= pool.Bits() {
		return 0, 1 << (bits - pool.Bits())
	}
	first, _ := blocks.SlotsBetween(pool.Addr(), p.Masked().Addr(), bits).Int()
	if p.Bits() >= bits {
		return first, 1
	}
	return first, 1 << (bits - p.Bits())
}
