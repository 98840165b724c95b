package repair

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// cordonNode keeps pods that move off a node that has no address of its own for them. A
// node that people have cordoned is not touched, then or later.
var cordonNode = &StepKind{
	kind: CordonNode, flag: "--consolidate",
	asked: func(r Request) bool { return r.Consolidate || r.Rehome },
	needs: state.ReleaseReads,
	whole: func(*Step) bool { return true },
	plain: true,
	exact: []string{GuardName, GuardUID, GuardConsolidation, GuardInNeed},
	propose: func(p *proposals) {
		c := p.consolidating()
		if c == nil && len(p.rehomes(false)) > 0 {
			p.cordonForRehome()
			return
		}
		if c == nil || c.Block == nil {
			return
		}
		for _, name := range c.Cordon {
			n := nodeNamed(p.st, name)
			if n == nil || n.Ours != "" || !p.wants(state.NodeSubject(name)) {
				continue
			}
			p.add(p.aboutAll(c, state.NodeSubject(name)), Step{
				Because: fmt.Sprintf("it has no address of its own for a pod that moves out of %s, which would borrow there or wait", c.CIDR),
				Guards:  joins(c, GuardName, name, GuardUID, n.UID),
			}, n.Meta)
		}
	},
	refs: func(r *refs, s *Step) {
		consolidationRefs(r, s)
		r.one(blocks.Nodes, s.Target.Name)
	},
	ready: (*Turn).afterReservation,
	act: func(ctx context.Context, w Workloads, st *state.State, s *Step) error {
		n := nodeNamed(st, s.Target.Name)
		if n == nil {
			return errGone(s)
		}
		return w.Cordon(ctx, pin(blocks.Nodes, n.Meta), s.Guard(GuardConsolidation))
	},
	verify: func(st *state.State, s *Step) error {
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
	undo: (*Begun).uncordon,
	pretend: func(x *pretence, s *Step) {
		x.cordon(s.Target.Name, s.Guard(GuardConsolidation))
	},
}

// cordonForRehome keeps pods that start again off nodes where they would borrow again.
func (p *proposals) cordonForRehome() {
	for _, name := range remedies.Of(p.st).Full() {
		n := nodeNamed(p.st, name)
		if n == nil || n.Ours != "" || !p.wants(state.NodeSubject(name)) {
			continue
		}
		p.add(p.everyBorrower(state.NodeSubject(name)), Step{
			Because: "it has no address of its own for a pod that starts again, which would borrow there once more",
			Guards:  guards(GuardName, name, GuardUID, n.UID, GuardConsolidation, remedies.Rehoming),
		}, n.Meta)
	}
}

// uncordon takes a cordon of ours back.
func (b *Begun) uncordon() Move {
	n := nodeNamed(b.State, b.Step.Target.Name)
	if n == nil || n.Ours == "" || n.Ours != b.Step.Group() {
		return nothing(NotNeeded, "the cordon is gone, or another consolidation's")
	}
	ref, mark := pin(blocks.Nodes, n.Meta), n.Ours
	return toWrite(func(ctx context.Context) error { return b.Workloads.Uncordon(ctx, ref, mark) }, "uncordon node %s", n.Name)
}
