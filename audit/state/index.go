package state

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// ownership is what the checks of owners and handles look things up in.
type ownership struct {
	// byCIDR holds the blocks; of several objects of one CIDR the first by name.
	byCIDR map[netip.Prefix]*Block
	// objects counts the block objects of CIDRs that have several.
	objects map[netip.Prefix]int
	// claims holds the affinities of each CIDR.
	claims map[netip.Prefix][]*blocks.Affinity
	// handles are the handle objects, by ID in lower case: the API server keeps
	// names in lower case, and IDs are compared by name.
	handles map[string]*blocks.Handle
	// refs are the addresses that blocks record under each handle.
	refs map[string][]AllocationRef
	// beyond are the handles that malformed blocks name for what lies beyond their
	// CIDRs, in lower case.
	beyond map[string]bool
}

// AllocationRef is one allocated address.
type AllocationRef struct {
	Block   *Block
	Ordinal int
}

// Addr returns the address.
func (r AllocationRef) Addr() netip.Addr { return r.Block.Address(r.Ordinal) }

// Attributes returns what the address is allocated to; nil in a corrupt block.
func (r AllocationRef) Attributes() *blocks.Attributes { return r.Block.At(r.Ordinal) }

func (st *State) indexOwnership() {
	o := &st.own
	o.byCIDR = make(map[netip.Prefix]*Block, len(st.IPBlocks))
	for _, b := range st.IPBlocks {
		if o.byCIDR[b.CIDR] == nil {
			o.byCIDR[b.CIDR] = b
			continue
		}
		if o.objects == nil {
			o.objects = map[netip.Prefix]int{}
		}
		o.objects[b.CIDR] = max(o.objects[b.CIDR], 1) + 1
	}
	o.claims = make(map[netip.Prefix][]*blocks.Affinity, len(st.Affinities))
	for i := range st.Affinities {
		a := &st.Affinities[i]
		o.claims[a.CIDR] = append(o.claims[a.CIDR], a)
	}
	o.handles = make(map[string]*blocks.Handle, len(st.Handles))
	for i := range st.Handles {
		o.handles[strings.ToLower(st.Handles[i].ID)] = &st.Handles[i]
	}
	for i := range st.Snapshot.Blocks {
		o.indexBeyond(&st.Snapshot.Blocks[i])
	}
	o.refs = make(map[string][]AllocationRef, len(st.Handles))
	for _, b := range st.IPBlocks {
		for i := range b.Ordinals {
			if b.Ordinals[i] == blocks.Free {
				continue
			}
			if attr := b.At(i); attr != nil && attr.Handle != "" && !attr.WindowsReserved() {
				id := strings.ToLower(attr.Handle)
				o.refs[id] = append(o.refs[id], AllocationRef{b, i})
			}
		}
	}
}

// indexBeyond records the handles that a malformed block names for ordinals
// that its CIDR has no address for.
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

// BlockOf returns the block of exactly that CIDR, or nil.
func (st *State) BlockOf(p netip.Prefix) *Block { return st.own.byCIDR[p] }

// AffinitiesOf returns the affinities of a CIDR.
func (st *State) AffinitiesOf(p netip.Prefix) []*blocks.Affinity { return st.own.claims[p] }

// Handle returns the handle of an ID, or nil.
func (st *State) Handle(id string) *blocks.Handle { return byHandle(st.own.handles, id) }

// ReferencedHandles returns the IDs of the handles that blocks refer to, in lower case,
// in order.
func (st *State) ReferencedHandles() []string {
	ids := slices.AppendSeq(make([]string, 0, len(st.own.refs)), maps.Keys(st.own.refs))
	slices.Sort(ids)
	return ids
}

// HandleRefs returns the addresses that blocks record under a handle.
func (st *State) HandleRefs(id string) []AllocationRef { return byHandle(st.own.refs, id) }

// byHandle looks up a handle's ID among those in lower case, which nearly all are as they
// stand.
func byHandle[V any](of map[string]V, id string) V {
	if v, ok := of[id]; ok {
		return v
	}
	return of[strings.ToLower(id)]
}

// Allocation returns the allocation of an address: of several overlapping
// blocks, that of the first that records it. False if no block records it.
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

// BlockMayCover reports whether a block that could not be understood may be the
// one of a CIDR or hold a part of it.
func (st *State) BlockMayCover(p netip.Prefix) bool {
	for _, g := range st.Unreadable(blocks.Blocks) {
		if !g.Prefix.IsValid() || g.Prefix.Overlaps(p) {
			return true
		}
	}
	return false
}

// NodesRead reports whether nodes were read whole.
func (st *State) NodesRead() bool {
	_, missing := st.Missing(blocks.Nodes)
	return !missing
}

// Vanished reports whether a host no longer exists, as far as nodes could be read.
func (st *State) Vanished(host string) bool {
	h := st.nodeStates[host]
	return host != "" && (h == nil || h.Node == nil) && !st.UnreadableNode(host)
}

// BareOrNil returns what was read of a block; nil for none.
func BareOrNil(b *Block) *blocks.Block {
	if b == nil {
		return nil
	}
	return b.Block
}

// AttributesIf returns the attributes of an allocation that there is.
func (r AllocationRef) AttributesIf(allocated bool) *blocks.Attributes {
	if !allocated {
		return nil
	}
	return r.Attributes()
}

// ClaimedBy reports whether a host has an affinity object for a block, whatever
// its state. One that stays marked deleted is none: Calico no longer lists it.
func (st *State) ClaimedBy(b *Block, host string) bool {
	for _, a := range st.AffinitiesOf(b.CIDR) {
		if a.Owner.Node() == host && (!a.SoftDeleted || !st.OldEnough(a.Meta)) {
			return true
		}
	}
	return false
}

// AffinityMayExist reports whether an affinity that could not be understood may be
// a host's for a block.
func (st *State) AffinityMayExist(b *Block, host string) bool {
	for _, g := range st.Unreadable(blocks.Affinities) {
		if (!g.OwnerKnown || g.Owner.Node() == host) && (!g.Prefix.IsValid() || g.Prefix == b.CIDR) {
			return true
		}
	}
	return false
}

// FirstMissing returns the first of some resources that was not read whole, or nil.
func (st *State) FirstMissing(rs []blocks.Resource) *blocks.Gap {
	for _, r := range rs {
		if g, missing := st.Missing(r); missing {
			return &g
		}
	}
	return nil
}

// UnreadableNode reports whether a node exists but could not be understood.
func (st *State) UnreadableNode(name string) bool {
	for _, g := range st.Unreadable(blocks.Nodes) {
		if g.Name == name {
			return true
		}
	}
	return false
}

// BlockObjects returns how many block objects of exactly that CIDR exist. No
// verdict on a CIDR can rest on more than one.
func (st *State) BlockObjects(p blocks.Prefix) int {
	if st.own.byCIDR[p] == nil {
		return 0
	}
	return max(st.own.objects[p], 1)
}
