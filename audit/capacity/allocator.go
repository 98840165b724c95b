package capacity

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/btree"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Allocator simulates Calico's IPAM: it holds the IPAM objects of a state in memory and
// assigns addresses by Calico's rules. It never changes the state.
type Allocator struct {
	config   blocks.IPAMConfig
	reserved blocks.ReservedSet
	// pools are the pools that assign addresses, by name. Calico tries them in this order.
	pools []*pool
	nodes map[string]*node
	// blocks holds all blocks; owned holds the blocks of each owner, unordered.
	blocks     map[netip.Prefix]*block
	owned      map[blocks.Owner][]*block
	affinities map[blocks.Owner][]*claim
	// changes counts, by owner, the changes that may affect which of its blocks have room.
	changes map[blocks.Owner]int
	// most is the largest number of blocks that a node held when it asked for another.
	most int
	// queues holds the free ordinals of an empty block, by block size.
	queues map[int][]int32
	// reclaims is true from v3.32 on, where nodes take over empty blocks of other nodes.
	// labelled is true from v3.31 on, where Calico ignores affinities without its labels.
	reclaims, labelled bool
	now                time.Time
	starts             starts
}

// node is a node with its cached pool selections.
type node struct {
	*blocks.Node
	eligible map[eligibleKey]*eligible
}

func (n *node) owner() blocks.Owner { return blocks.Owner{Kind: blocks.HostOwner, Name: n.Name} }

type block struct {
	cidr  netip.Prefix
	owner blocks.Owner
	// free holds the assignable ordinals, in the order of assignment. The snapshot may share this
	// slice, so elements are never modified.
	free []int32
	// used counts the allocated addresses, without those that Windows reserves.
	used int
	// reserved is true if all addresses are reserved; touched is true if some are.
	reserved, touched bool
	softDeleted       bool
	claimed           time.Time
}

type claim struct {
	name string
	cidr netip.Prefix
	// confirmed is also true for an affinity without a state; unstated marks those.
	confirmed, unstated     bool
	softDeleted, unlabelled bool
	// full caches that the block has no room. It is reset when the block regains room.
	full bool
}

// NewAllocator returns an Allocator for a state.
func NewAllocator(st *state.State) *Allocator {
	return newAllocator(st, st.Pools, st.IPAM, starts{}, nil)
}

// newAllocator returns an Allocator for a state. Its pools and settings may differ from the
// state's. If without is not nil, CIDRs for which it returns true have no blocks or affinities.
func newAllocator(st *state.State, pools []*state.Pool, config blocks.IPAMConfig, known starts, without func(netip.Prefix) bool) *Allocator {
	if without == nil {
		without = func(netip.Prefix) bool { return false }
	}
	a := &Allocator{
		config: config, reserved: st.Reserved, nodes: map[string]*node{}, blocks: map[netip.Prefix]*block{},
		owned: map[blocks.Owner][]*block{}, affinities: map[blocks.Owner][]*claim{}, starts: known,
		changes: map[blocks.Owner]int{}, queues: map[int][]int32{},
		reclaims: blocks.CalicoAtLeast(st.Cluster.CalicoVersion, 3, 32), labelled: blocks.CalicoAtLeast(st.Cluster.CalicoVersion, 3, 31),
		now: st.Cluster.TakenAt,
	}
	for _, h := range st.NodeStates {
		if h.Node != nil {
			a.AddNode(h.Node)
		}
	}
	for i := range st.Affinities {
		f := &st.Affinities[i]
		if without(f.CIDR) {
			continue
		}
		a.addClaim(f.Owner, &claim{
			name: f.Name, cidr: f.CIDR, confirmed: f.Effective() == blocks.Confirmed, unstated: f.State == "", softDeleted: f.SoftDeleted, unlabelled: f.Unlabelled,
		})
	}
	for _, p := range pools {
		if p.HandsOut() {
			a.addPool(p)
		}
	}
	for _, b := range st.IPBlocks {
		if without(b.CIDR) || st.BlockObjects(b.CIDR) > 1 && b.Name != blocks.BlockName(b.CIDR) { // which Calico never reads
			continue
		}
		used := b.Used
		for i := range b.Ordinals {
			if attr := attributes(b, i); attr != nil && attr.WindowsReserved() {
				used--
			}
		}
		a.addBlock(&block{cidr: b.CIDR, owner: b.Owner, free: b.Unallocated, used: used, softDeleted: b.SoftDeleted, claimed: b.Claimed.Std()})
	}
	return a
}

// attributes returns the attributes of an allocated ordinal; nil if it is free.
func attributes(b *state.Block, ordinal int) *blocks.Attributes {
	if b.Ordinals[ordinal] == blocks.Free {
		return nil
	}
	return b.At(ordinal)
}

// AddNode adds a node without blocks.
func (a *Allocator) AddNode(n *blocks.Node) {
	a.nodes[n.Name] = &node{Node: n, eligible: map[eligibleKey]*eligible{}}
}

// addPool inserts a pool in the order of names.
func (a *Allocator) addPool(p *state.Pool) {
	i, _ := slices.BinarySearchFunc(a.pools, p.Name, func(q *pool, name string) int { return strings.Compare(q.Name, name) })
	a.pools = slices.Insert(a.pools, i, newPool(p, a.reserved))
}

func (a *Allocator) addClaim(owner blocks.Owner, c *claim) {
	all := a.affinities[owner]
	i, _ := slices.BinarySearchFunc(all, c.name, func(d *claim, name string) int { return strings.Compare(d.name, name) })
	a.affinities[owner] = slices.Insert(all, i, c)
	a.changes[owner]++
}

// write records that Calico writes an affinity, which adds missing labels (libcalico-go
// backend/k8s/resources/ipam_affinity.go, updateV3).
func (a *Allocator) write(owner blocks.Owner, c *claim) {
	c.unlabelled, c.unstated = false, false
	a.changes[owner]++
}

func (a *Allocator) deleteClaim(owner blocks.Owner, c *claim) {
	a.affinities[owner] = slices.DeleteFunc(a.affinities[owner], func(d *claim) bool { return d == c })
	a.changes[owner]++
}

// getClaim reads an affinity as Calico's client does: reading a soft-deleted affinity
// finishes its deletion (libcalico-go backend/k8s/resources/ipam_affinity.go, getV1).
func (a *Allocator) getClaim(owner blocks.Owner, cidr netip.Prefix) *claim {
	i := slices.IndexFunc(a.affinities[owner], func(c *claim) bool { return c.cidr == cidr })
	if i < 0 {
		return nil
	}
	c := a.affinities[owner][i]
	if c.softDeleted {
		a.deleteClaim(owner, c)
		return nil
	}
	return c
}

func (a *Allocator) addBlock(b *block) {
	b.reserved, b.touched = a.reserved.Covers(b.cidr), a.reserved.Overlaps(b.cidr)
	a.blocks[b.cidr] = b
	a.owned[b.owner] = append(a.owned[b.owner], b)
	for _, p := range a.pools {
		if p.has(b) {
			p.add(b)
		}
	}
	a.changed(b)
}

// changed updates the pools' indexes after a block's addresses changed. The clock stands still, so
// a block that is too young to be taken over stays too young.
func (a *Allocator) changed(b *block) {
	keep := func(tree *btree.BTreeG[*block], in bool) {
		if in {
			tree.ReplaceOrInsert(b)
		} else {
			tree.Delete(b)
		}
	}
	free := a.numFree(b) > 0
	for _, p := range a.pools {
		if p.has(b) {
			keep(p.lending, !b.reserved && (free || b.softDeleted))
			keep(p.empty, b.used == 0 && free && a.now.Sub(b.claimed) >= state.TakeoverAge)
		}
	}
}

// regained records that a block may have room again, or that its CIDR may be claimed again.
func (a *Allocator) regained(b *block) {
	a.changes[b.owner]++
	for _, c := range a.affinities[b.owner] {
		c.full = c.full && c.cidr != b.cidr
	}
}

func (a *Allocator) deleteBlock(b *block) {
	delete(a.blocks, b.cidr)
	a.owned[b.owner] = slices.DeleteFunc(a.owned[b.owner], func(o *block) bool { return o == b })
	a.regained(b)
	for _, p := range a.pools {
		if p.has(b) {
			p.remove(b)
		}
	}
}

// getBlock reads a block as Calico's client does: reading a soft-deleted block finishes its
// deletion (libcalico-go backend/k8s/resources/ipam_block.go, Get).
func (a *Allocator) getBlock(cidr netip.Prefix) *block {
	b := a.blocks[cidr]
	if b != nil && b.softDeleted {
		a.deleteBlock(b)
		return nil
	}
	return b
}

// numFree counts the assignable addresses of a block (NumFreeAddresses).
func (a *Allocator) numFree(b *block) int {
	switch {
	case b.reserved:
		return 0
	case !b.touched:
		return len(b.free)
	}
	n := 0
	for _, o := range b.free {
		if !a.reserved.Contains(b.address(o)) {
			n++
		}
	}
	return n
}

func (b *block) address(ordinal int32) netip.Addr {
	return (&blocks.Block{CIDR: b.cidr}).Address(int(ordinal))
}

// ordinal is the inverse of address. Blocks hold far fewer than 2^32 addresses, so the last
// four bytes suffice.
func (b *block) ordinal(addr netip.Addr) int32 {
	low := func(a netip.Addr) uint32 { s := a.AsSlice(); return binary.BigEndian.Uint32(s[len(s)-4:]) }
	return int32(low(addr) - low(b.cidr.Addr())) //nolint:gosec // see above
}

// take assigns the first unreserved address of a block's queue (autoAssign in
// ipam_block.go), or returns the zero address.
func (a *Allocator) take(b *block) netip.Addr {
	for i, o := range b.free {
		addr := b.address(o)
		if b.touched && a.reserved.Contains(addr) {
			continue
		}
		if i == 0 {
			b.free = b.free[1:]
		} else {
			b.free = slices.Concat(b.free[:i], b.free[i+1:])
		}
		if b.used++; b.used == 1 || len(b.free) == 0 || b.touched {
			a.changed(b)
		}
		return addr
	}
	return netip.Addr{}
}

// Release frees an address, which goes to the end of its block's queue; a free address is
// ignored. A block without an owner is deleted with its last address. So is an empty block
// in a pool that no longer selects its node (releaseIPsFromBlock,
// ensureConsistentAffinity).
func (a *Allocator) Release(cidr netip.Prefix, addr netip.Addr) {
	b := a.getBlock(cidr)
	if b == nil || slices.Contains(b.free, b.ordinal(addr)) {
		return
	}
	b.free, b.used = append(slices.Clip(b.free), b.ordinal(addr)), b.used-1
	a.changed(b)
	a.regained(b)
	if b.used == 0 && b.owner == (blocks.Owner{}) {
		a.deleteBlock(b)
		return
	}
	n := a.nodes[b.owner.Node()]
	if p := a.poolAt(b.cidr.Addr()); n != nil && p != nil && !p.SelectsNode(n.Node) && p.NodeSelection.Err == nil {
		a.releaseBlock(b.owner, cidr)
	}
}

// releaseBlock releases an empty block of an owner, and reports whether it did. If the
// block belongs to another owner, the affinity is deleted (releaseBlockAffinity).
func (a *Allocator) releaseBlock(owner blocks.Owner, cidr netip.Prefix) bool {
	c := a.getClaim(owner, cidr)
	if c == nil || owner.Name == "" {
		return false
	}
	b := a.getBlock(cidr)
	switch {
	case b == nil:
		return false
	case b.owner != owner && b.owner != (blocks.Owner{}):
		a.deleteClaim(owner, c)
		return false
	case b.used > 0:
		return false
	}
	a.deleteBlock(b)
	a.deleteClaim(owner, c)
	return true
}

// poolAt returns the first pool, by name, that contains an address (getPoolForIP).
func (a *Allocator) poolAt(addr netip.Addr) *pool {
	for _, p := range a.pools {
		if p.CIDR.Contains(addr) {
			return p
		}
	}
	return nil
}

// eligible holds the pools for a request: selecting are the pools that select the node and
// the namespace, and allowed those that also allow the use.
type eligible struct {
	selecting, allowed []*pool
	refusal            Assigned
	// mine holds the node's affinities in the allowed pools; the first full ones have no room. Both
	// are valid while the node's count of changes equals changes.
	mine          []*claim
	full, changes int
}

// eligibleKey identifies the pools of a request that names none, for one node.
type eligibleKey struct {
	family    blocks.Family
	use       blocks.Use
	namespace *blocks.Namespace
}

// Assigned is the result of a request.
type Assigned struct {
	// Addr is the assigned address, invalid if there is none. Block is its block and Owner
	// the block's owner.
	Addr  netip.Addr
	Block netip.Prefix
	Owner blocks.Owner
	// Claimed is true if the node claimed the block for this request.
	Claimed bool
	// Limit and Reason explain why the node got no address from its own blocks; empty if it
	// did.
	Limit  Limit
	Reason string
	// Again is true if the request failed on a half-deleted affinity, and removed it. A
	// retry gets further.
	Again bool
}
