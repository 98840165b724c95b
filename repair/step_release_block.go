package repair

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// releaseBlock deletes an empty block together with its owner's affinity to it, as
// Calico's own collector does. The verdict is the audit's: a block is released if
// and only if the report calls it releasable.
var releaseBlock = &StepKind{
	kind:  ReleaseBlock,
	flag:  "--empty-blocks",
	asked: func(r Request) bool { return r.EmptyBlocks || r.OrphanAffinities || r.DeadNodes || r.Consolidate },
	needs: state.ReleaseReads,
	exact: []string{
		GuardName, GuardUID, GuardVersion, GuardCreated, GuardOwner, GuardEmptySince,
		GuardAffinity, GuardAffinityUID, GuardAffinityVersion, GuardAffinityState, GuardHolder, GuardConsolidation, GuardInNeed,
	},
	loose: map[string]func(*state.State, *Step, *Step) bool{GuardKeeps: stillKeeps, GuardKeepsUID: stillKeeps, GuardFor: stillLacks},
	// Who needs a block is for all blocks of the pool to tell.
	whole: func(s *Step) bool { return s.Guard(GuardFor) != "" },
	propose: func(p *proposals) {
		emptied := p.releaseEmptied()
		for _, b := range p.st.IPBlocks {
			if b == emptied || !p.req.EmptyBlocks && !p.req.OrphanAffinities && !p.req.DeadNodes {
				continue
			}
			if !p.wants(state.BlockSubject(b)) || b.Used == 0 && !p.asksFor(b) {
				continue
			}
			c := blockConcern(b)
			if b.Used > 0 {
				if p.only != "" {
					p.refuse(c, RefusedInUse, "it holds %s", phrase.Plural(b.Used, "address"))
				}
				continue
			}
			v := remedies.LastBlock{Reclaimability: b.Reclaimability}
			if p.req.LastBlocks && p.req.EmptyBlocks {
				v = remedies.Of(p.st).LastBlock(b)
			}
			if !v.OK {
				why := v.Held
				switch last := remedies.Of(p.st).LastBlock(b); {
				case v.Code == state.RetainYoung:
					why += oldFrom(p.st, v.EmptySince)
				case last.OK && !v.OK && v.Code == state.RetainLast:
					why += "; --last-blocks releases it for a node that cannot allocate: " + phrase.List(last.For)
				}
				p.refuse(c, retainCodes[v.Code], "%s", why)
				continue
			}
			p.addRelease(b, c, v, nil)
		}
	},
	ready: (*Turn).mayRelease,
	refs: func(r *refs, s *Step) {
		r.claim(prefixOf(s.Target), hostOf(s.Guard(GuardOwner)))
		r.host(hostOf(s.Guard(GuardOwner)))
		r.host(s.Guard(GuardFor))
	},
	do: func(ctx context.Context, w Writer, st *state.State, s *Step) error {
		b := blockAt(st, s.Target.CIDR)
		if b == nil {
			return errGone(s)
		}
		keeps, err := keptRef(st, s)
		if err != nil {
			return err
		}
		return w.ReleaseBlock(ctx, pin(blocks.Blocks, b.Meta), pinOwnAffinity(st, b), keeps)
	},
	verify: func(st *state.State, s *Step) error {
		if b := blockAt(st, s.Target.CIDR); b != nil {
			if err := replaced(s, "block", b.Meta); err != nil {
				return err
			}
		}
		if err := releasedAffinity(st, s); err != nil {
			return err
		}
		return ownersAffinity(st, s.Target.CIDR, hostOf(s.Guard(GuardOwner)))
	},
	complete: func(b *Begun) Move {
		if x := blockAt(b.State, b.Step.Target.CIDR); x != nil && x.UID == b.Step.Guard(GuardUID) && x.Used == 0 {
			if x.SoftDeleted {
				return b.endMark(blocks.Blocks, x.Meta)
			}
			if !b.Undo {
				return b.releaseLeft()
			}
		}
		return b.endAffinity()
	},
	undo: func(b *Begun) Move {
		return b.keepAffinity("an empty block needs no restoring: the next node that needs one claims it again")
	},
	pretend: func(x *pretence, step *Step) {
		x.noBlocks[step.Guard(GuardName)] = true
		x.noAffinities[step.Guard(GuardAffinity)] = true
	},
}

// asksFor reports whether an empty block is among what is asked for. Asked for orphaned
// affinities alone, a block goes only if its owner's affinity has broken off half-way:
// nothing less than both may go then.
func (p *proposals) asksFor(b *state.Block) bool {
	return p.req.EmptyBlocks || p.req.DeadNodes && p.st.Vanished(b.Owner.Node()) || p.req.OrphanAffinities && brokenOff(p.st, b)
}

// releaseLeft goes on with a block of which only the affinity was written, if the
// step still comes out; else the affinity gets its state back.
func (b *Begun) releaseLeft() Move {
	a := b.leftAffinity()
	if a == nil {
		return Move{}
	}
	derived, _ := b.Kind.derive(b.State, b.Request, b.Step.ID)
	switch {
	case derived == nil && a.SoftDeleted:
		return Move{}
	case derived == nil:
		return b.putBack(a)
	}
	return toWrite(func(ctx context.Context) error { return b.Kind.do(ctx, b.Writer, b.State, derived) }, "releasing the block")
}

// keepAffinity takes a release back as far as the block is still its owner's: the
// affinity gets its state back. Else there is nothing to take back, and why says so.
func (b *Begun) keepAffinity(why string) Move {
	x, a := blockAt(b.State, b.Step.Target.CIDR), b.sameAffinity()
	if x != nil && !x.SoftDeleted && a != nil && a.Owner == x.Owner {
		return b.putBack(a)
	}
	return nothing(NotNeeded, why)
}

// pinOwnAffinity pins the affinity of a block's owner to it; nil if there is none.
func pinOwnAffinity(st *state.State, b *state.Block) *ObjectRef {
	a := ownAffinity(st, b)
	if a == nil {
		return nil
	}
	ref := pin(blocks.Affinities, a.Meta)
	return &ref
}

// affinityGuards pin the affinity that goes with its block, or that there is none; its
// version only where that must not change.
func affinityGuards(a *blocks.Affinity, version bool) []string {
	if a == nil {
		return []string{GuardAffinity, Absent}
	}
	return []string{
		GuardAffinity, a.Name, GuardAffinityUID, a.UID, GuardAffinityVersion, onlyIf(version, a.ResourceVersion), GuardAffinityState, string(a.Effective()),
	}
}

// retainCodes are the codes of what holds an empty block.
var retainCodes = map[state.RetainReason]RefusalCode{
	state.RetainSpecial: RefusedSpecial, state.RetainMarked: RefusedMarked, state.RetainCorrupt: RefusedCorrupt,
	state.RetainLocked: RefusedLocked, state.RetainUnknownAge: RefusedUnknownAge, state.RetainYoung: RefusedYoung,
	state.RetainInUse: RefusedInUse, state.RetainHostView: RefusedHostView, state.RetainConflict: RefusedConflict,
	state.RetainLast: RefusedLastBlock, state.RetainHeals: RefusedHeals, state.RetainUnpinned: RefusedUnpinned, state.RetainNotRead: RefusedNotRead,
}

func blockConcern(b *state.Block) concern {
	return concern{state.BlockSubject(b), poolNames(b.Pool), []string{b.Owner.Node()}}
}

// releaseEmptied proposes to release the block that a consolidation empties, and returns
// it. Its emptiness has no age: the reservation stands for that.
func (p *proposals) releaseEmptied() *state.Block {
	if !p.req.Consolidate {
		return nil
	}
	c := p.consolidating()
	if c == nil || c.Block == nil {
		return nil
	}
	if target := state.BlockSubject(c.Block); p.wants(target) {
		p.addRelease(c.Block, p.aboutAll(c, target), remedies.LastBlock{}, c)
	}
	return c.Block
}

// mayRelease says from when on a block that was emptied may be released, or why it must
// not be.
func (a *Turn) mayRelease(s *Step) (time.Time, reason) {
	if s.Group() == "" {
		return time.Time{}, reason{}
	}
	due, r := a.afterReservation(s)
	if b := blockAt(a.State, s.Target.CIDR); r.code == "" && due.IsZero() && b != nil && b.Used > 0 {
		r = because(RefusedInUse, "it holds %s still", phrase.Plural(b.Used, "address"))
	}
	return due, r
}

func (p *proposals) addRelease(b *state.Block, c concern, last remedies.LastBlock, emptied *remedies.Consolidation) {
	keeps := keptBlock(p.st, b)
	kept, keptUID := Absent, ""
	if keeps != nil {
		kept, keptUID = keeps.CIDR.String(), keeps.UID
	}
	vanished := p.st.Vanished(b.Owner.Node()) // since when, no object tells
	twice := p.req.ObserveTwice || vanished
	pairs := []string{
		GuardName, b.Name, GuardUID, b.UID, GuardVersion, onlyIf(twice && emptied == nil, b.ResourceVersion), GuardCreated, phrase.Time(b.Created),
		GuardOwner, ownerGuard(b.Owner), GuardEmptySince, phrase.Time(b.Reclaimability.EmptySince), GuardKeeps, kept, GuardKeepsUID, keptUID,
	}
	stays := keepsText(p.st, b, keeps)
	if len(last.For) > 0 {
		pairs = append(pairs, GuardHolder, last.Holder, GuardFor, last.For[0])
		stays = fmt.Sprintf("it is the last of its node, which is %s, and %s cannot allocate (--last-blocks)", last.Holder, phrase.List(last.For))
		c.nodes = append(c.nodes, last.For...)
	}
	pinned := []blocks.Meta{b.Meta}
	if keeps != nil {
		pinned = append(pinned, keeps.Meta)
	}
	claim := "no affinity object"
	a := ownAffinity(p.st, b)
	if pairs = append(pairs, affinityGuards(a, twice)...); a != nil {
		claim, pinned = fmt.Sprintf("%s (%s)", a.Name, a.Effective()), append(pinned, a.Meta)
	}
	if emptied != nil {
		p.add(c, Step{
			Because:  fmt.Sprintf("block %s of %s is emptied for %s; %s", b.CIDR, phrase.Owner(b.Owner), emptied.For, keepsText(p.st, b, keeps)),
			Evidence: state.Evidences("owner", phrase.Owner(b.Owner), "owner's affinity", claim, "pool", poolName(b.Pool)),
			Guards:   slices.DeleteFunc(joins(emptied, pairs...), func(g Guard) bool { return g.Name == GuardEmptySince }),
		}, pinned...)
		return
	}
	p.add(c, Step{
		TwoObservations: len(last.For) > 0 || vanished,
		Because: fmt.Sprintf("block %s of %s has held no address since %s at the latest; %s", b.CIDR, phrase.Owner(b.Owner),
			phrase.Time(b.Reclaimability.EmptySince), stays),
		Evidence: state.Evidences("owner", phrase.Owner(b.Owner), "owner's affinity", claim, "pool", poolName(b.Pool),
			"empty since at the latest", phrase.Time(b.Reclaimability.EmptySince), "created", phrase.Time(b.Created)),
		Guards: guards(pairs...),
	}, pinned...)
}

// brokenOff reports whether the owner's affinity to its own block has stayed pending
// or pendingDeletion, or was left so by a step of this program.
func brokenOff(st *state.State, b *state.Block) bool {
	a := ownAffinity(st, b)
	return a != nil && !a.SoftDeleted && affinity.Classify(a, b.Block) == affinity.Unconfirmed && (st.OldEnough(a.Meta) || state.HalfDone(a))
}

// ownAffinity returns the affinity of a block's owner to it; nil if there is none.
func ownAffinity(st *state.State, b *state.Block) *blocks.Affinity {
	if b.Owner == (blocks.Owner{}) {
		return nil
	}
	for _, a := range st.AffinitiesOf(b.CIDR) {
		if a.Owner == b.Owner {
			return a
		}
	}
	return nil
}

// keptBlock returns a block that the owner keeps in the pools that serve its pods, of
// the same pool where there is one: one that is usable and is not released. It is nil
// for an owner that no longer exists, or that no pool serves.
func keptBlock(st *state.State, b *state.Block) *state.Block {
	h := st.NodeState(b.Owner.Node())
	if h == nil {
		return nil
	}
	var out *state.Block
	for _, other := range h.Blocks {
		if keptBeside(st, b, other) && (out == nil || out.Pool != b.Pool && other.Pool == b.Pool) {
			out = other
		}
	}
	return out
}

// keptBeside reports whether the owner of a block keeps another one when the block is
// released.
func keptBeside(st *state.State, b, other *state.Block) bool {
	h := st.NodeState(b.Owner.Node())
	if h == nil || h.Node == nil || other == b || other.Owner != b.Owner || other.Family() != b.Family() {
		return false
	}
	return st.Keepable(other) && (other.Used > 0 || !other.Reclaimability.OK) && slices.Contains(st.WorkloadPools(h.Node, b.Family()), other.Pool)
}

// stillLacks reports whether the node that a last block is released for still cannot
// allocate.
func stillLacks(st *state.State, planned, now *Step) bool {
	if planned.Guard(GuardFor) == "" || now.Guard(GuardFor) == "" {
		return planned.Guard(GuardFor) == now.Guard(GuardFor)
	}
	b := blockAt(st, now.Target.CIDR)
	return b != nil && slices.Contains(remedies.Of(st).LastBlock(b).For, planned.Guard(GuardFor))
}

// keptRef pins the block that a step says is kept; nil if none is.
func keptRef(st *state.State, s *Step) (*ObjectRef, error) {
	if s.Guard(GuardKeeps) == Absent {
		return nil, nil
	}
	b := blockAt(st, s.Guard(GuardKeeps))
	if b == nil {
		return nil, errGone(s)
	}
	ref := pin(blocks.Blocks, b.Meta)
	return &ref, nil
}

// stillKeeps reports whether the block that the plan says is kept still is, or that
// there is none still.
func stillKeeps(st *state.State, planned, now *Step) bool {
	if planned.Guard(GuardKeeps) == Absent || now.Guard(GuardKeeps) == Absent {
		return planned.Guard(GuardKeeps) == now.Guard(GuardKeeps)
	}
	b, other := blockAt(st, now.Target.CIDR), blockAt(st, planned.Guard(GuardKeeps))
	if b == nil || other == nil || !keptBeside(st, b, other) {
		return false
	}
	uid := planned.Guard(GuardKeepsUID) // plans of earlier versions have none
	return uid == "" || uid == other.UID
}

func keepsText(st *state.State, b, keeps *state.Block) string {
	host := b.Owner.Node()
	switch {
	case host == "":
		return "no node owns it"
	case st.Vanished(host):
		return host + " no longer exists"
	case keeps == nil:
		return fmt.Sprintf("no pool that serves pods of %s has it", host)
	}
	return fmt.Sprintf("%s keeps %s", host, keeps.CIDR)
}
