package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// finishDelete deletes what was marked deleted and left. The mark is a state of the
// object itself, so that its written age suffices. A marked block takes its owner's
// affinity with it, as the release that was begun would have: left alone, it would
// lead to no block.
var finishDelete = &StepKind{
	kind:  FinishDelete,
	flag:  "--soft-deleted",
	asked: func(r Request) bool { return r.SoftDeleted },
	needs: []blocks.Resource{blocks.Blocks, blocks.Affinities, blocks.Handles, blocks.Nodes, blocks.Pods, blocks.Pools},
	exact: []string{
		GuardName, GuardUID, GuardVersion, GuardCreated, GuardOwner,
		GuardAffinity, GuardAffinityUID, GuardAffinityVersion, GuardAffinityState,
	},
	propose: func(p *proposals) {
		if p.podsUnread() {
			return
		}
		for _, b := range p.st.IPBlocks {
			if b.SoftDeleted && p.wants(state.BlockSubject(b)) {
				p.finishBlock(b)
			}
		}
		for i := range p.st.Affinities {
			if a := &p.st.Affinities[i]; a.SoftDeleted && p.wants(state.AffinitySubject(a)) {
				p.finishAffinity(a)
			}
		}
		doubt := newHandleDoubt(p.st)
		for i := range p.st.Handles {
			if h := &p.st.Handles[i]; h.SoftDeleted && p.wants(state.HandleSubject(h.ID)) {
				p.finishHandle(h, doubt)
			}
		}
	},
	refs: func(r *refs, s *Step) {
		if s.Target.Kind == state.KindHandle {
			handleStepRefs(r, s)
			return
		}
		r.one(resourceOf[s.Target.Kind], s.Guard(GuardName))
		r.claim(prefixOf(s.Target), finishedHost(s))
	},
	do: doFinishDelete,
	verify: func(st *state.State, s *Step) error {
		o := marked(st, s)
		if o != nil {
			if err := replaced(s, o.word, *o.Meta); err != nil {
				return err
			}
		}
		if s.Target.Kind == state.KindHandle {
			if o != nil {
				return nil
			}
			return usedHandle(st, s.Guard(GuardName), s.Target.Name)
		}
		if err := releasedAffinity(st, s); err != nil {
			return err
		}
		return ownersAffinity(st, s.Target.CIDR, finishedHost(s))
	},
	// The affinity that goes with a marked block is deleted once the block is gone. If its
	// node has written it since, it is the node's.
	complete: func(b *Begun) Move {
		if b.Step.Target.Kind != state.KindBlock || blockAt(b.State, b.Step.Target.CIDR) != nil {
			return Move{}
		}
		if b.leftAffinity() != nil {
			return b.endAffinity()
		}
		a := affinityNamed(b.State, b.Step.Guard(GuardAffinity))
		if a == nil || a.SoftDeleted || !b.mine(a) || a.UID != b.Step.Guard(GuardAffinityUID) || string(a.Effective()) != b.Step.Guard(GuardAffinityState) {
			return Move{}
		}
		return b.deleteAffinity(a, "deleting the affinity of the block that was marked")
	},
	undo: func(*Begun) Move {
		return nothing(NotNeeded, "it was marked deleted before, and Calico itself would have removed it at its next reading")
	},
	pretend: func(x *pretence, step *Step) {
		switch step.Target.Kind {
		case state.KindBlock:
			x.noBlocks[step.Guard(GuardName)] = true
			x.noAffinities[step.Guard(GuardAffinity)] = true
		case state.KindAffinity:
			x.finishAffinity(step)
		case state.KindHandle:
			x.noHandles[step.Guard(GuardName)] = true
		}
	},
}

var resourceOf = map[string]blocks.Resource{
	state.KindBlock: blocks.Blocks, state.KindAffinity: blocks.Affinities, state.KindHandle: blocks.Handles,
}

// marked returns the object that stands where the target of a step stood; nil if
// there is none.
func marked(st *state.State, s *Step) *object {
	return objectNamed(st.Snapshot, resourceOf[s.Target.Kind], s.Guard(GuardName))
}

// finishedHost is the node whose affinity a step is about, or goes with its block.
func finishedHost(s *Step) string {
	if s.Target.Kind == state.KindBlock {
		return hostOf(s.Guard(GuardOwner))
	}
	return s.Target.Node
}

func doFinishDelete(ctx context.Context, w Writer, st *state.State, s *Step) error {
	m := marked(st, s)
	if m == nil {
		return errGone(s)
	}
	if err := w.FinishDelete(ctx, pin(resourceOf[s.Target.Kind], *m.Meta)); err != nil {
		return err
	}
	a := affinityNamed(st, s.Guard(GuardAffinity))
	if s.Target.Kind != state.KindBlock || a == nil {
		return nil
	}
	// Should the affinity have changed since, its node is claiming the CIDR again, and
	// it is not for us any more. Reading again tells.
	if err := w.DeleteAffinity(ctx, pin(blocks.Affinities, a.Meta)); err != nil && !errors.Is(err, ErrChanged) {
		return fmt.Errorf("block %s is gone, and its owner's affinity is left: %w", s.Target.CIDR, err)
	}
	return nil
}

// markAge says whether a mark has stood for the grace; an empty code if it has. A run
// of this program that marked an object deletes it within WriteTimeout or never.
func (p *proposals) markAge(m blocks.Meta) reason {
	last, known := m.LastWrite()
	at, now := last.Std(), p.st.Cluster.TakenAt
	switch {
	case !known || now.IsZero():
		return reason{RefusedUnknownAge, "nothing records when it was last written (kubectl hides managedFields unless asked with --show-managed-fields)"}
	case at.After(now):
		return reason{RefusedUnknownAge, "it was last written in the future, at " + phrase.Time(at)}
	case m.ByUs && now.Sub(at) < min(WriteTimeout, p.st.Grace):
		return because(RefusedYoung, "calico-audit marked it at %s, and that run may be about to delete it; plan again after %s",
			phrase.Time(at), phrase.Time(at.Add(min(WriteTimeout, p.st.Grace)).Add(time.Second-1).Truncate(time.Second)))
	case now.Sub(at) < p.st.Grace && !m.ByUs:
		return because(RefusedYoung, "it was written less than %s ago, at %s: the client that marked it may be about to delete it%s", p.st.Grace, phrase.Time(at), oldFrom(p.st, last))
	}
	return reason{}
}

// lastWrite returns the newest time that an object's metadata tell.
func lastWrite(m blocks.Meta) blocks.Time { return m.Written.Later(m.Created) }

func (p *proposals) finishBlock(b *state.Block) {
	c := blockConcern(b)
	if b.Owner != (blocks.Owner{}) && p.bars(c, special(b.Owner)) || p.bars(c, p.blockMustStay(b)) {
		return
	}
	pairs := append(p.markGuards(b.Meta), GuardOwner, ownerGuard(b.Owner))
	pinned, also := []blocks.Meta{b.Meta}, ""
	a := ownAffinity(p.st, b)
	if a != nil && a.SoftDeleted {
		a = nil
	}
	if pairs = append(pairs, affinityGuards(a, p.req.ObserveTwice)...); a != nil {
		pinned, also = append(pinned, a.Meta), ", with its owner's affinity, which would lead to no block"
	}
	p.add(c, Step{
		Because:  fmt.Sprintf("block %s of %s was marked deleted by %s and never removed; it holds no address and goes%s", b.CIDR, phrase.Owner(b.Owner), phrase.Time(lastWrite(b.Meta)), also),
		Evidence: state.Evidences("owner", phrase.Owner(b.Owner), "pool", poolName(b.Pool), "created", phrase.Time(b.Created), "last written", phrase.Time(b.Written)),
		Guards:   guards(pairs...),
	}, pinned...)
}

// markGuards pins an object that is marked deleted.
func (p *proposals) markGuards(m blocks.Meta) []string {
	return []string{
		GuardName, m.Name, GuardUID, m.UID, GuardVersion, onlyIf(p.req.ObserveTwice, m.ResourceVersion), GuardCreated, phrase.Time(m.Created),
	}
}

func (p *proposals) blockMustStay(b *state.Block) reason {
	st := p.st
	if b.Used > 0 {
		return because(RefusedInUse, "it is marked deleted and holds %s: the pods that use them must end first", phrase.Plural(b.Used, "address"))
	}
	if len(b.Faults) > 0 {
		return reason{RefusedCorrupt, "it is corrupt: " + b.Faults[0]}
	}
	if st.BlockObjects(b.CIDR) > 1 {
		return reason{RefusedConflict, "there are several block objects of this CIDR"}
	}
	if r := p.markAge(b.Meta); r.code != "" {
		return r
	}
	if who := st.UnrecordedUser(b.CIDR); who != "" {
		return reason{RefusedInUse, who + ", though the block does not record it"}
	}
	if uses := st.Views.UsesIn(b.CIDR); len(uses) > 0 {
		return because(RefusedHostView, "%s of it is in use in %s", uses[0].Addr, uses[0])
	}
	own := 0
	for _, a := range st.AffinitiesOf(b.CIDR) {
		if a.Owner == b.Owner && !a.SoftDeleted {
			own++
		}
	}
	switch {
	case own > 1:
		return reason{RefusedConflict, "its owner has several affinity objects to it"}
	case own == 0 && st.AffinityMayExist(b, b.Owner.Node()):
		return reason{RefusedNotRead, "an affinity that cannot be read may be its own"}
	}
	return reason{}
}

func (p *proposals) finishAffinity(a *blocks.Affinity) {
	c, b := p.affinityConcern(a), p.st.BlockOf(a.CIDR)
	if p.bars(c, cmp.Or(special(a.Owner), p.affinityMustStay(a, b))) {
		return
	}
	block := "none exists"
	if b != nil {
		block = fmt.Sprintf("%s, owner %s, %s in use", b.Name, phrase.Owner(b.Owner), phrase.Plural(b.Used, "address"))
	}
	p.add(c, Step{
		Because: fmt.Sprintf("affinity of %s to %s was marked deleted by %s and never removed", phrase.Owner(a.Owner), a.CIDR, phrase.Time(lastWrite(a.Meta))),
		Evidence: state.Evidences("state", string(a.Effective()), "block", block, "host", hostText(p.st, a.Owner.Node()),
			"created", phrase.Time(a.Created), "last written", phrase.Time(a.Written)),
		Guards: guards(p.markGuards(a.Meta)...),
	}, a.Meta)
}

func (p *proposals) affinityMustStay(a *blocks.Affinity, b *state.Block) reason {
	if r := p.markAge(a.Meta); r.code != "" {
		return r
	}
	switch {
	case p.st.BlockObjects(a.CIDR) > 1:
		return reason{RefusedConflict, "there are several block objects of its CIDR"}
	case p.st.BlockMayCover(a.CIDR):
		return reason{RefusedNotRead, "a block that cannot be read may be its own"}
	case b == nil:
		return p.retainedWithoutBlock(a)
	case len(b.Faults) > 0:
		return reason{RefusedCorrupt, "its block is corrupt, so its word about the owner is not relied on: " + b.Faults[0]}
	case b.Owner == a.Owner && b.Used > 0:
		return because(RefusedInUse, "its block still names %s and holds %s: without the affinity no node would route it. Once it is gone (Calico removes it when it next reads it by name), --missing-affinities restores it", phrase.Owner(a.Owner), phrase.Plural(b.Used, "address"))
	}
	return reason{}
}

func (p *proposals) finishHandle(h *blocks.Handle, doubt *handleDoubt) {
	c := handleConcern(p.st, h)
	var used, waited reason
	if n := len(p.st.HandleRefs(h.ID)); n > 0 {
		used = because(RefusedInUse, "blocks record %s under it: without it they could not be released", phrase.Plural(n, "address"))
	}
	if w := doubt.sandboxes[sandboxOf(h.ID)]; w != nil {
		waited = because(RefusedInUse, "pod %s names its sandbox, and may be about to use it", w.FullName())
	}
	if p.bars(c, cmp.Or(doubt.about(h), p.markAge(h.Meta), used, waited)) {
		return
	}
	p.add(c, Step{
		Because: fmt.Sprintf("handle %s was marked deleted by %s and never removed, and no block refers to it", h.ID, phrase.Time(lastWrite(h.Meta))),
		Evidence: state.Evidences("it counts", orAbsent(countsText(h.Blocks)), "created", phrase.Time(h.Created),
			"last written", phrase.Time(h.Written)),
		Guards: guards(p.markGuards(h.Meta)...),
	}, h.Meta)
}
