package blocks

import (
	"math/big"
	"net/netip"

	"go4.org/netipx"
)

// Addrs counts a pool's addresses.
type Addrs struct {
	// Capacity is the size of the pool's CIDR.
	Capacity Count `json:"capacity"`
	// InUse counts the allocated addresses, including those cooling down and those reserved
	// by Windows nodes. It agrees with "calicoctl ipam show".
	InUse Count `json:"inUse"`
	// Reserved counts the addresses that IPReservations cover, in use or not.
	Reserved Count `json:"reserved"`
	// Available is Capacity minus the addresses that are in use or reserved.
	Available Count `json:"available"`
}

// Slots counts a pool's block-sized CIDRs, called slots.
type Slots struct {
	// Capacity is the number of slots: Claimed + Free + Reserved.
	Capacity Count `json:"capacity"`
	// Claimed slots contain, or lie in, an existing block of any size. Soft-deleted blocks
	// count.
	Claimed Count `json:"claimed"`
	// Free slots are neither claimed nor fully reserved.
	Free Count `json:"free"`
	// Reserved slots are unclaimed and fully covered by IPReservations.
	Reserved Count `json:"reserved"`
	// Allocatable slots are those that Calico's allocator would take: no block has exactly
	// the slot's CIDR, and the slot is not fully reserved (libcalico-go
	// ipam/ipam_block_reader_writer.go, findUsableBlock). It exceeds Free if the pool holds
	// blocks of another size.
	Allocatable Count `json:"allocatable"`
}

// ReservedSet is the union of reservations, indexed for repeated lookups.
type ReservedSet struct{ set *netipx.IPSet }

// NewReservedSet returns the union of rs.
func NewReservedSet(rs []Reservation) ReservedSet {
	var b netipx.IPSetBuilder
	for i := range rs {
		for _, p := range rs[i].CIDRs {
			b.AddPrefix(p)
		}
	}
	set, _ := b.IPSet() // prefixes are valid: readers turn invalid ones into gaps
	return ReservedSet{set}
}

// Contains reports whether an address is reserved.
func (r ReservedSet) Contains(a netip.Addr) bool { return r.set != nil && r.set.Contains(a) }

// Covers reports whether all addresses of p are reserved.
func (r ReservedSet) Covers(p netip.Prefix) bool { return r.set != nil && r.set.ContainsPrefix(p) }

// Overlaps reports whether any address of p is reserved.
func (r ReservedSet) Overlaps(p netip.Prefix) bool { return r.set != nil && r.set.OverlapsPrefix(p) }

// After returns the start of the next slot of the same size that is not part of the
// reserved run around slot. It is invalid at the end of the address space.
func (r ReservedSet) After(slot netip.Prefix) netip.Addr {
	end := netipx.PrefixLastIP(slot)
	for _, run := range r.set.Ranges() {
		if run.Contains(slot.Addr()) && end.Less(run.To()) {
			end = run.To()
		}
	}
	next, err := end.Next().Prefix(slot.Bits())
	if err != nil {
		return netip.Addr{}
	}
	return next.Addr()
}

// PoolAddresses counts a pool's addresses. Blocks in all that do not overlap the pool are
// ignored.
func PoolAddresses(p *Pool, all []*Block, reserved ReservedSet) Addrs {
	total := Addresses(p.CIDR)
	inUse, inUseReserved := 0, 0
	seen := overlapFilter(all)
	for _, b := range all {
		if !b.CIDR.Overlaps(p.CIDR) {
			continue
		}
		inside := PrefixContains(p.CIDR, b.CIDR)
		touched := reserved.Overlaps(b.CIDR)
		if inside && !touched && seen == nil {
			inUse += b.InUse()
			continue
		}
		for i, o := range b.Within() {
			if o == Free {
				continue
			}
			a := b.Address(i)
			if !inside && !p.CIDR.Contains(a) {
				continue
			}
			if seen != nil {
				if seen[a] {
					continue
				}
				seen[a] = true
			}
			inUse++
			if touched && reserved.Contains(a) {
				inUseReserved++
			}
		}
	}
	r := setSize(intersect(reserved.set, p.CIDR))
	taken := CountOf(inUse).Add(r).Sub(CountOf(inUseReserved))
	return Addrs{Capacity: total, InUse: CountOf(inUse), Reserved: r, Available: total.Sub(taken)}
}

// overlapFilter returns a set for counting each address once, or nil if no blocks overlap.
// Blocks must be in CIDR order.
func overlapFilter(all []*Block) map[netip.Addr]bool {
	for i := 1; i < len(all); i++ {
		if all[i-1].CIDR.Overlaps(all[i].CIDR) {
			return map[netip.Addr]bool{}
		}
	}
	return nil
}

// PoolSlots counts a pool's slots. Blocks in all that do not overlap the pool are ignored.
// A pool with a blockSize shorter than its own prefix has no slots.
func PoolSlots(p *Pool, all []*Block, reserved ReservedSet) Slots {
	capacity := PowerOfTwo(p.BlockSize - p.CIDR.Bits())
	if capacity.IsZero() {
		return Slots{}
	}
	claimedSet := slotsOf(p, all)
	claimed := slotsIn(p, claimedSet)
	reservedInPool := intersect(reserved.set, p.CIDR)
	wholly := slotsIn(p, reservedInPool)
	whollyUnclaimed := slotsIn(p, subtract(reservedInPool, claimedSet))

	exact := map[netip.Prefix]bool{}
	exactReserved := 0
	for _, b := range all {
		if b.CIDR.Bits() == p.BlockSize && PrefixContains(p.CIDR, b.CIDR) && !exact[b.CIDR] {
			exact[b.CIDR] = true
			if reserved.Covers(b.CIDR) {
				exactReserved++
			}
		}
	}
	return Slots{
		Capacity:    capacity,
		Claimed:     claimed,
		Reserved:    whollyUnclaimed,
		Free:        capacity.Sub(claimed).Sub(whollyUnclaimed),
		Allocatable: capacity.Sub(CountOf(len(exact))).Sub(wholly).Add(CountOf(exactReserved)),
	}
}

// ClaimedSlots counts the slots that blocks cover or overlap.
func ClaimedSlots(p *Pool, all []*Block) Count { return slotsIn(p, slotsOf(p, all)) }

// WindowsSlots counts the slots of a pool in which a Windows node may find no address: it keeps four
// addresses for itself, and reservations may cover the rest.
func WindowsSlots(p *Pool, reserved []Reservation) Count {
	if p.CIDR.Addr().BitLen()-p.BlockSize < 3 {
		return PowerOfTwo(p.BlockSize - p.CIDR.Bits())
	}
	var parts []*Block
	for i := range reserved {
		for _, c := range reserved[i].CIDRs {
			if c.Bits() > p.BlockSize {
				parts = append(parts, &Block{CIDR: c})
			}
		}
	}
	return ClaimedSlots(p, parts)
}

// slotsOf returns the union of the slots that blocks cover or overlap.
func slotsOf(p *Pool, all []*Block) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, blk := range all {
		switch {
		case !blk.CIDR.Overlaps(p.CIDR):
		case blk.CIDR.Bits() <= p.CIDR.Bits():
			b.AddPrefix(p.CIDR)
		case blk.CIDR.Bits() <= p.BlockSize:
			b.AddPrefix(blk.CIDR)
		default:
			slot, _ := blk.CIDR.Addr().Prefix(p.BlockSize)
			b.AddPrefix(slot)
		}
	}
	set, _ := b.IPSet()
	return set
}

// slotsIn counts the slots that lie fully in a set.
func slotsIn(p *Pool, set *netipx.IPSet) Count {
	size := p.BlockAddresses().value()
	n := new(big.Int)
	eachRunOfSlots(p, set, func(first, end *big.Int) { n.Add(n, end.Sub(end, first)) })
	if size.Sign() > 0 {
		n.Div(n, size)
	}
	return Count{n}
}

// eachRunOfSlots calls fn for each run of slots that lie fully in a set. end is the address
// after the run. fn may change both arguments.
func eachRunOfSlots(p *Pool, set *netipx.IPSet, fn func(first, end *big.Int)) {
	if set == nil {
		return
	}
	size := p.BlockAddresses().value()
	for _, r := range set.Ranges() {
		// Slots are aligned to their size in the whole address space, so the
		// first whole slot starts at the next multiple of the size.
		first := addrInt(r.From())
		first.Add(first, size).Sub(first, big.NewInt(1)).Div(first, size).Mul(first, size)
		end := addrInt(r.To())
		end.Add(end, big.NewInt(1)).Div(end, size).Mul(end, size)
		if end.Cmp(first) > 0 {
			fn(first, end)
		}
	}
}

// FirstAllocatable returns the first allocatable slot of a pool ([Slots.Allocatable]) among
// those that overlap a CIDR. near must hold the pool's blocks that overlap the CIDR; more
// blocks do no harm.
func FirstAllocatable(p *Pool, over netip.Prefix, near []*Block, reserved ReservedSet) (netip.Prefix, bool) {
	if p.BlockSize < p.CIDR.Bits() || !over.Overlaps(p.CIDR) {
		return netip.Prefix{}, false
	}
	var left netipx.IPSetBuilder
	left.AddSet(slotsOf(p, []*Block{{CIDR: over}}))
	for _, b := range near {
		if b.CIDR.Bits() == p.BlockSize {
			left.RemovePrefix(b.CIDR)
		}
	}
	eachRunOfSlots(p, intersect(reserved.set, p.CIDR), func(first, end *big.Int) {
		left.RemoveRange(netipx.IPRangeFrom(intAddr(first, p.CIDR), intAddr(end.Sub(end, big.NewInt(1)), p.CIDR)))
	})
	set, _ := left.IPSet()
	if set == nil || len(set.Ranges()) == 0 {
		return netip.Prefix{}, false
	}
	slot, err := set.Ranges()[0].From().Prefix(p.BlockSize)
	return slot, err == nil
}

func setSize(set *netipx.IPSet) Count {
	n := new(big.Int)
	if set != nil {
		for _, r := range set.Ranges() {
			d := new(big.Int).Sub(addrInt(r.To()), addrInt(r.From()))
			n.Add(n, d.Add(d, big.NewInt(1)))
		}
	}
	return Count{n}
}

func intersect(set *netipx.IPSet, p netip.Prefix) *netipx.IPSet {
	if set == nil || !set.OverlapsPrefix(p) {
		return nil
	}
	var b netipx.IPSetBuilder
	b.AddPrefix(p)
	b.Intersect(set)
	out, _ := b.IPSet()
	return out
}

func subtract(set, minus *netipx.IPSet) *netipx.IPSet {
	if set == nil {
		return nil
	}
	var b netipx.IPSetBuilder
	b.AddSet(set)
	b.RemoveSet(minus)
	out, _ := b.IPSet()
	return out
}

// PrefixContains reports whether inner lies fully within outer.
func PrefixContains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}
