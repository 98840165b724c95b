package state

import (
	"github.com/calico-audit/calico-audit/blocks"
)

// Releasability is whether an empty block may be released now and, if not, why.
type Releasability struct {
	OK bool
	// Bar is why the block must stay; none if OK.
	Bar
	// After is the verdict once the block is old enough, if the block is kept for its age. It is
	// nil if no other reason exists.
	After *Releasability
	// EmptySince is when the block was last written or claimed, so it has been empty at least
	// since then; zero if unknown.
	EmptySince blocks.Time
	// Instead are the pools from which the block's node can claim another block, if all blocks that
	// it would keep there are full. It is nil if the node keeps a block with room.
	Instead []*Pool
}

// ReleaseReads are the reads that every verdict on releasable blocks needs.
var ReleaseReads = []blocks.Resource{
	blocks.Pools, blocks.Blocks, blocks.Affinities, blocks.Nodes, blocks.Pods, blocks.Namespaces, blocks.IPAMConfigs, blocks.ClusterInfos,
	blocks.Reservations,
}

// ReleasableKnown reports whether all reads that verdicts on empty blocks need are complete.
func (st *State) ReleasableKnown() bool { return st.Lacking(ReleaseReads) == nil }

func (st *State) evaluateEmptyBlocks() {
	missing := st.Lacking(ReleaseReads)
	for _, b := range st.IPBlocks {
		if b.Used > 0 {
			continue
		}
		b.Releasability = st.evaluateAlone(b)
		if missing != nil {
			b.Releasability.retain(RetainNotRead, "not evaluated: %s", missing)
		}
	}
	further := Derived(st, countSupply)
	for _, h := range st.NodeStates {
		if h.Node != nil {
			st.lastBlocks(h, nil, further, func(b *Block, why string) { b.Releasability.retain(RetainLast, "%s", why) })
		}
	}
	for _, b := range st.IPBlocks {
		if further.savedForOthers(b) {
			b.Releasability.retain(RetainHeals, "Calico %s gives it to a node that finds no other block; once released, another node could claim it first", st.Cluster.CalicoVersion)
		}
		b.Releasability.OK = b.Used == 0 && b.Releasability.Reason == ""
	}
}

// evaluateAlone evaluates an empty block without regard to its owner's other blocks.
func (st *State) evaluateAlone(b *Block) Releasability {
	r := Releasability{}
	since, known := b.LastTouch()
	known = known && !st.takenAt.IsZero() && st.reached(since)
	if known {
		r.EmptySince = since
	}
	since = since.Later(b.Created)
	st.retainAsItIs(b, &r)
	switch {
	case r.Reason != "":
	case since.After(st.takenAt) && !st.takenAt.IsZero():
		r.retain(RetainUnknownAge, "its age is unknown: it was last written in the future, at %s", since)
	case !known && !st.Cluster.Ageless: // else a repair observes it twice
		r.retain(RetainUnknownAge, "its age is unknown: nothing records when it was last written (kubectl hides managedFields unless asked with --show-managed-fields)")
	case !st.PastGrace(since):
		r.retain(RetainYoung, "it was written at %s, within the grace period", since)
		r.Due = st.Due(since)
	}
	if who := st.UnrecordedUser(b.CIDR); who != "" {
		r.retain(RetainInUse, "%s, although the block does not record it", who)
	}
	st.RetainForOthers(b, st.Views.ContradictFree(b.Block), &r)
	return r
}

// retainAsItIs retains a block for its own properties, regardless of its age and uses.
func (st *State) retainAsItIs(b *Block, r *Releasability) {
	switch special := OwnerBar(b.Owner); {
	case b.Owner != (blocks.Owner{}) && special.Code != "":
		r.Bar = special
	case b.SoftDeleted && b.ByUs:
		r.retain(RetainMarked, "it is marked deleted already: a repair by calico-audit did not finish, which \"repair --soft-deleted\" does")
	case b.SoftDeleted:
		r.retain(RetainMarked, "it is marked deleted already")
	case len(b.Faults) > 0:
		r.retain(RetainCorrupt, "it is corrupt: %s", b.Faults[0])
	case st.Info.Locked:
		r.retain(RetainLocked, "the datastore is locked")
	case !st.IPAM.AutoAllocateBlocks:
		r.retain(RetainNoAuto, "automatic blocks are off (autoAllocateBlocks: false), so no node would claim it again")
	}
}

// IfEmptied is the verdict on a block after all its addresses are released and the grace has
// passed, if nothing else changes.
func (st *State) IfEmptied(b *Block) Releasability {
	r := Releasability{}
	st.retainAsItIs(b, &r)
	st.RetainForOthers(b, nil, &r)
	if missing := st.Lacking(ReleaseReads); missing != nil {
		r.retain(RetainNotRead, "not evaluated: %s", missing)
	}
	if h := st.nodeStates[b.Owner.Node()]; h != nil && h.Node != nil {
		st.lastBlocks(h, b, nil, func(last *Block, why string) {
			if last == b {
				r.retain(RetainLast, "%s", why)
			}
		})
	}
	r.OK = r.Reason == ""
	return r
}

// lastBlocks calls keep for the empty blocks that a node must keep, with the reason. The node keeps
// one usable block for each set of pools that its pods may use, and one more if other nodes may
// take that block, or all if it is not known which. The block emptied, if not nil, counts as empty.
// If further is not nil, a node needs no block as long as it can claim one.
func (st *State) lastBlocks(h *NodeState, emptied *Block, further *supply, keep func(b *Block, why string)) {
	kept, unsure := map[*Block]bool{}, further != nil && further.unknown
	one := func(pools []*Pool, why string) {
		for safe := false; ; safe = !unsure { // again, without blocks that other nodes may take
			b, full := st.lastBlock(h, emptied, kept, further, func(b *Block) bool {
				return within(pools, b.CIDR) && (!unsure || !kept[b]) && (!safe || !further.mayTake(b))
			})
			if b == nil || full && !safe && further.allow(h, b, pools) {
				return
			}
			kept[b] = true
			if keep(b, why); !unsure && (safe || !further.mayTake(b)) {
				return
			}
			why = "it may become its node's last block"
		}
	}
	st.eachPodPools(h, one)
}

// lastBlock returns the host's lowest empty block in a set, unless the host keeps another one that
// is as good, which is in use or in kept. Blocks are ranked, best first: with room and a confirmed
// affinity, and safe from other nodes; the same, but another node may take it; with an affinity
// that is pending or may disappear at any moment; with room but no affinity, which can be restored,
// first those of the pool's size, because the node finds them without one; merely usable. full
// reports whether the set has blocks in use without room.
func (st *State) lastBlock(h *NodeState, emptied *Block, kept map[*Block]bool, further *supply, member func(*Block) bool) (last *Block, full bool) {
	free := func(b *Block) bool { return b.Usable() && (b == emptied || st.hasFree(b)) }
	settled := func(b *Block) bool {
		a := st.ownAffinity(b)
		return free(b) && st.HasAffinityOrNone(b) && (a == nil || a.Effective() == blocks.Confirmed)
	}
	for _, good := range []func(*Block) bool{
		func(b *Block) bool { return settled(b) && !further.mayTake(b) }, settled,
		func(b *Block) bool { return free(b) && st.HasAffinityOrNone(b) },
		func(b *Block) bool { return free(b) && b.Pool != nil && b.CIDR.Bits() == b.Pool.BlockSize }, free, (*Block).Usable,
	} {
		for _, b := range h.Blocks {
			inUse := b.Used > 0 && b != emptied
			switch {
			case !member(b) || !b.Usable():
			case inUse && !st.hasFree(b):
				full = full || st.HasAffinityOrNone(b) && !st.Reserved.Covers(b.CIDR)
			case !good(b):
			case inUse || kept[b]:
				return nil, false
			case last == nil:
				last = b
			}
		}
		if last != nil {
			return last, full
		}
	}
	return nil, full
}

// Keepable reports whether a node's next pod can get an address from its block.
func (st *State) Keepable(b *Block) bool { return st.AssignsFrom(b) && st.hasFree(b) }

// AssignsFrom reports whether a node assigns the free addresses of its block: one object describes
// the block, which is usable, and its owner has an affinity to it.
func (st *State) AssignsFrom(b *Block) bool {
	return b.Usable() && st.HasAffinityOrNone(b) && st.BlockObjects(b.CIDR) == 1
}

// HasAffinityOrNone reports whether a block's owner has an affinity to it that Calico's allocator
// finds. Files without any affinity lack the kind, so there a block of the pool's size needs none.
func (st *State) HasAffinityOrNone(b *Block) bool {
	a := st.ownAffinity(b)
	return len(st.Affinities) == 0 && (b.Pool == nil || b.CIDR.Bits() == b.Pool.BlockSize) || a != nil && st.seen(a)
}

// seen reports whether Calico's allocator finds an affinity. From v3.31 on, it lists affinities by
// the labels that Calico writes.
func (st *State) seen(a *blocks.Affinity) bool {
	return !a.SoftDeleted && (!a.Unlabelled || !blocks.CalicoAtLeast(st.Cluster.CalicoVersion, 3, 31))
}

// ownAffinity returns the affinity of a block's owner to it, unless it is marked deleted; nil if
// there is none.
func (st *State) ownAffinity(b *Block) *blocks.Affinity {
	for _, a := range st.AffinitiesOf(b.CIDR) {
		if a.Owner == b.Owner && !a.SoftDeleted {
			return a
		}
	}
	return nil
}
