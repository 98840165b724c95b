package state

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// ownership holds the indexes for owners and handles.
type ownership struct {
	// byCIDR holds the blocks; if several objects have the same CIDR, the first by name.
	byCIDR map[netip.Prefix]*Block
	// bits are the prefix lengths of the blocks' CIDRs, sorted.
	bits []int
	// objects counts the block objects of each CIDR that has several.
	objects map[netip.Prefix]int
	// affinities holds the affinities of each CIDR.
	affinities map[netip.Prefix][]*blocks.Affinity
	// handles maps lower-case IDs to indexes in known. The API server stores names in lower case,
	// and IDs are compared by name.
	handles map[string]int32
	known   []knownHandle
	// refs are the addresses that blocks record under handles, grouped by handle.
	refs []AllocationRef
	// of holds the index in known of each handle object.
	of []int32
	// beyond are the handles, in lower case, that malformed blocks name for ordinals beyond their
	// CIDRs.
	beyond map[string]bool
	// corrupt is true if any block contradicts itself.
	corrupt bool
}

// knownHandle is a handle that exists as an object, that blocks refer to, or both.
type knownHandle struct {
	object *blocks.Handle
	// The addresses that blocks record under the handle are the count entries of refs from first.
	first, count int32
}

func (o *ownership) refsOf(k knownHandle) []AllocationRef {
	return o.refs[k.first : k.first+k.count : k.first+k.count]
}

// place returns the index of a handle in known, and adds the handle if it is new.
func (o *ownership) place(id string) int32 {
	if n, ok := o.handles[id]; ok {
		return n
	}
	id = strings.ToLower(id)
	n, ok := o.handles[id]
	if !ok {
		n = int32(len(o.known))
		o.handles[id] = n
		o.known = append(o.known, knownHandle{})
	}
	return n
}

// AllocationRef is one allocated address.
type AllocationRef struct {
	Block   *Block
	Ordinal int
}

// Addr returns the address.
func (r AllocationRef) Addr() netip.Addr { return r.Block.Address(r.Ordinal) }

// Attributes returns the attributes of the address's allocation; nil in a corrupt block.
func (r AllocationRef) Attributes() *blocks.Attributes { return r.Block.At(r.Ordinal) }

// Kind returns the kind of use that the address is allocated to (see [UseKindOf]).
func (r AllocationRef) Kind() UseKind {
	if i := r.Block.Ordinals[r.Ordinal]; i >= 0 && int(i) < len(r.Block.kinds) {
		return r.Block.kinds[i]
	}
	return UseUnknown
}

func (st *State) indexOwnership() {
	o := &st.own
	o.byCIDR = make(map[netip.Prefix]*Block, len(st.IPBlocks))
	for _, b := range st.IPBlocks {
		o.corrupt = o.corrupt || len(b.Faults) > 0
		if i, found := slices.BinarySearch(o.bits, b.CIDR.Bits()); !found {
			o.bits = slices.Insert(o.bits, i, b.CIDR.Bits())
		}
		if o.byCIDR[b.CIDR] == nil {
			o.byCIDR[b.CIDR] = b
			continue
		}
		if o.objects == nil {
			o.objects = map[netip.Prefix]int{}
		}
		o.objects[b.CIDR] = max(o.objects[b.CIDR], 1) + 1
	}
	o.affinities = make(map[netip.Prefix][]*blocks.Affinity, len(st.Affinities))
	for i := range st.Affinities {
		a := &st.Affinities[i]
		o.affinities[a.CIDR] = append(o.affinities[a.CIDR], a)
	}
	for i := range st.Snapshot.Blocks {
		o.indexBeyond(&st.Snapshot.Blocks[i])
	}
	st.indexHandles()
}

func (st *State) indexHandles() {
	o := &st.own
	o.handles = make(map[string]int32, len(st.Handles))
	o.known = make([]knownHandle, 0, len(st.Handles))
	o.of = make([]int32, len(st.Handles))
	for i, h := range st.Handles {
		o.of[i] = o.place(h.ID)
		o.known[o.of[i]].object = h
	}
	at := make([]int32, 0, len(st.Handles)) // for each address, the index of its handle
	st.eachHandled(func(_ AllocationRef, handle string) {
		n := o.place(handle)
		o.known[n].count++
		at = append(at, n)
	})
	o.refs = make([]AllocationRef, len(at))
	first := int32(0)
	for i := range o.known {
		k := &o.known[i]
		k.first, k.count, first = first, 0, first+k.count
	}
	st.eachHandled(func(r AllocationRef, _ string) {
		k := &o.known[at[0]]
		o.refs[k.first+k.count] = r
		k.count++
		at = at[1:]
	})
}

// eachHandled calls fn for each address that a block records under a handle, with its ID.
func (st *State) eachHandled(fn func(r AllocationRef, handle string)) {
	for r := range st.allocated() {
		if attr := r.Attributes(); attr != nil && attr.Handle != "" && !attr.WindowsReserved() {
			fn(r, attr.Handle)
		}
	}
}

// allocated yields the allocated addresses, in order.
func (st *State) allocated() iter.Seq[AllocationRef] {
	return func(yield func(AllocationRef) bool) {
		for _, b := range st.IPBlocks {
			for i, o := range b.Ordinals {
				if o != blocks.Free && !yield(AllocationRef{b, i}) {
					return
				}
			}
		}
	}
}

// indexBeyond records the handles that a malformed block names for ordinals beyond its CIDR.
func (o *ownership) indexBeyond(b *blocks.Block) {
	for i := len(b.Within()); i < len(b.Ordinals); i++ {
		if attr := b.At(i); attr != nil {
			if o.beyond == nil {
				o.beyond = map[string]bool{}
			}
			o.beyond[strings.ToLower(attr.Handle)] = true
		}
	}
}

// BlockOf returns the block with exactly that CIDR, or nil.
func (st *State) BlockOf(p netip.Prefix) *Block { return st.own.byCIDR[p] }

// BlocksAt returns the blocks that overlap a CIDR, in order, wider blocks first. It includes
// blocks with the same CIDR, and every object if several share a CIDR.
func (st *State) BlocksAt(p netip.Prefix) (out []*Block) {
	p = p.Masked()
	from := func(p netip.Prefix) int {
		i, _ := slices.BinarySearchFunc(st.IPBlocks, p, func(b *Block, p netip.Prefix) int { return blocks.ComparePrefixes(b.CIDR, p) })
		return i
	}
	for _, bits := range st.own.bits {
		wider, err := p.Addr().Prefix(bits)
		if bits >= p.Bits() || err != nil {
			break
		}
		for i := from(wider); i < len(st.IPBlocks) && st.IPBlocks[i].CIDR == wider; i++ {
			out = append(out, st.IPBlocks[i])
		}
	}
	for i := from(p); i < len(st.IPBlocks) && p.Contains(st.IPBlocks[i].CIDR.Addr()); i++ {
		out = append(out, st.IPBlocks[i])
	}
	return out
}

// AffinitiesOf returns the affinities of a CIDR.
func (st *State) AffinitiesOf(p netip.Prefix) []*blocks.Affinity { return st.own.affinities[p] }

// Handle returns the handle with an ID, or nil.
func (st *State) Handle(id string) *blocks.Handle { return st.knownHandle(id).object }

// HandleRefs returns the addresses that blocks record under a handle.
func (st *State) HandleRefs(id string) []AllocationRef { return st.own.refsOf(st.knownHandle(id)) }

func (st *State) knownHandle(id string) knownHandle {
	if n, ok := st.own.handles[strings.ToLower(id)]; ok {
		return st.own.known[n]
	}
	return knownHandle{}
}

// EachHandle calls fn for each handle, in order, with the addresses that blocks record under it.
func (st *State) EachHandle(fn func(*blocks.Handle, []AllocationRef)) {
	for i, h := range st.Handles {
		fn(h, st.own.refsOf(st.own.known[st.own.of[i]]))
	}
}

// EachMissingHandle calls fn for each handle that blocks refer to and that does not exist, in
// order of ID, with the addresses recorded under it.
func (st *State) EachMissingHandle(fn func(id string, refs []AllocationRef)) {
	var ids []string // in lower case
	for i := range st.own.known {
		if k := &st.own.known[i]; k.object == nil {
			ids = append(ids, strings.ToLower(st.own.refs[k.first].Attributes().Handle))
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		fn(id, st.HandleRefs(id))
	}
}

// Allocation returns the allocation of an address, and false if no block records it. If several
// overlapping blocks record it, the most specific one counts.
func (st *State) Allocation(a netip.Addr) (AllocationRef, bool) {
	for bits := a.BitLen(); bits >= 0; bits-- {
		p, err := a.Prefix(bits)
		if err != nil {
			continue
		}
		b := st.own.byCIDR[p]
		if b == nil {
			continue
		}
		if i, ok := b.Ordinal(a); ok && b.Ordinals[i] != blocks.Free {
			return AllocationRef{b, i}, true
		}
	}
	return AllocationRef{}, false
}

// BlockMayCover reports whether an undecodable block may have that CIDR or overlap it.
func (st *State) BlockMayCover(p netip.Prefix) bool {
	return slices.ContainsFunc(st.Unreadable(blocks.Blocks), func(g blocks.Gap) bool { return !g.Prefix.IsValid() || g.Prefix.Overlaps(p) })
}

// NodesRead reports whether the list of nodes was read completely.
func (st *State) NodesRead() bool {
	_, missing := st.Missing(blocks.Nodes)
	return !missing
}

// Vanished reports whether a node no longer exists, as far as nodes could be read.
func (st *State) Vanished(host string) bool {
	h := st.nodeStates[host]
	return host != "" && (h == nil || h.Node == nil) && !st.UnreadableNode(host)
}

// NoNode explains that a node does not exist, or why that is not known.
func (st *State) NoNode(name string) string {
	gap, unread := st.Missing(blocks.Nodes)
	switch {
	case unread:
		return "whether the node exists is not known: " + gap.String()
	case st.UnreadableNode(name):
		return "the node could not be read"
	}
	return fmt.Sprintf("no node %s exists", name)
}

// BareOrNil returns the block as it was read; nil for nil.
func BareOrNil(b *Block) *blocks.Block {
	if b == nil {
		return nil
	}
	return b.Block
}

// AttributesIf returns the attributes if the address is allocated, else nil.
func (r AllocationRef) AttributesIf(allocated bool) *blocks.Attributes {
	if !allocated {
		return nil
	}
	return r.Attributes()
}

// ClaimedBy reports whether a node has an affinity object for a block, in any state. An affinity
// that has been marked deleted for the grace does not count: Calico no longer lists it.
func (st *State) ClaimedBy(b *Block, host string) bool {
	return slices.ContainsFunc(st.AffinitiesOf(b.CIDR), func(a *blocks.Affinity) bool {
		return a.Owner.Node() == host && (!a.SoftDeleted || !st.OldEnough(a.Meta))
	})
}

// AffinityMayExist reports whether an affinity that could not be decoded may be for a CIDR and
// one of the given nodes; without nodes, for any node.
func (st *State) AffinityMayExist(p netip.Prefix, hosts ...string) bool {
	return slices.ContainsFunc(st.Unreadable(blocks.Affinities), func(g blocks.Gap) bool {
		return (!g.OwnerKnown || len(hosts) == 0 || slices.Contains(hosts, g.Owner.Node())) && (!g.Prefix.IsValid() || g.Prefix == p)
	})
}

// FirstMissing returns the gap of the first given resource that was not read completely, or nil.
func (st *State) FirstMissing(rs []blocks.Resource) *blocks.Gap {
	for _, r := range rs {
		if g, missing := st.Missing(r); missing {
			return &g
		}
	}
	return nil
}

// UnreadableNode reports whether a node exists but could not be decoded.
func (st *State) UnreadableNode(name string) bool {
	return slices.ContainsFunc(st.Unreadable(blocks.Nodes), func(g blocks.Gap) bool { return g.Name == name })
}

// BlockObjects returns how many block objects have exactly that CIDR. If there are several, no
// verdict on the CIDR can be relied on.
func (st *State) BlockObjects(p blocks.Prefix) int {
	if st.own.byCIDR[p] == nil {
		return 0
	}
	return max(st.own.objects[p], 1)
}
