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

// An Allocator is the IPAM objects of a state, kept in memory, and Calico's rules for
// handing out addresses of them. It never changes the state.
type Allocator struct {
	config   blocks.IPAMConfig
	reserved blocks.ReservedSet
	// pools are those that hand out addresses, by name, which is the order in which Calico
	// tries them.
	pools []*pool
	nodes map[string]*node
	// blocks are all that exist; owned those of each owner, in no order.
	blocks     map[netip.Prefix]*block
	owned      map[blocks.Owner][]*block
	affinities map[blocks.Owner][]*claim
	// changes counts, by owner, what may have a node find other blocks of its own than before.
	changes map[blocks.Owner]int
	// most is the largest number of blocks with which a node asked for a further one.
	most int
	// queues are those of blocks without allocations, by their size.
	queues map[int][]int32
	// reclaims is true from v3.32 on, which takes empty blocks of other nodes; labelled
	// from v3.31 on, which sees only affinities that carry the labels it writes.
	reclaims, labelled bool
	now                time.Time
	starts             starts
}

// node is a node, with what was found out about it once.
type node struct {
	*blocks.Node
	eligible map[eligibleKey]*eligible
}

func (n *node) owner() blocks.Owner { return blocks.Owner{Kind: blocks.HostOwner, Name: n.Name} }

// block is an IPAMBlock.
type block struct {
	cidr  netip.Prefix
	owner blocks.Owner
	// free are the ordinals that may be handed out, in the order in which they are. It may
	// be shared with the snapshot: its elements are never changed.
	free []int32
	// used counts the allocated addresses, but for those that Windows keeps back.
	used int
	// reserved is true if all addresses are reserved, touched if some are.
	reserved, touched bool
	softDeleted       bool
	claimed           time.Time
}

// claim is a BlockAffinity.
type claim struct {
	name string
	cidr netip.Prefix
	// confirmed is true also for one without a state, which unstated tells apart.
	confirmed, unstated     bool
	softDeleted, unlabelled bool
	// full is true once its block was seen to have no room, until that has again.
	full bool
}

// NewAllocator returns an Allocator that starts from a state.
func NewAllocator(st *state.State) *Allocator {
	return newAllocator(st, st.Pools, st.IPAM, starts{}, nil)
}

// newAllocator returns an Allocator that starts from a state, with pools and settings
// that may be others than the state's.
// without, if not nil, says of which CIDRs neither blocks nor affinities are there.
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
		if without(b.CIDR) {
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

// attributes returns what an ordinal is allocated to, or nil.
func attributes(b *state.Block, ordinal int) *blocks.Attributes {
	if b.Ordinals[ordinal] == blocks.Free {
		return nil
	}
	return b.At(ordinal)
}

// AddNode adds a node that has nothing yet.
func (a *Allocator) AddNode(n *blocks.Node) {
	a.nodes[n.Name] = &node{Node: n, eligible: map[eligibleKey]*eligible{}}
}

// addPool adds a pool, in the order of names.
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

// write notes that Calico writes an affinity, which gives it the labels that it lacks
// (libcalico-go backend/k8s/resources/ipam_affinity.go, updateV3).
func (a *Allocator) write(owner blocks.Owner, c *claim) {
	c.unlabelled, c.unstated = false, false
	a.changes[owner]++
}

func (a *Allocator) deleteClaim(owner blocks.Owner, c *claim) {
	a.affinities[owner] = slices.DeleteFunc(a.affinities[owner], func(d *claim) bool { return d == c })
	a.changes[owner]++
}

// getClaim reads an affinity as Calico's client does: reading one whose deletion was begun
// ends it (libcalico-go backend/k8s/resources/ipam_affinity.go, getV1).
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

// changed notes which use a block is to others after its addresses changed. What lies
// within a minute before now stays too young to be taken: the clock does not go on.
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

// regained notes that a block may have room again, also because it is gone and may be made
// again.
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

// getBlock reads a block as Calico's client does: reading one whose deletion was begun
// ends it (libcalico-go backend/k8s/resources/ipam_block.go, Get).
func (a *Allocator) getBlock(cidr netip.Prefix) *block {
	b := a.blocks[cidr]
	if b != nil && b.softDeleted {
		a.deleteBlock(b)
		return nil
	}
	return b
}

// numFree counts the addresses of a block that may be handed out (NumFreeAddresses).
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

// ordinal is the reverse of address. A block holds far less than 2^32 addresses, so that
// the last four bytes tell all.
func (b *block) ordinal(addr netip.Addr) int32 {
	low := func(a netip.Addr) uint32 { s := a.AsSlice(); return binary.BigEndian.Uint32(s[len(s)-4:]) }
	return int32(low(addr) - low(b.cidr.Addr())) //nolint:gosec // see above
}

// take hands out the first address of a block's queue that is not reserved (autoAssign
// in ipam_block.go); the zero address if there is none.
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

// Release gives an address back, which goes to the end of its block's queue; one that is not
// allocated is left alone. A block without owner goes with its last address, and so does an
// empty one in a pool that no longer selects its node (releaseIPsFromBlock, ensureConsistentAffinity).
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

// releaseBlock gives an empty block of an owner up, and reports whether it is gone. An
// affinity of a block that is another's goes, too (releaseBlockAffinity).
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

// poolAt returns the first pool, by name, that an address lies in (getPoolForIP).
func (a *Allocator) poolAt(addr netip.Addr) *pool {
	for _, p := range a.pools {
		if p.CIDR.Contains(addr) {
			return p
		}
	}
	return nil
}
