package state

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
)

// Reclaimability is the verdict on an empty block: whether it may be released now and,
// if not, why it is held.
type Reclaimability struct {
	OK bool
	// Bar is why the block stays; none if OK.
	Bar
	// After is the verdict once the block is old enough, where its age is what holds it;
	// nil if nothing does then.
	After *Reclaimability
	// EmptySince is when the block was last written or claimed, which is the latest time
	// at which it can have become empty; zero if unknown.
	EmptySince blocks.Time
}

// ReleaseReads are the reads without which no block may be called releasable.
var ReleaseReads = []blocks.Resource{
	blocks.Pools, blocks.Blocks, blocks.Affinities, blocks.Nodes, blocks.Pods, blocks.Namespaces, blocks.IPAMConfigs, blocks.ClusterInfos,
	blocks.Reservations,
}

// ReclaimableKnown reports whether all was read that the verdict on empty blocks
// needs.
func (st *State) ReclaimableKnown() bool { return st.FirstMissing(ReleaseReads) == nil }

// flannelLabel marks nodes on their way from Flannel to Calico; Calico's own
// collector leaves their blocks alone (kube-controllers
// pkg/controllers/flannelmigration).
const flannelLabel, flannelDone = "projectcalico.org/node-network-during-migration", "calico"

func (st *State) evaluateEmptyBlocks() {
	missing := st.FirstMissing(ReleaseReads)
	for _, b := range st.IPBlocks {
		if b.Used > 0 {
			continue
		}
		b.Reclaimability = st.evaluateAlone(b)
		if missing != nil {
			b.Reclaimability.retain(RetainNotRead, "not evaluated: %s", missing)
		}
	}
	for _, h := range st.NodeStates {
		if h.Node != nil {
			st.lastBlocks(h, nil, func(b *Block, why string) { b.Reclaimability.retain(RetainLast, "%s", why) })
		}
	}
	for _, b := range st.IPBlocks {
		b.Reclaimability.OK = b.Used == 0 && b.Reclaimability.Reason == ""
	}
}

// evaluateAlone evaluates an empty block without regard to its owner's other blocks.
func (st *State) evaluateAlone(b *Block) Reclaimability {
	r := Reclaimability{}
	since, known := b.lastTouch()
	known = known && !st.takenAt.IsZero() && st.reached(since)
	if known {
		r.EmptySince = since
	}
	st.retainAsItIs(b, &r)
	switch {
	case r.Reason != "":
	case since.After(st.takenAt) && !st.takenAt.IsZero():
		r.retain(RetainUnknownAge, "its age is unknown: it was last written in the future, at %s", phrase.Time(since))
	case !known:
		r.retain(RetainUnknownAge, "its age is unknown: nothing records when it was last written (kubectl hides managedFields unless asked with --show-managed-fields)")
	case !st.PastGrace(since):
		r.retain(RetainYoung, "it was written less than %s ago, at %s", phrase.Duration(st.Grace), phrase.Time(since))
		r.Due = st.Due(since)
	}
	if who := st.UnrecordedUser(b.CIDR); who != "" {
		r.retain(RetainInUse, "%s, though the block does not record it", who)
	}
	st.RetainForOthers(b, st.Views.ContradictFree(b.Block), &r)
	return r
}

// retainAsItIs holds a block for what it is itself, whatever its age and its uses.
func (st *State) retainAsItIs(b *Block, r *Reclaimability) {
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
	}
}

// IfEmptied is the verdict on a block once all its addresses are released and the grace has
// passed, if nothing else changes.
func (st *State) IfEmptied(b *Block) Reclaimability {
	r := Reclaimability{}
	st.retainAsItIs(b, &r)
	st.RetainForOthers(b, nil, &r)
	if missing := st.FirstMissing(ReleaseReads); missing != nil {
		r.retain(RetainNotRead, "not evaluated: %s", missing)
	}
	if h := st.nodeStates[b.Owner.Node()]; h != nil && h.Node != nil {
		st.lastBlocks(h, b, func(last *Block, why string) {
			if last == b {
				r.retain(RetainLast, "%s", why)
			}
		})
	}
	r.OK = r.Reason == ""
	return r
}

// lastBlocks names the empty blocks that a node must keep, and why: one usable block per
// family in the pools that serve it, and one in each pool that its pods ask for. A block
// given as emptied counts as empty.
func (st *State) lastBlocks(h *NodeState, emptied *Block, keep func(b *Block, why string)) {
	one := func(member func(*Block) bool, why string) {
		if b := st.lastBlock(h, emptied, member); b != nil {
			keep(b, why)
		}
	}
	for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
		pools := st.WorkloadPools(h.Node, f)
		one(func(b *Block) bool { return slices.Contains(pools, b.Pool) }, fmt.Sprintf("it is the last %s block of its node", f))
		for _, w := range h.Workloads {
			asked, _ := st.RequestedPools(w, f)
			for _, p := range asked {
				one(func(b *Block) bool { return b.Pool == p }, fmt.Sprintf("it is its node's last block of pool %s, which pods there ask for", p.Name))
			}
		}
	}
}

// lastBlock is the host's lowest empty block among those that belong to a set, if the
// host has none in use there that is as good: one that it can go on with, with a settled
// affinity; else one whose affinity is on its way in or out, the release of which may be
// finished at any moment; else one without an affinity, which can be given back; else
// any that is usable. It is nil if the host has none, or one in use.
func (st *State) lastBlock(h *NodeState, emptied *Block, member func(*Block) bool) *Block {
	for _, good := range []func(*Block) bool{
		func(b *Block) bool { return st.Keepable(b) && st.affinityConfirmedOrAbsent(b) }, st.Keepable,
		func(b *Block) bool { return b.Usable() && !st.Reserved.Covers(b.CIDR) }, (*Block).Usable,
	} {
		var lowest *Block
		for _, b := range h.Blocks {
			if !good(b) || !member(b) {
				continue
			}
			if b.Used > 0 && b != emptied {
				return nil
			}
			if lowest == nil {
				lowest = b
			}
		}
		if lowest != nil {
			return lowest
		}
	}
	return nil
}

// Keepable reports whether a block of a node is one that the node can go on with: it is
// usable, not wholly reserved, and its owner has an affinity to it. In what was read
// without any affinity they were left out, and none is asked for.
func (st *State) Keepable(b *Block) bool {
	return b.Usable() && !st.Reserved.Covers(b.CIDR) && (len(st.Affinities) == 0 || st.ownAffinity(b) != nil)
}

// ownAffinity returns the affinity of a block's owner to it that is not marked
// deleted; nil if there is none.
func (st *State) ownAffinity(b *Block) *blocks.Affinity {
	for _, a := range st.AffinitiesOf(b.CIDR) {
		if a.Owner == b.Owner && !a.SoftDeleted {
			return a
		}
	}
	return nil
}

func (st *State) affinityConfirmedOrAbsent(b *Block) bool {
	a := st.ownAffinity(b)
	return a == nil || a.Effective() == blocks.Confirmed
}
