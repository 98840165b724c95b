package repair

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// Pretence is a snapshot on which steps are carried out in memory.
type Pretence struct {
	*blocks.Snapshot
	BlockByName                       map[string]*blocks.Block
	HandleByName                      map[string]*blocks.Handle
	NoBlocks, NoAffinities, NoHandles map[string]bool
	claimed                           []*blocks.Block // added to the snapshot by Done
}

// NewPretence returns a pretence on a copy of the snapshot.
func NewPretence(s *blocks.Snapshot) *Pretence {
	c := s.Clone() // a State sorts its snapshot, and the other State shares these lists
	x := &Pretence{
		Snapshot: c, BlockByName: map[string]*blocks.Block{}, HandleByName: map[string]*blocks.Handle{},
		NoBlocks: map[string]bool{}, NoAffinities: map[string]bool{}, NoHandles: map[string]bool{},
	}
	for i := range c.Blocks {
		x.BlockByName[c.Blocks[i].Name] = &c.Blocks[i]
	}
	for i, h := range c.Handles {
		own := *h
		c.Handles[i], x.HandleByName[strings.ToLower(h.Name)] = &own, &own
	}
	return x
}

// Done returns the snapshot with all pretended changes.
func (x *Pretence) Done() *blocks.Snapshot {
	s := x.Snapshot
	for _, b := range x.claimed {
		s.Blocks = append(s.Blocks, *b)
	}
	s.Blocks = slices.DeleteFunc(s.Blocks, func(b blocks.Block) bool { return x.NoBlocks[b.Name] })
	s.Affinities = slices.DeleteFunc(s.Affinities, func(a blocks.Affinity) bool { return x.NoAffinities[a.Name] })
	s.Handles = slices.DeleteFunc(s.Handles, func(h *blocks.Handle) bool { return x.NoHandles[h.Name] })
	return s
}

// Count raises a handle's count for a block by one if the block records more addresses
// than the handle counts.
func (x *Pretence) Count(id string, b *blocks.Block) {
	h := x.HandleByName[strings.ToLower(id)]
	if h == nil {
		x.AddHandle(id, []blocks.HandleCount{{CIDR: b.CIDR, Count: 1}})
		return
	}
	if x.NoHandles[h.Name] { // a release deleted it, and the next address creates it again
		h.Blocks = nil
		delete(x.NoHandles, h.Name)
	}
	h.Blocks, h.Written = slices.Clone(h.Blocks), x.Cluster.Taken()
	recorded := 0
	for i := range b.Ordinals {
		if a := b.At(i); a != nil && strings.EqualFold(a.Handle, id) {
			recorded++
		}
	}
	i := slices.IndexFunc(h.Blocks, func(c blocks.HandleCount) bool { return c.CIDR == b.CIDR })
	if i < 0 {
		h.Blocks = append(h.Blocks, blocks.HandleCount{CIDR: b.CIDR, Count: recorded})
	} else {
		h.Blocks[i].Count = max(h.Blocks[i].Count, recorded)
	}
}

// AddHandle adds a handle with counts.
func (x *Pretence) AddHandle(id string, counts []blocks.HandleCount) {
	h := &blocks.Handle{Meta: blocks.Meta{Name: strings.ToLower(id), Created: x.Cluster.Taken(), Written: x.Cluster.Taken()}, ID: id, Blocks: counts}
	x.Handles, x.HandleByName[h.Name] = append(x.Handles, h), h
}

// Free releases an address as Calico does: its ordinal moves to the end of the queue,
// unreferenced attributes are removed, and the handle's count is lowered (libcalico-go
// ipam/ipam_block.go, release, and ipam/ipam.go, decrementHandle).
func (x *Pretence) Free(name string, a netip.Addr) {
	b := x.BlockByName[name]
	if b == nil {
		return
	}
	i, ok := b.Ordinal(a)
	if !ok || b.Ordinals[i] == blocks.Free {
		return
	}
	attr := b.At(i)
	if attr != nil {
		x.uncount(attr.Handle, b.CIDR)
	}
	removed := b.Ordinals[i]
	b.Ordinals = slices.Clone(b.Ordinals)
	b.Ordinals[i] = blocks.Free
	b.Unallocated = append(slices.Clone(b.Unallocated), int32(i))
	b.OrdinalSequences = slices.DeleteFunc(slices.Clone(b.OrdinalSequences), func(s blocks.OrdinalSequence) bool { return int(s.Ordinal) == i })
	b.Sequence++
	b.Written = x.Cluster.Taken()
	if slices.Contains(b.Ordinals, removed) || attr == nil {
		return
	}
	b.Attributes = slices.Delete(slices.Clone(b.Attributes), int(removed), int(removed)+1)
	for j, o := range b.Ordinals {
		if o > removed {
			b.Ordinals[j] = o - 1
		}
	}
}

// Cool releases an address as Calico does where released addresses have a cooldown: the address
// stays allocated, without a handle, until the cooldown ends.
func (x *Pretence) Cool(name string, a netip.Addr) {
	x.Free(name, a)
	b := x.BlockByName[name]
	if b == nil {
		return
	}
	i, ok := b.Ordinal(a)
	if !ok || b.Ordinals[i] != blocks.Free {
		return
	}
	b.Ordinals[i], b.Attributes = int32(len(b.Attributes)), append(slices.Clone(b.Attributes), blocks.Attributes{Extra: &blocks.AttributesExtra{Released: x.Cluster.Taken()}})
	b.Unallocated = slices.DeleteFunc(b.Unallocated, func(o int32) bool { return int(o) == i })
}

// uncount lowers a handle's count for a block, and removes a handle without counts.
func (x *Pretence) uncount(id string, cidr netip.Prefix) {
	h := x.HandleByName[strings.ToLower(id)]
	if h == nil {
		return
	}
	h.Blocks = slices.Clone(h.Blocks)
	h.Written = x.Cluster.Taken()
	if i := slices.IndexFunc(h.Blocks, func(c blocks.HandleCount) bool { return c.CIDR == cidr }); i >= 0 {
		if h.Blocks[i].Count--; h.Blocks[i].Count <= 0 {
			h.Blocks = slices.Delete(h.Blocks, i, i+1)
		}
	}
	if len(h.Blocks) == 0 {
		x.NoHandles[h.Name] = true
	}
}

// Claim creates an empty block for a node, with its affinity.
func (x *Pretence) Claim(cidr netip.Prefix, host string) *blocks.Block {
	now, owner := x.Cluster.Taken(), blocks.Owner{Kind: blocks.HostOwner, Name: host}
	size, _ := blocks.Addresses(cidr).Int()
	b := &blocks.Block{
		Meta: blocks.Meta{Name: blocks.BlockName(cidr), Pin: blocks.PinOf("new", "1"), Created: now, Written: now},
		CIDR: cidr, Owner: owner, Claimed: now, Sequence: 1,
	}
	for i := range size {
		b.Ordinals, b.Unallocated = append(b.Ordinals, blocks.Free), append(b.Unallocated, int32(i))
	}
	for i := range x.Blocks {
		if o := &x.Blocks[i]; o.CIDR == cidr {
			x.NoBlocks[o.Name] = true
		}
	}
	if old := x.BlockByName[b.Name]; old != nil {
		*old, b = *b, old
	} else {
		x.BlockByName[b.Name], x.claimed = b, append(x.claimed, b)
	}
	x.Affinities = append(slices.DeleteFunc(x.Affinities, func(a blocks.Affinity) bool { return a.CIDR == cidr }), blocks.Affinity{
		Meta: blocks.Meta{Name: blocks.AffinityName(host, cidr), Pin: blocks.PinOf("new", "1"), Created: now, Written: now},
		CIDR: cidr, Owner: owner, State: blocks.Confirmed,
	})
	delete(x.NoBlocks, b.Name)
	return b
}

// Cordon cordons a node with a mark. An empty mark removes the cordon.
func (x *Pretence) Cordon(name, mark string) {
	for i := range x.Nodes {
		if n := &x.Nodes[i]; n.Name == name && (mark != "" || n.Ours != "") {
			n.Unschedulable, n.Ours = mark != "", mark
		}
	}
}
