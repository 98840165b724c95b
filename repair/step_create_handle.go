package repair

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// createHandle makes a handle that blocks refer to and that does not exist, with the
// counts that the blocks record: without it Calico does not find the addresses to
// release when their pod goes. It is the third way in which a handle is made to count
// what the blocks record (see reconcileHandle).
var createHandle = &StepKind{
	kind:  CreateHandle,
	flag:  "--missing-handles",
	asked: func(r Request) bool { return r.MissingHandles },
	needs: []blocks.Resource{blocks.Handles, blocks.Blocks, blocks.Pods},
	exact: []string{GuardName, GuardUID, GuardCounts},
	propose: func(p *proposals) {
		if p.podsUnread() {
			return
		}
		if p.st.HandlesLeftOut() {
			p.refuse(concern{target: state.ClusterSubject(p.st)}, RefusedNotRead, "no %s is planned, because the files hold no handle at all: they seem to have been made without ipamhandles", p.kind.kind)
			return
		}
		doubt := newHandleDoubt(p.st)
		for _, id := range p.st.ReferencedHandles() {
			refs := p.st.HandleRefs(id)
			named := refs[0].Attributes().Handle
			if p.st.Handle(named) == nil && p.wants(state.HandleSubject(named)) {
				p.proposeHandle(&blocks.Handle{Meta: blocks.Meta{Name: id}, ID: named}, refs, doubt)
			}
		}
	},
	refs: handleStepRefs,
	do: func(ctx context.Context, w Writer, st *state.State, s *Step) error {
		_, right := st.Miscounts(&blocks.Handle{ID: s.Target.Name})
		if len(right) == 0 {
			return errGone(s)
		}
		return w.CreateHandle(ctx, s.Target.Name, right)
	},
	verify: func(st *state.State, s *Step) error {
		h := st.Handle(s.Target.Name)
		switch refs := st.HandleRefs(s.Target.Name); {
		case h == nil && len(refs) == 0: // given back meanwhile
			return nil
		case h == nil:
			return fmt.Errorf("handle %s does not exist, and %s is recorded under it", s.Target.Name, refs[0].Addr())
		}
		return loweredHandle(st, s.Target.Name)
	},
	undo: func(b *Begun) Move {
		if b.State.Handle(b.Step.Target.Name) == nil {
			return nothing(Already, "the handle does not exist")
		}
		return cannot(SkipHarm, "a handle that blocks refer to is not deleted again: the addresses under it could not be released")
	},
	pretend: func(x *pretence, step *Step) {
		x.addHandle(step.Target.Name, parseCounts(step.Guard(GuardCounts)))
	},
}

// proposeHandle proposes to create a handle, h, that refs refer to.
func (p *proposals) proposeHandle(h *blocks.Handle, refs []state.AllocationRef, doubt *handleDoubt) {
	c := handleConcern(p.st, h)
	for _, r := range refs {
		switch o := r.Block.Owner; {
		case r.Block.SoftDeleted:
			p.refuse(c, RefusedMarked, "block %s, which refers to it, is marked deleted", r.Block.CIDR)
			return
		case o != (blocks.Owner{}) && p.bars(c, special(o)):
			return
		}
	}
	for _, g := range p.st.Unreadable(blocks.Handles) {
		if g.Name == h.Name {
			p.refuse(c, RefusedNotRead, "it exists, and cannot be read")
			return
		}
	}
	if p.bars(c, doubt.inFlight(h, refs)) {
		return
	}
	_, right := p.st.Miscounts(h)
	attr := refs[0].Attributes()
	p.add(c, Step{
		TwoObservations: true,
		Because:         fmt.Sprintf("handle %s does not exist, and %s recorded under it", h.ID, phrase.NumberIs(len(refs), "address")),
		Evidence: state.Evidences("recorded are", countsText(right), "pod", podName(attr), "node", attr.Node,
			"assigned", phrase.Time(attr.Assigned)),
		Guards: guards(GuardName, h.Name, GuardUID, Absent, GuardCounts, countsGuard(right)),
	})
}
