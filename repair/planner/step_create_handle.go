package planner

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/handles"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// createHandle creates a missing handle that blocks refer to, with the counts that the blocks
// record. Without it, Calico does not find the addresses to release when their pod is deleted.
// Unlike the other corrections of handles (see reconcileHandle), it has no object yet to pin, mark
// or restore.
var createHandle = &repair.StepKind{
	Kind:     repair.CreateHandle,
	Requires: state.HandleReads,
	AllPods:  true,
	Exact:    []string{repair.GuardName, repair.GuardUID, repair.GuardCounts},
	Rights:   []repair.Right{repair.May(blocks.Blocks, "get"), repair.May(blocks.Handles, "get create patch delete")},
	Propose: func(p *repair.Proposals) {
		if _, leftOut := p.State.HandlesLeftOut(); leftOut {
			p.Refuse(repair.Concern{Target: state.ClusterSubject(p.State)}, repair.RefusedNotRead, "no %s is planned, because the files hold no handle at all: they seem to have been made without ipamhandles", p.Kind.Kind)
			return
		}
		p.State.EachMissingHandle(func(id string, refs []state.AllocationRef) {
			if named := refs[0].Attributes().Handle; p.Wants(state.HandleSubject(named)) {
				proposeHandle(p, &blocks.Handle{Meta: blocks.Meta{Name: id}, ID: named}, refs)
			}
		})
	},
	AddRefs: handleStepRefs,
	Do: func(ctx context.Context, w repair.Writer, st *state.State, s *repair.Step) error {
		_, right := st.Miscounts(&blocks.Handle{ID: s.Target.Name})
		if len(right) == 0 {
			return repair.DeletedError(s)
		}
		return w.CreateHandle(ctx, s.Target.Name, right)
	},
	Verify: func(st *state.State, s *repair.Step) error {
		h := st.Handle(s.Target.Name)
		switch refs := st.HandleRefs(s.Target.Name); {
		case h == nil && len(refs) == 0: // released meanwhile
			return nil
		case h == nil:
			return fmt.Errorf("handle %s does not exist, and %s is recorded under it", s.Target.Name, refs[0].Addr())
		}
		return loweredHandle(st, s.Target.Name)
	},
	Undo: func(b *repair.Begun) repair.Move {
		if b.State.Handle(b.Step.Target.Name) == nil {
			return repair.Nothing(repair.Already, "the handle does not exist")
		}
		return repair.Cannot(repair.SkipHarm, "a handle that blocks refer to is not deleted again: the addresses under it could not be released")
	},
	Pretend: func(x *repair.Pretence, step *repair.Step) {
		x.AddHandle(step.Target.Name, parseCounts(step.Guard(repair.GuardCounts)))
	},
}

// proposeHandle proposes to create handle h, which refs refer to.
func proposeHandle(p *repair.Proposals, h *blocks.Handle, refs []state.AllocationRef) {
	c := handleConcern(p.State, h)
	if bars(p, c, handles.CreateBar(p.State, h)) {
		return
	}
	_, right := p.State.Miscounts(h)
	attr := refs[0].Attributes()
	p.Add(c, repair.Step{
		TwoObservations: true,
		Because:         fmt.Sprintf("handle %s does not exist, although blocks record it (addresses: %d)", h.ID, len(refs)),
		Evidence: state.Evidences("recorded are", countsText(right), "pod", podName(attr), "node", attr.Node,
			"assigned", attr.Assigned),
		Guards: repair.Guards(repair.GuardName, h.Name, repair.GuardUID, repair.Absent, repair.GuardCounts, countsGuard(right)),
	})
}
