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

// pool is a pool with the blocks that are one of its slots; the allocator ignores all other blocks
// in it. A node searches in address order from its own start, and wraps around at the end. Trees
// make each search logarithmic.
type pool struct {
	*state.Pool
	reserved blocks.ReservedSet
	// taken holds the runs of slots with blocks.
	taken *btree.BTreeG[slots]
	// blocks holds all blocks, lending the blocks to borrow from, and empty the blocks that
	// another node may take over.
	blocks, lending, empty *btree.BTreeG[*block]
}

// slots is a run of slots: the first one, and the one after the last.
type slots struct{ first, next netip.Addr }

// has reports whether the run contains an address; the address must not be before the run.
func (r slots) has(addr netip.Addr) bool { return addr.Less(r.next) || !r.next.IsValid() }

const degree = 32 // of the trees

func newPool(p *state.Pool, reserved blocks.ReservedSet) *pool {
	tree := func() *btree.BTreeG[*block] {
		return btree.NewG(degree, func(a, b *block) bool { return a.cidr.Addr().Less(b.cidr.Addr()) })
	}
	return &pool{
		Pool: p, reserved: reserved, blocks: tree(), lending: tree(), empty: tree(),
		taken: btree.NewG(degree, func(a, b slots) bool { return a.first.Less(b.first) }),
	}
}

// has reports whether a block's CIDR equals one of the pool's slots.
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

// inOrder yields the blocks of a tree from start on, wrapping around at the end. The caller
// may change the tree during the iteration.
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

// startKey identifies the start of a node's search in a pool.
type startKey struct {
	host string
	pool netip.Prefix
	bits int
}

// starts caches the starts, which never change.
type starts map[startKey]netip.Addr

// start returns the first slot that a host tries in a pool. The hash of the host's name
// seeds the random number generator that picks it; the other slots follow in order and wrap
// around (libcalico-go ipam/ipam_block_reader_writer.go, randomBlockGenerator). For blocks
// of one address, Calico seeds by the clock instead. A pool smaller than one of its blocks
// has no slot; its own first address is returned.
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

// slot returns the CIDR of the slot that begins at an address.
func (p *pool) slot(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, p.BlockSize) }

// claimable returns the first slot at or after an address that has no block and is not
// fully reserved; invalid if the pool has none.
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

// firstClaimable returns the first claimable slot in a host's order.
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

// sooner reports whether a search from start reaches addr before other.
func sooner(start, addr, other netip.Addr) bool {
	if early, late := addr.Less(start), other.Less(start); early != late {
		return late
	}
	return addr.Less(other)
}
