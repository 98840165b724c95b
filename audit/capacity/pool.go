package capacity

import (
	"hash/fnv"
	"iter"
	"math/big"
	"math/rand"
	"net/netip"

	"github.com/google/btree"
	"go4.org/netipx"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// pool is a pool with the blocks that have exactly the CIDR of one of its slots: the
// allocator sees no others in it. Whatever a node looks for, it looks for in the order of
// addresses from a start of its own, and begins again at the lowest; so each is found in
// logarithmic time.
type pool struct {
	*state.Pool
	reserved blocks.ReservedSet
	// taken are the runs of slots that have a block.
	taken *btree.BTreeG[slots]
	// blocks are all, lending those that a borrower does not pass over, and empty those that
	// another node may take.
	blocks, lending, empty *btree.BTreeG[*block]
}

// slots are a run of slots: its first, and the one after it.
type slots struct{ first, next netip.Addr }

// has reports whether an address that is not before a run is in it.
func (r slots) has(addr netip.Addr) bool { return addr.Less(r.next) || !r.next.IsValid() }

const degree = 32 // of trees

func newPool(p *state.Pool, reserved blocks.ReservedSet) *pool {
	tree := func() *btree.BTreeG[*block] {
		return btree.NewG(degree, func(a, b *block) bool { return a.cidr.Addr().Less(b.cidr.Addr()) })
	}
	return &pool{
		Pool: p, reserved: reserved, blocks: tree(), lending: tree(), empty: tree(),
		taken: btree.NewG(degree, func(a, b slots) bool { return a.first.Less(b.first) }),
	}
}

// has reports whether a block lies in one of the pool's slots, exactly.
func (p *pool) has(b *block) bool {
	return b.cidr.Bits() == p.BlockSize && p.CIDR.Bits() <= p.BlockSize && p.CIDR.Contains(b.cidr.Addr())
}

func (p *pool) add(b *block) {
	p.blocks.ReplaceOrInsert(b)
	slot := slots{b.cidr.Addr(), netipx.PrefixLastIP(b.cidr).Next()}
	switch before, ok := p.run(slot.first); {
	case ok && before.has(slot.first): // a second block of the same CIDR
		return
	case ok && before.next == slot.first:
		slot.first = before.first
	}
	if after, ok := p.taken.Get(slots{first: slot.next}); ok {
		p.taken.Delete(after)
		slot.next = after.next
	}
	p.taken.ReplaceOrInsert(slot)
}

func (p *pool) remove(b *block) {
	p.blocks.Delete(b)
	p.lending.Delete(b)
	p.empty.Delete(b)
	of, ok := p.run(b.cidr.Addr())
	if !ok || !of.has(b.cidr.Addr()) {
		return
	}
	p.taken.Delete(of)
	if of.first != b.cidr.Addr() {
		p.taken.ReplaceOrInsert(slots{of.first, b.cidr.Addr()})
	}
	if next := netipx.PrefixLastIP(b.cidr).Next(); next != of.next {
		p.taken.ReplaceOrInsert(slots{next, of.next})
	}
}

// run returns the last run that begins at or before an address.
func (p *pool) run(addr netip.Addr) (found slots, ok bool) {
	p.taken.DescendLessOrEqual(slots{first: addr}, func(r slots) bool {
		found, ok = r, true
		return false
	})
	return found, ok
}

// inOrder yields the blocks of a tree in the order that begins at an address. The tree may
// change meanwhile.
func inOrder(tree *btree.BTreeG[*block], start netip.Addr) iter.Seq[*block] {
	return func(yield func(*block) bool) {
		low := netip.IPv6Unspecified()
		if start.Is4() {
			low = netip.IPv4Unspecified()
		}
		for i, addr := range []netip.Addr{start, low} {
			for addr.IsValid() {
				var found *block
				tree.AscendGreaterOrEqual(&block{cidr: netip.PrefixFrom(addr, 0)}, func(b *block) bool {
					found = b
					return false
				})
				if found == nil || i > 0 && !found.cidr.Addr().Less(start) {
					break
				}
				if !yield(found) {
					return
				}
				addr = netipx.PrefixLastIP(found.cidr).Next()
			}
		}
	}
}

// startKey is what the start of a node's order depends on.
type startKey struct {
	host string
	pool netip.Prefix
	bits int
}

// starts are those found out, which do not change.
type starts map[startKey]netip.Addr

// start returns the slot that a host tries first in a pool: the hash of its name seeds the
// generator that draws it; the others follow in order, and after the last the first
// (libcalico-go ipam/ipam_block_reader_writer.go, randomBlockGenerator). Where blocks hold
// one address, Calico draws by the clock instead. A pool that is smaller than one of its
// blocks has no slot, and its own first address stands for one.
func (a *Allocator) start(p *pool, host string) netip.Addr {
	if p.BlockSize < p.CIDR.Bits() {
		return p.CIDR.Addr()
	}
	key := startKey{host, p.CIDR, p.BlockSize}
	if addr, ok := a.starts[key]; ok {
		return addr
	}
	hash := fnv.New32()
	_, _ = hash.Write([]byte(host))
	number := new(big.Int).Lsh(big.NewInt(1), uint(p.BlockSize-p.CIDR.Bits()))
	i := new(big.Int).Rand(rand.New(rand.NewSource(int64(hash.Sum32()))), number) //nolint:gosec // Calico's generator
	base := new(big.Int).SetBytes(p.CIDR.Addr().AsSlice())
	base.Add(base, i.Lsh(i, uint(p.CIDR.Addr().BitLen()-p.BlockSize)))
	addr, _ := netip.AddrFromSlice(base.FillBytes(make([]byte, p.CIDR.Addr().BitLen()/8)))
	a.starts[key] = addr
	return addr
}

// slot returns the CIDR of the slot that begins with an address.
func (p *pool) slot(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, p.BlockSize) }

// claimable returns the first slot at or after an address that has no block and is not
// reserved as a whole; invalid if there is none up to the pool's end.
func (p *pool) claimable(addr netip.Addr) netip.Addr {
	for addr.IsValid() && p.CIDR.Contains(addr) {
		if r, ok := p.run(addr); ok && r.has(addr) {
			addr = r.next
		} else if slot := p.slot(addr); p.reserved.Covers(slot) {
			addr = p.reserved.After(slot)
		} else {
			return addr
		}
	}
	return netip.Addr{}
}

// firstClaimable returns the first slot in a host's order that can be claimed.
func (a *Allocator) firstClaimable(p *pool, host string) (netip.Prefix, bool) {
	if p.BlockSize < p.CIDR.Bits() {
		return netip.Prefix{}, false
	}
	addr := p.claimable(a.start(p, host))
	if !addr.IsValid() {
		addr = p.claimable(p.CIDR.Addr())
	}
	if !addr.IsValid() {
		return netip.Prefix{}, false
	}
	return p.slot(addr), true
}

// sooner reports whether a host comes to an address before it comes to another.
func sooner(start, addr, other netip.Addr) bool {
	if early, late := addr.Less(start), other.Less(start); early != late {
		return late
	}
	return addr.Less(other)
}
