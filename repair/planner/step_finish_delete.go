package planner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/handles"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// finishDelete deletes objects that stayed marked deleted. The object records the mark, so its
// recorded age suffices. Deleting a marked block also deletes its owner's affinity, as the
// interrupted release would have: the affinity would have no block.
var finishDelete = &repair.StepKind{
	Kind:     repair.FinishDelete,
	Requires: state.FinishDeleteReads,
	AllPods:  true,
	Exact: []string{
		repair.GuardName, repair.GuardUID, repair.GuardVersion, repair.GuardCreated, repair.GuardOwner,
		repair.GuardAffinity, repair.GuardAffinityUID, repair.GuardAffinityVersion, repair.GuardAffinityState,
	},
	Rights:     []repair.Right{repair.May(blocks.Blocks, "get delete"), repair.May(blocks.Affinities, "get create patch delete"), repair.May(blocks.Handles, "get delete")},
	UndoRights: []repair.Right{repair.May(blocks.Blocks, "get"), repair.May(blocks.Affinities, "get create patch delete")},
	Propose: func(p *repair.Proposals) {
		for _, b := range p.State.IPBlocks {
			if b.SoftDeleted && p.Wants(state.BlockSubject(b)) {
				finishBlock(p, b)
			}
		}
		for i := range p.State.Affinities {
			if a := &p.State.Affinities[i]; a.SoftDeleted && p.Wants(state.AffinitySubject(a)) {
				finishAffinity(p, a)
			}
		}
		for _, h := range p.State.Handles {
			if h.SoftDeleted && p.Wants(state.HandleSubject(h.ID)) {
				finishHandle(p, h)
			}
		}
	},
	AddRefs: func(r *repair.Refs, s *repair.Step) {
		if s.Target.Kind == state.KindHandle {
			handleStepRefs(r, s)
			return
		}
		r.One(resourceOf[s.Target.Kind], s.Guard(repair.GuardName))
		r.Claim(repair.PrefixOf(s.Target), finishedHost(s))
	},
	Do: doFinishDelete,
	Verify: func(st *state.State, s *repair.Step) error {
		o := marked(st, s)
		if o != nil {
			if err := repair.Replaced(s, o.Word, *o.Meta); err != nil {
				return err
			}
		}
		if s.Target.Kind == state.KindHandle {
			if o != nil {
				return nil
			}
			return usedHandle(st, s.Guard(repair.GuardName), s.Target.Name)
		}
		if err := releasedAffinity(st, s); err != nil {
			return err
		}
		return ownersAffinity(st, s.Target.CIDR, finishedHost(s))
	},
	// The affinity of a marked block is deleted once the block is gone. If its node has written it
	// since, it belongs to the node again and stays.
	Complete: func(b *repair.Begun) repair.Move {
		if b.Step.Target.Kind != state.KindBlock || repair.BlockAt(b.State, b.Step.Target.CIDR) != nil {
			return repair.Move{}
		}
		if b.LeftAffinity() != nil {
			return b.EndAffinity()
		}
		a := repair.AffinityNamed(b.State, b.Step.Guard(repair.GuardAffinity))
		if a == nil || a.SoftDeleted || !b.Mine(a) || a.UID() != b.Step.Guard(repair.GuardAffinityUID) || string(a.Effective()) != b.Step.Guard(repair.GuardAffinityState) {
			return repair.Move{}
		}
		return b.DeleteAffinity(a, "deleting the affinity of the block that was marked")
	},
	Undo: func(*repair.Begun) repair.Move {
		return repair.Nothing(repair.NotNeeded, "it was marked deleted before, and Calico itself would have removed it at its next reading")
	},
	Pretend: func(x *repair.Pretence, step *repair.Step) {
		switch step.Target.Kind {
		case state.KindBlock:
			x.NoBlocks[step.Guard(repair.GuardName)] = true
			x.NoAffinities[step.Guard(repair.GuardAffinity)] = true
		case state.KindAffinity:
			affinityFinished(x, step)
		case state.KindHandle:
			x.NoHandles[step.Guard(repair.GuardName)] = true
		}
	},
}

var resourceOf = map[string]blocks.Resource{
	state.KindBlock: blocks.Blocks, state.KindAffinity: blocks.Affinities, state.KindHandle: blocks.Handles,
}

// marked returns the object that has the name of a step's target; nil if there is none.
func marked(st *state.State, s *repair.Step) *repair.Object {
	return repair.ObjectNamed(st.Snapshot, resourceOf[s.Target.Kind], s.Guard(repair.GuardName))
}

// finishedHost is the node whose affinity a step deletes, alone or with its block.
func finishedHost(s *repair.Step) string {
	if s.Target.Kind == state.KindBlock {
		return repair.HostOf(s.Guard(repair.GuardOwner))
	}
	return s.Target.Node
}

func doFinishDelete(ctx context.Context, w repair.Writer, st *state.State, s *repair.Step) error {
	m := marked(st, s)
	if m == nil {
		return repair.DeletedError(s)
	}
	if err := w.FinishDelete(ctx, repair.Pin(resourceOf[s.Target.Kind], *m.Meta)); err != nil {
		return err
	}
	a := repair.AffinityNamed(st, s.Guard(repair.GuardAffinity))
	if s.Target.Kind != state.KindBlock || a == nil {
		return nil
	}
	// If the affinity has changed since, its node is claiming the CIDR again. The affinity then is
	// no longer ours to delete; the next reading shows its state.
	if err := w.DeleteAffinity(ctx, repair.Pin(blocks.Affinities, a.Meta)); err != nil && !errors.Is(err, repair.ErrChanged) {
		return fmt.Errorf("block %s is gone, and its owner's affinity is left: %w", s.Target.CIDR, err)
	}
	return nil
}

// lastWrite returns the newest time in an object's metadata.
func lastWrite(m blocks.Meta) blocks.Time { return m.Written.Later(m.Created) }

func finishBlock(p *repair.Proposals, b *state.Block) {
	c := blockConcern(b)
	if bars(p, c, p.State.FinishBlockBar(b)) {
		return
	}
	pairs := append(markGuards(p, b.Meta), repair.GuardOwner, repair.OwnerGuard(b.Owner))
	pinned, also := []blocks.Meta{b.Meta}, ""
	a := repair.OwnAffinity(p.State, b)
	if a != nil && a.SoftDeleted {
		a = nil
	}
	if pairs = append(pairs, affinityGuards(a, p.Request.ObserveTwice)...); a != nil {
		pinned, also = append(pinned, a.Meta), ", with its owner's affinity, which would lead to no block"
	}
	p.Add(c, repair.Step{
		Because:  fmt.Sprintf("block %s of %s was marked deleted by %s and never removed; it holds no address, and is deleted%s", b.CIDR, b.Owner, lastWrite(b.Meta), also),
		Evidence: state.Evidences("owner", b.Owner, "pool", state.PoolName(b.Pool), "created", b.Created, "last written", b.Written),
		Guards:   repair.Guards(pairs...),
	}, pinned...)
}

// markGuards pins an object that is marked deleted.
func markGuards(p *repair.Proposals, m blocks.Meta) []string {
	return []string{
		repair.GuardName, m.Name, repair.GuardUID, m.UID(), repair.GuardVersion, repair.OnlyIf(p.Request.ObserveTwice, m.ResourceVersion()), repair.GuardCreated, m.Created.String(),
	}
}

func finishAffinity(p *repair.Proposals, a *blocks.Affinity) {
	c, b := affinityConcern(p, a), p.State.BlockOf(a.CIDR)
	if bars(p, c, p.State.FinishAffinityBar(a, b)) {
		return
	}
	block := "none exists"
	if b != nil {
		block = fmt.Sprintf("%s, owner %s, %s in use", b.Name, b.Owner, phrase.Plural(b.Used, "address"))
	}
	p.Add(c, repair.Step{
		Because: fmt.Sprintf("affinity of %s to %s was marked deleted by %s and never removed", a.Owner, a.CIDR, lastWrite(a.Meta)),
		Evidence: state.Evidences("state", string(a.Effective()), "block", block, "host", hostText(p.State, a.Owner.Node()),
			"created", a.Created, "last written", a.Written),
		Guards: repair.Guards(markGuards(p, a.Meta)...),
	}, a.Meta)
}

func finishHandle(p *repair.Proposals, h *blocks.Handle) {
	c := handleConcern(p.State, h)
	if bars(p, c, handles.FinishBar(p.State, h)) {
		return
	}
	p.Add(c, repair.Step{
		Because: fmt.Sprintf("handle %s was marked deleted by %s and never removed, and no block refers to it", h.ID, lastWrite(h.Meta)),
		Evidence: state.Evidences("it counts", repair.OrAbsent(state.Value(countsText(h.Blocks))), "created", h.Created,
			"last written", h.Written),
		Guards: repair.Guards(markGuards(p, h.Meta)...),
	}, h.Meta)
}

// affinityFinished deletes a marked affinity, or recreates it if its host's block exists.
func affinityFinished(x *repair.Pretence, s *repair.Step) {
	cidr := repair.PrefixOf(s.Target)
	owned := func(b *blocks.Block) bool {
		return b.CIDR == cidr && !b.SoftDeleted && b.Owner.Node() == s.Target.Node && !x.NoBlocks[b.Name]
	}
	if !slices.ContainsFunc(slices.Collect(maps.Values(x.BlockByName)), owned) {
		x.NoAffinities[s.Guard(repair.GuardName)] = true
		return
	}
	for i := range x.Affinities {
		if a := &x.Affinities[i]; a.Name == s.Guard(repair.GuardName) {
			a.SoftDeleted, a.State, a.Pin, a.Created, a.Written = false, blocks.Confirmed, blocks.Pin{}, x.Cluster.Taken(), x.Cluster.Taken()
		}
	}
}
