package planner

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/releasable"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/moves"
)

// releaseBlock deletes an empty block and its owner's affinity to it, as Calico's own garbage
// collector does. The audit decides: a block is released exactly if the report calls it releasable.
var releaseBlock = &repair.StepKind{
	Kind:     repair.ReleaseBlock,
	Requires: state.ReleaseReads,
	Exact: []string{
		repair.GuardName, repair.GuardUID, repair.GuardVersion, repair.GuardCreated, repair.GuardOwner, repair.GuardEmptySince,
		repair.GuardAffinity, repair.GuardAffinityUID, repair.GuardAffinityVersion, repair.GuardAffinityState, repair.GuardHolder, repair.GuardConsolidation, repair.GuardForNode, repair.GuardInstead,
	},
	Loose: map[string]func(*state.State, *repair.Step, *repair.Step) bool{repair.GuardKeeps: stillKeeps, repair.GuardKeepsUID: stillKeeps, repair.GuardFor: stillLacks},
	// All blocks and nodes of a pool decide which nodes need a block and whether one remains.
	RestsOnAll: func(s *repair.Step) bool { return s.Guard(repair.GuardFor) != "" || s.Guard(repair.GuardInstead) != "" },
	Rights:     []repair.Right{repair.May(blocks.Blocks, "get create patch delete"), repair.May(blocks.Affinities, "get create patch delete")},
	UndoRights: []repair.Right{repair.May(blocks.Blocks, "get delete"), repair.May(blocks.Affinities, "get create patch delete")},
	Propose: func(p *repair.Proposals) {
		emptied := releaseEmptied(p)
		for _, b := range p.State.IPBlocks {
			if b == emptied || !p.Request.EmptyBlocks && !p.Request.OrphanAffinities && !p.Request.DeadNodes {
				continue
			}
			if !p.Wants(state.BlockSubject(b)) || b.Used == 0 && !asksFor(p, b) {
				continue
			}
			c := blockConcern(b)
			if b.Used > 0 {
				if p.Only != "" {
					p.Refuse(c, repair.RefusedInUse, "it holds %s", phrase.Plural(b.Used, "address"))
				}
				continue
			}
			v := remedies.LastBlock{Releasability: b.Releasability}
			if p.Request.LastBlocks && p.Request.EmptyBlocks {
				v = remedies.Of(p.State).LastBlock(b)
			}
			if !v.OK {
				if last := remedies.Of(p.State).LastBlock(b); last.OK && v.Code == state.RetainLast {
					v.Reason += "; --last-blocks releases it for a node that cannot allocate: " + last.For.String()
				}
				bars(p, c, v.Bar)
				continue
			}
			addRelease(p, b, c, v, nil)
		}
	},
	Due: mayRelease,
	AddRefs: func(r *repair.Refs, s *repair.Step) {
		r.Claim(repair.PrefixOf(s.Target), repair.HostOf(s.Guard(repair.GuardOwner)))
		r.Host(repair.HostOf(s.Guard(repair.GuardOwner)))
		r.Host(s.Guard(repair.GuardFor))
	},
	Do: func(ctx context.Context, w repair.Writer, st *state.State, s *repair.Step) error {
		b := repair.BlockAt(st, s.Target.CIDR)
		if b == nil {
			return repair.DeletedError(s)
		}
		keeps, err := keptRef(st, s)
		if err != nil {
			return err
		}
		return w.ReleaseBlock(ctx, repair.Pin(blocks.Blocks, b.Meta), pinOwnAffinity(st, b), keeps)
	},
	Verify: func(st *state.State, s *repair.Step) error {
		if b := repair.BlockAt(st, s.Target.CIDR); b != nil {
			if err := repair.Replaced(s, "block", b.Meta); err != nil {
				return err
			}
		}
		if err := releasedAffinity(st, s); err != nil {
			return err
		}
		return ownersAffinity(st, s.Target.CIDR, repair.HostOf(s.Guard(repair.GuardOwner)))
	},
	Complete: func(b *repair.Begun) repair.Move {
		if x := repair.BlockAt(b.State, b.Step.Target.CIDR); x != nil && x.UID() == b.Step.Guard(repair.GuardUID) && x.Used == 0 {
			if x.SoftDeleted {
				return b.EndMark(blocks.Blocks, x.Meta)
			}
			if !b.Undo {
				return releaseLeft(b)
			}
		}
		return b.EndAffinity()
	},
	Undo: func(b *repair.Begun) repair.Move {
		if !b.State.IPAM.AutoAllocateBlocks {
			return keepAffinity(b, "automatic blocks are off, so no node claims it again: turn autoAllocateBlocks on, or claim a block by hand")
		}
		return keepAffinity(b, "an empty block needs no restoring: the next node that needs one claims it again")
	},
	Pretend: func(x *repair.Pretence, step *repair.Step) {
		x.NoBlocks[step.Guard(repair.GuardName)] = true
		x.NoAffinities[step.Guard(repair.GuardAffinity)] = true
	},
}

// asksFor reports whether the request covers an empty block. A request only for orphaned affinities
// covers a block only if its owner's affinity is half-done, because both can then only be deleted
// together.
func asksFor(p *repair.Proposals, b *state.Block) bool {
	return p.Request.EmptyBlocks || p.Request.DeadNodes && p.State.Vanished(b.Owner.Node()) || p.Request.OrphanAffinities && brokenOff(p.State, b)
}

// releaseLeft finishes the release of a block if only the affinity was written so far and the step
// can still be derived. Otherwise it restores the affinity's state.
func releaseLeft(b *repair.Begun) repair.Move {
	a := b.LeftAffinity()
	if a == nil {
		return repair.Move{}
	}
	derived, _ := b.Kind.Derive(b.State, b.Request, b.Step.ID)
	switch {
	case derived == nil && a.SoftDeleted:
		return repair.Move{}
	case derived == nil:
		return b.PutBack(a)
	}
	return repair.ToWrite(func(ctx context.Context) error { return b.Kind.Do(ctx, b.Writer, b.State, derived) }, "releasing the block")
}

// keepAffinity reverts a release by restoring the affinity's state, if the block still belongs to
// its owner. Otherwise it reverts nothing, for the given reason.
func keepAffinity(b *repair.Begun, why string) repair.Move {
	x, a := repair.BlockAt(b.State, b.Step.Target.CIDR), b.SameAffinity()
	if x != nil && !x.SoftDeleted && a != nil && a.Owner == x.Owner {
		return b.PutBack(a)
	}
	return repair.Nothing(repair.NotNeeded, why)
}

// pinOwnAffinity pins the affinity of a block's owner; nil if there is none.
func pinOwnAffinity(st *state.State, b *state.Block) *repair.ObjectRef {
	a := repair.OwnAffinity(st, b)
	if a == nil {
		return nil
	}
	ref := repair.Pin(blocks.Affinities, a.Meta)
	return &ref
}

// affinityGuards pin the affinity that is deleted with its block, or its absence. They pin its
// version only if that must not change.
func affinityGuards(a *blocks.Affinity, version bool) []string {
	if a == nil {
		return []string{repair.GuardAffinity, repair.Absent}
	}
	return []string{
		repair.GuardAffinity, a.Name, repair.GuardAffinityUID, a.UID(), repair.GuardAffinityVersion, repair.OnlyIf(version, a.ResourceVersion()), repair.GuardAffinityState, string(a.Effective()),
	}
}

// retainCodes maps each reason to retain an object to the code of its refusal.
var retainCodes = map[state.RetainReason]repair.RefusalCode{
	state.RetainSpecial: repair.RefusedSpecial, state.RetainMarked: repair.RefusedMarked, state.RetainCorrupt: repair.RefusedCorrupt,
	state.RetainLocked: repair.RefusedLocked, state.RetainUnknownAge: repair.RefusedUnknownAge, state.RetainYoung: repair.RefusedYoung,
	state.RetainInUse: repair.RefusedInUse, state.RetainHostView: repair.RefusedHostView, state.RetainConflict: repair.RefusedConflict,
	state.RetainLast: repair.RefusedLastBlock, state.RetainHeals: repair.RefusedHeals, state.RetainUnpinned: repair.RefusedUnpinned, state.RetainNotRead: repair.RefusedNotRead, state.RetainUnknownOwner: repair.RefusedUnknownOwner,
	state.RetainNoAuto: repair.RefusedNoAuto, releasable.NoEvidence: repair.RefusedNoEvidence, releasable.MachineMayRun: repair.RefusedMachineMayRun,
}

// bars refuses a step if b is set, and reports whether it does.
func bars(p *repair.Proposals, c repair.Concern, b state.Bar) bool {
	if b.Code != "" {
		p.Refuse(c, retainCodes[b.Code], "%s%s", b.Reason, repair.PlanAfter(p.State, b.Due))
	}
	return b.Code != ""
}

func blockConcern(b *state.Block) repair.Concern {
	return repair.Concern{Target: state.BlockSubject(b), Pools: state.PoolsOf(b.Pool), Nodes: []string{b.Owner.Node()}}
}

// releaseEmptied proposes to release the block that a consolidation empties, and returns it. The
// block needs no minimum time empty: the reservation protects it instead.
func releaseEmptied(p *repair.Proposals) *state.Block {
	if !p.Request.Consolidate {
		return nil
	}
	c := moves.Consolidating(p)
	if c == nil || c.Block == nil {
		return nil
	}
	if target := state.BlockSubject(c.Block); p.Wants(target) {
		addRelease(p, c.Block, moves.AboutAll(c, target), remedies.LastBlock{}, c)
	}
	return c.Block
}

// mayRelease returns when an emptied block may be released, or why it must not be.
func mayRelease(a *repair.Turn, s *repair.Step) (time.Time, repair.Reason) {
	if s.Group() == "" {
		return time.Time{}, repair.Reason{}
	}
	due, r := moves.AfterReservation(a, s)
	if b := repair.BlockAt(a.State, s.Target.CIDR); r.Code == "" && due.IsZero() && b != nil && b.Used > 0 {
		r = repair.Because(repair.RefusedInUse, "it holds %s still", phrase.Plural(b.Used, "address"))
	}
	return due, r
}

func addRelease(p *repair.Proposals, b *state.Block, c repair.Concern, last remedies.LastBlock, emptied *remedies.Consolidation) {
	keeps := keptBlock(p.State, b)
	kept, keptUID := repair.Absent, ""
	if keeps != nil {
		kept, keptUID = keeps.CIDR.String(), keeps.UID()
	}
	vanished := p.State.Vanished(b.Owner.Node()) // no object records since when
	twice := p.Request.ObserveTwice || vanished
	pairs := []string{
		repair.GuardName, b.Name, repair.GuardUID, b.UID(), repair.GuardVersion, repair.OnlyIf(twice && emptied == nil, b.ResourceVersion()), repair.GuardCreated, b.Created.String(),
		repair.GuardOwner, repair.OwnerGuard(b.Owner), repair.GuardEmptySince, b.Releasability.EmptySince.String(), repair.GuardKeeps, kept, repair.GuardKeepsUID, keptUID,
	}
	stays := keepsText(p.State, b, keeps)
	if keeps == nil && len(b.Releasability.Instead) > 0 {
		pairs = append(pairs, repair.GuardInstead, state.PoolNames(b.Releasability.Instead))
	}
	if len(last.For) > 0 {
		pairs = append(pairs, repair.GuardHolder, last.Holder, repair.GuardFor, last.For[0])
		stays = fmt.Sprintf("it is the last of its node, which is %s, and %s cannot allocate (--last-blocks)", last.Holder, last.For)
		c.Nodes = append(c.Nodes, last.For...)
	}
	pinned := []blocks.Meta{b.Meta}
	if keeps != nil {
		pinned = append(pinned, keeps.Meta)
	}
	claim := "no affinity object"
	a := repair.OwnAffinity(p.State, b)
	if pairs = append(pairs, affinityGuards(a, twice)...); a != nil {
		claim, pinned = fmt.Sprintf("%s (%s)", a.Name, a.Effective()), append(pinned, a.Meta)
	}
	if emptied != nil {
		p.Add(c, repair.Step{
			Because:  fmt.Sprintf("block %s of %s is emptied for %s; %s", b.CIDR, b.Owner, emptied.For, keepsText(p.State, b, keeps)),
			Evidence: state.Evidences("owner", b.Owner, "owner's affinity", claim, "pool", state.PoolName(b.Pool)),
			Guards:   slices.DeleteFunc(moves.Joins(emptied, pairs...), func(g repair.Guard) bool { return g.Name == repair.GuardEmptySince }),
		}, pinned...)
		return
	}
	held := "holds no address"
	if since := b.Releasability.EmptySince; !since.IsZero() {
		held = fmt.Sprintf("has held no address since %s at the latest", since)
	}
	p.Add(c, repair.Step{
		TwoObservations: len(last.For) > 0 || vanished,
		Because:         fmt.Sprintf("block %s of %s %s; %s", b.CIDR, b.Owner, held, stays),
		Evidence: state.Evidences("owner", b.Owner, "owner's affinity", claim, "pool", state.PoolName(b.Pool),
			"empty since at the latest", b.Releasability.EmptySince, "created", b.Created),
		Guards: repair.Guards(pairs...),
	}, pinned...)
}

// brokenOff reports whether the owner's affinity to its own block has stayed pending or
// pendingDeletion, or was left so by a step of this program.
func brokenOff(st *state.State, b *state.Block) bool {
	a := repair.OwnAffinity(st, b)
	return a != nil && !a.SoftDeleted && affinity.Classify(a, b.Block) == affinity.Unconfirmed && (st.OldEnough(a.Meta) || state.HalfDone(a))
}

// keptBlock returns another block with room that the owner keeps, in a pool that serves pods of any
// namespace, preferably the same pool. It returns nil if the owner no longer exists, no pool serves
// it, or it can claim another block instead.
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

// keptBeside reports whether the owner keeps block other when b is released.
func keptBeside(st *state.State, b, other *state.Block) bool {
	h := st.NodeState(b.Owner.Node())
	if h == nil || h.Node == nil || other == b || other.Owner != b.Owner {
		return false
	}
	pools := state.GeneralPools(st.WorkloadPools(h.Node, b.Family()))
	return st.Keepable(other) && (other.Used > 0 || !other.Releasability.OK) && (slices.Contains(pools, other.Pool) || other.Pool == b.Pool && b.Pool != nil)
}

// stillLacks reports whether the node for which a last block is released still cannot allocate.
func stillLacks(st *state.State, planned, now *repair.Step) bool {
	if planned.Guard(repair.GuardFor) == "" || now.Guard(repair.GuardFor) == "" {
		return planned.Guard(repair.GuardFor) == now.Guard(repair.GuardFor)
	}
	b := repair.BlockAt(st, now.Target.CIDR)
	return b != nil && slices.Contains(remedies.Of(st).LastBlock(b).For, planned.Guard(repair.GuardFor))
}

// keptRef pins the block that a step names as kept; nil if it names none.
func keptRef(st *state.State, s *repair.Step) (*repair.ObjectRef, error) {
	if s.Guard(repair.GuardKeeps) == repair.Absent {
		return nil, nil
	}
	b := repair.BlockAt(st, s.Guard(repair.GuardKeeps))
	if b == nil {
		return nil, repair.DeletedError(s)
	}
	ref := repair.Pin(blocks.Blocks, b.Meta)
	return &ref, nil
}

// stillKeeps reports whether the block that the plan names as kept is still kept. If the plan names
// none, the state must name none either.
func stillKeeps(st *state.State, planned, now *repair.Step) bool {
	if planned.Guard(repair.GuardKeeps) == repair.Absent || now.Guard(repair.GuardKeeps) == repair.Absent {
		return planned.Guard(repair.GuardKeeps) == now.Guard(repair.GuardKeeps)
	}
	b, other := repair.BlockAt(st, now.Target.CIDR), repair.BlockAt(st, planned.Guard(repair.GuardKeeps))
	if b == nil || other == nil || !keptBeside(st, b, other) {
		return false
	}
	uid := planned.Guard(repair.GuardKeepsUID) // plans of earlier versions have none
	return uid == "" || uid == other.UID()
}

func keepsText(st *state.State, b, keeps *state.Block) string {
	host := b.Owner.Node()
	switch {
	case host == "":
		return "no node owns it"
	case st.Vanished(host):
		return host + " no longer exists"
	case keeps == nil && len(b.Releasability.Instead) > 0:
		return fmt.Sprintf("the other blocks of %s are full, but it can claim another one of %s", host, state.PoolNames(b.Releasability.Instead))
	case keeps == nil:
		return fmt.Sprintf("it is in no pool that serves pods of %s", host)
	}
	return fmt.Sprintf("%s keeps %s", host, keeps.CIDR)
}
