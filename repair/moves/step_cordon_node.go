package moves

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// Cordon keeps moving pods off a node that has no address of its own for them. It never
// touches a node that people have cordoned.
var Cordon = &repair.StepKind{
	Kind:       repair.CordonNode,
	Requires:   state.ReleaseReads,
	RestsOnAll: func(*repair.Step) bool { return true },
	Plain:      true,
	Exact:      []string{repair.GuardName, repair.GuardUID, repair.GuardConsolidation, repair.GuardForNode},
	Rights:     []repair.Right{repair.May(blocks.Nodes, "get patch"), repair.LeaseRight},
	UndoRights: []repair.Right{repair.May(blocks.Nodes, "get patch"), repair.LeaseRight},
	Propose: func(p *repair.Proposals) {
		c := Consolidating(p)
		if c == nil && len(rehomes(p, false)) > 0 {
			cordonForRehome(p)
			return
		}
		if c == nil || c.Block == nil {
			return
		}
		for _, name := range c.Cordon {
			cordon(p, AboutAll(c, state.NodeSubject(name)), Joins(c), "",
				fmt.Sprintf("it has no free address of its own: a pod that moves out of %s would borrow or wait there", c.CIDR))
		}
		for _, name := range remedies.Of(p.State).MayFill(c.Moves, c.Block, c.Cordon) {
			cordon(p, AboutAll(c, state.NodeSubject(name)), Joins(c), repair.WhenFull,
				fmt.Sprintf("it takes pods that move out of %s until its own free addresses are used up", c.CIDR))
		}
	},
	AddRefs: func(r *repair.Refs, s *repair.Step) {
		consolidationRefs(r, s)
		r.One(blocks.Nodes, s.Target.Name)
	},
	Due: AfterReservation,
	Act: func(ctx context.Context, w repair.Workloads, st *state.State, s *repair.Step) error {
		n := nodeNamed(st, s.Target.Name)
		if n == nil {
			return repair.DeletedError(s)
		}
		return w.Cordon(ctx, repair.Pin(blocks.Nodes, n.Meta), s.Guard(repair.GuardConsolidation))
	},
	Verify: func(st *state.State, s *repair.Step) error {
		over := passed(st, s)
		if s.Group() == remedies.Rehoming {
			now, _ := remedies.Of(st).Rehomes()
			over = len(now) == 0
		}
		if n := nodeNamed(st, s.Target.Name); n != nil && !n.Unschedulable && !over {
			return fmt.Errorf("node %s is not cordoned", n.Name)
		}
		return nil
	},
	Undo: uncordon,
	Pretend: func(x *repair.Pretence, s *repair.Step) {
		x.Cordon(s.Target.Name, s.Guard(repair.GuardConsolidation))
	},
}

// cordonForRehome keeps restarted pods off nodes where they would borrow again.
func cordonForRehome(p *repair.Proposals) {
	about, full := everyBorrower(p), remedies.Of(p.State).Full()
	joins := repair.Guards(repair.GuardConsolidation, remedies.Rehoming)
	for _, name := range full {
		about.Target = state.NodeSubject(name)
		cordon(p, about, joins, "", "it has no free address of its own: a restarted pod would borrow there again")
	}
	for _, name := range remedies.Of(p.State).MayFill(rehomes(p, false), nil, full) {
		about.Target = state.NodeSubject(name)
		cordon(p, about, joins, repair.WhenFull, "it takes restarted pods until its own free addresses are used up")
	}
}

// cordon proposes to cordon a node, immediately or under a condition, unless the node has our
// mark.
func cordon(p *repair.Proposals, about repair.Concern, joins []repair.Guard, when, why string) {
	n := nodeNamed(p.State, about.Target.Name)
	if n == nil || n.Ours != "" || !p.Wants(about.Target) {
		return
	}
	guards := repair.Guards(repair.GuardName, n.Name, repair.GuardUID, n.UID())
	if when != "" {
		guards = append(guards, repair.Guards(repair.GuardWhen, when)...)
	}
	p.Add(about, repair.Step{Because: why, Guards: append(guards, joins...)}, n.Meta)
}

// uncordon removes a cordon of calico-audit.
func uncordon(b *repair.Begun) repair.Move {
	n := nodeNamed(b.State, b.Step.Target.Name)
	if n == nil || n.Ours == "" || n.Ours != b.Step.Group() {
		return repair.Nothing(repair.NotNeeded, "the cordon is gone, or belongs to another consolidation")
	}
	ref, mark := repair.Pin(blocks.Nodes, n.Meta), n.Ours
	return repair.ToWrite(func(ctx context.Context) error { return b.Workloads.Uncordon(ctx, ref, mark) }, "uncordon node %s", n.Name)
}
