package moves

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// Uncordon removes the cordon of a consolidation when it is done or ends early.
var Uncordon = &repair.StepKind{
	Kind: repair.UncordonNode, Restores: true,
	Requires:   []blocks.Resource{blocks.Nodes},
	Plain:      true,
	Exact:      []string{repair.GuardName, repair.GuardUID, repair.GuardConsolidation},
	Rights:     []repair.Right{repair.May(blocks.Nodes, "get patch"), repair.LeaseRight},
	UndoRights: []repair.Right{repair.May(blocks.Nodes, "get patch"), repair.LeaseRight},
	Propose: func(p *repair.Proposals) {
		rehomed := Consolidating(p) == nil && len(rehomes(p, false)) > 0
		full := remedies.Of(p.State).Full()
		if rehomed {
			full = slices.Concat(full, remedies.Of(p.State).MayFill(rehomes(p, false), nil, full))
		}
		marks := map[string]*remedies.Consolidation{}
		cordon := map[string]bool{}
		going := Consolidating(p)
		every := sync.OnceValue(func() repair.Concern { return everyBorrower(p) })
		for _, c := range takenBack(p) {
			marks[c.Name()] = c
			if going != nil && c.Name() == going.Name() {
				for _, name := range slices.Concat(c.Cordon, remedies.Of(p.State).MayFill(c.Moves, c.Block, c.Cordon)) {
					cordon[name], marks[name] = true, c
				}
			}
		}
		for i := range p.State.Nodes {
			n := &p.State.Nodes[i]
			forRehome := rehomed && slices.Contains(full, n.Name)
			if n.Ours == "" && !cordon[n.Name] && !forRehome || n.Ours != "" && n.Ours != remedies.Rehoming && !p.Request.Consolidate || !p.Wants(state.NodeSubject(n.Name)) {
				continue
			}
			s := repair.Step{
				Because: "it was cordoned while pods move, and takes no pods until it is uncordoned",
				Guards:  repair.Guards(repair.GuardName, n.Name, repair.GuardUID, n.UID(), repair.GuardConsolidation, n.Ours),
			}
			about := repair.Concern{Target: state.NodeSubject(n.Name), Pools: nil, Nodes: []string{n.Name}}
			if c := marks[n.Ours]; n.Ours != "" && c != nil {
				about = AboutAll(c, about.Target)
			} else if c := marks[n.Name]; n.Ours == "" && c != nil {
				about = AboutAll(c, about.Target)
				s.Guards = repair.Guards(repair.GuardName, n.Name, repair.GuardUID, n.UID(), repair.GuardConsolidation, c.Name())
			} else if n.Ours == "" || n.Ours == remedies.Rehoming {
				target := about.Target
				about = every()
				about.Target = target
				s.Guards = repair.Guards(repair.GuardName, n.Name, repair.GuardUID, n.UID(), repair.GuardConsolidation, remedies.Rehoming)
			}
			p.Add(about, s, n.Meta)
		}
	},
	AddRefs: func(r *repair.Refs, s *repair.Step) { r.One(blocks.Nodes, s.Target.Name) },
	Act: func(ctx context.Context, w repair.Workloads, st *state.State, s *repair.Step) error {
		n := nodeNamed(st, s.Target.Name)
		if n == nil {
			return repair.DeletedError(s)
		}
		return w.Uncordon(ctx, repair.Pin(blocks.Nodes, n.Meta), s.Guard(repair.GuardConsolidation))
	},
	Verify: func(st *state.State, s *repair.Step) error {
		if n := nodeNamed(st, s.Target.Name); n != nil && n.Ours != "" && n.Ours == s.Group() {
			return repair.LeftBehind(blocks.Nodes, n.Name, "is left cordoned (%s)", fmt.Sprintf("for %s", n.Ours))
		}
		return nil
	},
	Undo:    uncordon, // the cordon is temporary, and the run may have died before removing it
	Pretend: func(x *repair.Pretence, s *repair.Step) { x.Cordon(s.Target.Name, "") },
}
