package repair

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// finishDelete deletes what was marked deleted and left. The mark is a state of the
// object itself, so that its written age suffices. A marked block takes its owner's
// affinity with it, as the release that was begun would have: left alone, it would
// lead to no block.
var finishDelete = &stepKind{
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
			if b.SoftDeleted && p.wants(audit.BlockSubject(b)) {
				p.finishBlock(b)
			}
		}
		for i := range p.st.Affinities {
			if a := &p.st.Affinities[i]; a.SoftDeleted && p.wants(audit.AffinitySubject(a)) {
				p.finishAffinity(a)
			}
		}
		doubt := newHandleDoubt(p.st)
		for i := range p.st.Handles {
			if h := &p.st.Handles[i]; h.SoftDeleted && p.wants(audit.HandleSubject(h.ID)) {
				p.finishHandle(h, doubt)
			}
		}
	},
	refs: func(st *audit.State, s *Step) []blocks.Ref {
		if s.Target.Kind == audit.KindHandle {
			return handleStepRefs(st, s)
		}
		r := newRefs(st)
		cidr, host := prefixOf(s.Target), s.Target.Node
		r.one(resourceOf[s.Target.Kind], s.Guard(GuardName))
		if s.Target.Kind == audit.KindBlock {
			host = hostOf(s.Guard(GuardOwner))
		}
		r.block(cidr)
		r.claims(cidr, host)
		r.node(host)
		return r.out
	},
	do: doFinishDelete,
	verify: func(st *audit.State, s *Step) error {
		m := marked(st, s)
		if m != nil {
			if err := replaced(s, wordOf[s.Target.Kind], *m); err != nil {
				return err
			}
		}
		switch s.Target.Kind {
		case audit.KindHandle:
			if m == nil {
				return usedHandle(st, s.Guard(GuardName), s.Target.Name)
			}
			return nil
		case audit.KindBlock:
			if err := releasedAffinity(st, s); err != nil {
				return err
			}
			return ownersAffinity(st, s.Target.CIDR, hostOf(s.Guard(GuardOwner)))
		}
		return ownersAffinity(st, s.Target.CIDR, s.Target.Node)
	},
	// The affinity that goes with a marked block is deleted once the block is gone. If its
	// node has written it since, it is the node's.
	complete: func(b *begun) move {
		if b.step.Target.Kind != audit.KindBlock || blockAt(b.state, b.step.Target.CIDR) != nil {
			return move{}
		}
		if b.leftAffinity() != nil {
			return b.endAffinity()
		}
		a := affinityNamed(b.state, b.step.Guard(GuardAffinity))
		if a == nil || a.SoftDeleted || !b.mine(a) || a.UID != b.step.Guard(GuardAffinityUID) || string(a.Effective()) != b.step.Guard(GuardAffinityState) {
			return move{}
		}
		return b.deleteAffinity(a, "deleting the affinity of the block that was marked")
	},
	undo: func(*begun) move {
		return nothing(NotNeeded, "it was marked deleted before, and Calico itself would have removed it at its next reading")
	},
	pretend: func(x *pretence, step *Step) {
		switch step.Target.Kind {
		case audit.KindBlock:
			x.noBlocks[step.Guard(GuardName)] = true
			x.noAffinities[step.Guard(GuardAffinity)] = true
		case audit.KindAffinity:
			x.finishAffinity(step)
		case audit.KindHandle:
			x.noHandles[step.Guard(GuardName)] = true
		}
	},
}

var (
	resourceOf = map[string]blocks.Resource{
		audit.KindBlock: blocks.Blocks, audit.KindAffinity: blocks.Affinities, audit.KindHandle: blocks.Handles,
	}
	wordOf = map[string]string{audit.KindBlock: "block", audit.KindAffinity: "affinity", audit.KindHandle: "handle"}
)

// marked returns the object that stands where the target of a step stood; nil if
// there is none.
func marked(st *audit.State, s *Step) *blocks.Meta {
	switch s.Target.Kind {
	case audit.KindBlock:
		if b := blockAt(st, s.Target.CIDR); b != nil {
			return &b.Meta
		}
	case audit.KindAffinity:
		if a := affinityNamed(st, s.Guard(GuardName)); a != nil {
			return &a.Meta
		}
	case audit.KindHandle:
		if h := handleNamed(st, s.Guard(GuardName)); h != nil {
			return &h.Meta
		}
	}
	return nil
}

func doFinishDelete(ctx context.Context, w Writer, st *audit.State, s *Step) error {
	m := marked(st, s)
	if m == nil {
		return errGone(s)
	}
	if err := w.FinishDelete(ctx, pin(resourceOf[s.Target.Kind], *m)); err != nil {
		return err
	}
	a := affinityNamed(st, s.Guard(GuardAffinity))
	if s.Target.Kind != audit.KindBlock || a == nil {
		return nil
	}
	// Should the affinity have changed since, its node is claiming the CIDR anew, and
	// it is not for us any more. Reading again tells.
	if err := w.DeleteAffinity(ctx, pin(blocks.Affinities, a.Meta)); err != nil && !errors.Is(err, ErrChanged) {
		return fmt.Errorf("block %s is gone, and its owner's affinity is left: %w", s.Target.CIDR, err)
	}
	return nil
}

// markAge says whether a mark has stood for the grace; an empty code if it has. A run
// of this program that marked an object deletes it within writeTimeout or never.
func (p *proposals) markAge(m blocks.Meta) (RefusalCode, string) {
	at, known := m.LastWrite()
	now := p.st.Cluster.TakenAt
	switch {
	case !known || now.IsZero():
		return RefusedUnknownAge, "nothing records when it was last written (kubectl hides managedFields unless asked with --show-managed-fields)"
	case at.After(now):
		return RefusedUnknownAge, "it was last written in the future, at " + audit.FormatTime(at)
	case m.ByUs && now.Sub(at) < min(writeTimeout, p.st.Grace):
		return RefusedYoung, fmt.Sprintf("calico-audit marked it at %s, and that run may be about to delete it; plan again after %s",
			audit.FormatTime(at), audit.FormatTime(at.Add(min(writeTimeout, p.st.Grace)).Add(time.Second-1).Truncate(time.Second)))
	case now.Sub(at) < p.st.Grace && !m.ByUs:
		return RefusedYoung, fmt.Sprintf("it was written less than %s ago, at %s: whoever marked it may be about to delete it", p.st.Grace, audit.FormatTime(at)) + oldFrom(p.st, at)
	}
	return "", ""
}

// lastWrite returns the newest time that an object's metadata tell.
func lastWrite(m blocks.Meta) time.Time {
	if m.Created.After(m.Written) {
		return m.Created
	}
	return m.Written
}
