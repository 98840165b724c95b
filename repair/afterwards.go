package repair

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// afterwards returns the state as it would be if steps were carried out and nothing
// else happened. It is what a plan's numbers afterwards come from.
func afterwards(st *state.State, steps []Step) *state.State {
	if len(steps) == 0 {
		return st
	}
	x := newPretence(st.Snapshot)
	for i := range steps {
		if k := KindOf(steps[i].Kind); k != nil {
			k.pretend(x, &steps[i])
		}
	}
	return state.New(x.done(), state.Options{Grace: max(st.Grace, 1)})
}

// pretence is a snapshot that steps are carried out on in memory.
type pretence struct {
	*blocks.Snapshot
	blocks                            map[string]*blocks.Block
	handles                           map[string]*blocks.Handle
	noBlocks, noAffinities, noHandles map[string]bool
	// newHandles are beside the snapshot's own, since pointers lead into its list.
	newHandles []*blocks.Handle
}

func newPretence(s *blocks.Snapshot) *pretence {
	c := s.Clone() // a State sorts what it gets, and the lists of the other one are shared
	x := &pretence{
		Snapshot: c, blocks: map[string]*blocks.Block{}, handles: map[string]*blocks.Handle{},
		noBlocks: map[string]bool{}, noAffinities: map[string]bool{}, noHandles: map[string]bool{},
	}
	for i := range c.Blocks {
		x.blocks[c.Blocks[i].Name] = &c.Blocks[i]
	}
	for i := range c.Handles {
		x.handles[c.Handles[i].Name] = &c.Handles[i]
	}
	return x
}

func (x *pretence) done() *blocks.Snapshot {
	s := x.Snapshot
	for _, h := range x.newHandles {
		s.Handles = append(s.Handles, *h)
	}
	s.Blocks = slices.DeleteFunc(s.Blocks, func(b blocks.Block) bool { return x.noBlocks[b.Name] })
	s.Affinities = slices.DeleteFunc(s.Affinities, func(a blocks.Affinity) bool { return x.noAffinities[a.Name] })
	s.Handles = slices.DeleteFunc(s.Handles, func(h blocks.Handle) bool { return x.noHandles[h.Name] })
	return s
}

// evict takes the pod of a step away, with its address.
func (x *pretence) evict(s *Step) {
	x.Workloads = slices.DeleteFunc(x.Workloads, func(w blocks.Workload) bool { return w.UID == s.Guard(GuardPodUID) })
	if b := s.Guard(GuardBlock); b != Absent {
		if p, err := netip.ParsePrefix(b); err == nil {
			x.free(blockNameAt(x.Snapshot, p), netip.MustParseAddr(s.Target.IP))
		}
	}
}

func blockNameAt(s *blocks.Snapshot, p netip.Prefix) string {
	for i := range s.Blocks {
		if s.Blocks[i].CIDR == p {
			return s.Blocks[i].Name
		}
	}
	return ""
}

// claim makes an empty block for a node, with its affinity.
func (x *pretence) claim(cidr netip.Prefix, host string) *blocks.Block {
	now, owner := x.Cluster.Taken(), blocks.Owner{Kind: blocks.HostOwner, Name: host}
	size, _ := blocks.Addresses(cidr).Int()
	b := blocks.Block{
		Meta: blocks.Meta{Name: blocks.BlockName(cidr), UID: "new", ResourceVersion: "1", Created: now, Written: now},
		CIDR: cidr, Owner: owner, Claimed: now, Sequence: 1,
	}
	for i := range size {
		b.Ordinals, b.Unallocated = append(b.Ordinals, blocks.Free), append(b.Unallocated, int32(i))
	}
	x.Blocks = append(slices.DeleteFunc(x.Blocks, func(o blocks.Block) bool { return o.CIDR == cidr }), b)
	x.Affinities = append(slices.DeleteFunc(x.Affinities, func(a blocks.Affinity) bool { return a.CIDR == cidr }), blocks.Affinity{
		Meta: blocks.Meta{Name: blocks.AffinityName(host, cidr), UID: "new", ResourceVersion: "1", Created: now, Written: now},
		CIDR: cidr, Owner: owner, State: blocks.Confirmed,
	})
	delete(x.noBlocks, b.Name)
	x.blocks = map[string]*blocks.Block{}
	for i := range x.Blocks {
		x.blocks[x.Blocks[i].Name] = &x.Blocks[i]
	}
	return x.blocks[b.Name]
}

// cordon makes a node unschedulable with a mark, or takes that back if it is empty.
func (x *pretence) cordon(name, mark string) {
	for i := range x.Nodes {
		if n := &x.Nodes[i]; n.Name == name && (mark != "" || n.Ours != "") {
			n.Unschedulable, n.Ours = mark != "", mark
		}
	}
}

func (x *pretence) dropReservation(name string) {
	x.Reservations = slices.DeleteFunc(x.Reservations, func(r blocks.Reservation) bool { return r.Name == name })
}

// count makes a handle count one address more, if the blocks record more than it says.
func (x *pretence) count(id string, cidr netip.Prefix) {
	h := x.handles[strings.ToLower(id)]
	if h == nil {
		x.addHandle(id, []blocks.HandleCount{{CIDR: cidr, Count: 1}})
		return
	}
	h.Blocks, h.Written = slices.Clone(h.Blocks), x.Cluster.Taken()
	recorded := 0
	for _, b := range x.blocks {
		for i := range b.Ordinals {
			if a := b.At(i); b.CIDR == cidr && a != nil && strings.EqualFold(a.Handle, id) {
				recorded++
			}
		}
	}
	i := slices.IndexFunc(h.Blocks, func(c blocks.HandleCount) bool { return c.CIDR == cidr })
	if i < 0 {
		h.Blocks = append(h.Blocks, blocks.HandleCount{CIDR: cidr, Count: recorded})
	} else {
		h.Blocks[i].Count = max(h.Blocks[i].Count, recorded)
	}
}

func (x *pretence) addHandle(id string, counts []blocks.HandleCount) {
	h := &blocks.Handle{Meta: blocks.Meta{Name: strings.ToLower(id), Created: x.Cluster.Taken(), Written: x.Cluster.Taken()}, ID: id, Blocks: counts}
	x.newHandles, x.handles[h.Name] = append(x.newHandles, h), h
}

// free gives an address back the way Calico does: its ordinal goes to the end of
// the queue, attributes that nothing refers to any more are dropped, and the
// handle's count is lowered (libcalico-go ipam/ipam_block.go, release, and
// ipam/ipam.go, decrementHandle).
func (x *pretence) free(name string, a netip.Addr) {
	b := x.blocks[name]
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
	gone := b.Ordinals[i]
	b.Ordinals = slices.Clone(b.Ordinals)
	b.Ordinals[i] = blocks.Free
	b.Unallocated = append(slices.Clone(b.Unallocated), int32(i))
	b.OrdinalSequences = slices.DeleteFunc(slices.Clone(b.OrdinalSequences), func(s blocks.OrdinalSequence) bool { return int(s.Ordinal) == i })
	b.Sequence++
	b.Written = x.Cluster.Taken()
	if slices.Contains(b.Ordinals, gone) || attr == nil {
		return
	}
	b.Attributes = slices.Delete(slices.Clone(b.Attributes), int(gone), int(gone)+1)
	for j, o := range b.Ordinals {
		if o > gone {
			b.Ordinals[j] = o - 1
		}
	}
}

// finishAffinity deletes an affinity that is marked, or makes it again if its host's
// block is there.
func (x *pretence) finishAffinity(s *Step) {
	cidr := prefixOf(s.Target)
	owned := slices.ContainsFunc(x.Blocks, func(b blocks.Block) bool {
		return b.CIDR == cidr && !b.SoftDeleted && b.Owner.Node() == s.Target.Node && !x.noBlocks[b.Name]
	})
	if !owned {
		x.noAffinities[s.Guard(GuardName)] = true
		return
	}
	for i := range x.Affinities {
		if a := &x.Affinities[i]; a.Name == s.Guard(GuardName) {
			a.SoftDeleted, a.State, a.UID, a.Created, a.Written = false, blocks.Confirmed, "", x.Cluster.Taken(), x.Cluster.Taken()
		}
	}
}

// uncount lowers a handle's count for a block, and drops the handle with its last.
func (x *pretence) uncount(id string, cidr netip.Prefix) {
	h := x.handles[strings.ToLower(id)]
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
		x.noHandles[h.Name] = true
	}
}
