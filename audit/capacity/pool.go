package capacity

import (
	"hash/fnv"
	"math/big"
	"math/rand"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// pool is a pool with the blocks that have exactly the CIDR of one of its slots: the
// allocator sees no others in it.
type pool struct {
	*state.Pool
	reserved blocks.ReservedSet
	// blocks are in the order of their addresses. version changes with them, and when a
	// block gains room.
	blocks  []*block
	version int
	// next leads from a slot that cannot be claimed to the nearest after it that may be.
	next map[netip.Addr]netip.Addr
	// empty is how many blocks were seen empty when they were added or gave an address
	// back: there are none that are if it is 0.
	empty int
}

func newPool(p *state.Pool, reserved blocks.ReservedSet) *pool {
	return &pool{Pool: p, reserved: reserved, next: map[netip.Addr]netip.Addr{}}
}

// has reports whether a block lies in one of the pool's slots, exactly.
func (p *pool) has(b *block) bool {
	return b.cidr.Bits() == p.BlockSize && p.CIDR.Bits() <= p.BlockSize && p.CIDR.Contains(b.cidr.Addr())
}

// from returns the place of the first block at or after an address.
func (p *pool) from(addr netip.Addr) int {
	i, _ := slices.BinarySearchFunc(p.blocks, addr, func(b *block, addr netip.Addr) int { return b.cidr.Addr().Compare(addr) })
	return i
}

func (p *pool) add(b *block) {
	if p.has(b) {
		p.blocks = slices.Insert(p.blocks, p.from(b.cidr.Addr()), b)
		p.gainedFree(b)
	}
}

func (p *pool) remove(b *block) {
	if p.has(b) {
		p.blocks = slices.DeleteFunc(slices.Clone(p.blocks), func(o *block) bool { return o == b })
		p.next = map[netip.Addr]netip.Addr{}
		p.version++
	}
}

// gainedFree notes that a block has free addresses again.
func (p *pool) gainedFree(b *block) {
	if !p.has(b) {
		return
	}
	if p.version++; b.used == 0 {
		p.empty++
	}
}

// startKey is what the start of a node's order depends on.
type startKey struct {
	host string
	pool netip.Prefix
	bits int
}

// start returns the slot that a host tries first in a pool: the hash of its name seeds the
// generator that draws it; the others follow in order, and after the last the first
// (libcalico-go ipam/ipam_block_reader_writer.go, randomBlockGenerator). Where blocks hold
// one address, Calico draws by the clock instead.
func (a *Allocator) start(p *pool, host string) netip.Addr {
	key := startKey{host, p.CIDR, p.BlockSize}
	if addr, ok := a.starts[key]; ok {
		return addr
	}
	hash := fnv.New32()
	_, _ = hash.Write([]byte(host))
	slots := new(big.Int).Lsh(big.NewInt(1), uint(p.BlockSize-p.CIDR.Bits()))
	i := new(big.Int).Rand(rand.New(rand.NewSource(int64(hash.Sum32()))), slots) //nolint:gosec // Calico's generator
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
func (p *pool) claimable(a *Allocator, addr netip.Addr) netip.Addr {
	var passed []netip.Addr
	for addr.IsValid() && p.CIDR.Contains(addr) {
		next, known := p.next[addr]
		if !known {
			slot := p.slot(addr)
			switch {
			case p.reserved.Covers(slot):
				next = p.reserved.After(slot)
			case a.blocks[slot] != nil:
				next = netipx.PrefixLastIP(slot).Next()
			default:
				for _, s := range passed {
					p.next[s] = addr
				}
				return addr
			}
		}
		passed = append(passed, addr)
		addr = next
	}
	for _, s := range passed {
		p.next[s] = netip.Addr{}
	}
	return netip.Addr{}
}

// firstClaimable returns the first slot in a host's order that can be claimed.
func (a *Allocator) firstClaimable(p *pool, host string) (netip.Prefix, bool) {
	if p.BlockSize < p.CIDR.Bits() {
		return netip.Prefix{}, false
	}
	addr := p.claimable(a, a.start(p, host))
	if !addr.IsValid() {
		addr = p.claimable(a, p.CIDR.Addr())
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

// cursor is how far a node has come in a pool's blocks, as places after its start: those
// before have no room left.
type cursor struct{ version, at int }

// lenders calls yield for the pool's blocks in a node's order, from where it last found
// room on, until it returns false.
func (a *Allocator) lenders(p *pool, n *node, yield func(*block) bool) {
	if p.BlockSize < p.CIDR.Bits() {
		return
	}
	first := p.from(a.start(p, n.Name))
	c := n.cursors[p]
	if c.version != p.version {
		c = cursor{version: p.version}
	}
	all := p.blocks // deleting makes another list
	for ; c.at < len(all); c.at++ {
		if !yield(all[(first+c.at)%len(all)]) {
			break
		}
	}
	n.cursors[p] = c
}
