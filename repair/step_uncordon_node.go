package repair

import (
	"context"
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// uncordonNode takes the cordon of a consolidation back: when it is done, and whatever
// ends it before.
var uncordonNode = &StepKind{
	kind: UncordonNode, flag: "--consolidate", restores: true,
	asked: func(r Request) bool { return r.Consolidate || r.Rehome },
	needs: []blocks.Resource{blocks.Nodes},
	plain: true,
	exact: []string{GuardName, GuardUID, GuardConsolidation},
	propose: func(p *proposals) {
		rehomed := p.consolidating() == nil && len(p.rehomes(false)) > 0
		full := remedies.Of(p.st).Full()
		marks := map[string]*remedies.Consolidation{}
		cordon := map[string]bool{}
		going := p.consolidating()
		for _, c := range p.takenBack() {
			marks[c.Name()] = c
			if going != nil && c.Name() == going.Name() {
				for _, name := range c.Cordon {
					cordon[name], marks[name] = true, c
				}
			}
		}
		for i := range p.st.Nodes {
			n := &p.st.Nodes[i]
			forRehome := rehomed && slices.Contains(full, n.Name)
			if n.Ours == "" && !cordon[n.Name] && !forRehome || n.Ours != "" && n.Ours != remedies.Rehoming && !p.req.Consolidate || !p.wants(state.NodeSubject(n.Name)) {
				continue
			}
			s := Step{
				Because: "it was cordoned while pods move, and takes no pods until it is uncordoned",
				Guards:  guards(GuardName, n.Name, GuardUID, n.UID, GuardConsolidation, n.Ours),
			}
			about := concern{state.NodeSubject(n.Name), nil, []string{n.Name}}
			if c := marks[n.Ours]; n.Ours != "" && c != nil {
				about = p.aboutAll(c, about.target)
			} else if c := marks[n.Name]; n.Ours == "" && c != nil {
				about = p.aboutAll(c, about.target)
				s.Guards = guards(GuardName, n.Name, GuardUID, n.UID, GuardConsolidation, c.Name())
			} else if n.Ours == "" || n.Ours == remedies.Rehoming {
				about = p.everyBorrower(about.target)
				s.Guards = guards(GuardName, n.Name, GuardUID, n.UID, GuardConsolidation, remedies.Rehoming)
			}
			p.add(about, s, n.Meta)
		}
	},
	refs: func(r *refs, s *Step) { r.one(blocks.Nodes, s.Target.Name) },
	act: func(ctx context.Context, w Workloads, st *state.State, s *Step) error {
		n := nodeNamed(st, s.Target.Name)
		if n == nil {
			return errGone(s)
		}
		return w.Uncordon(ctx, pin(blocks.Nodes, n.Meta), s.Guard(GuardConsolidation))
	},
	verify: func(st *state.State, s *Step) error {
		if n := nodeNamed(st, s.Target.Name); n != nil && n.Ours != "" && n.Ours == s.Group() {
			return left(blocks.Nodes, n.Name, "is left cordoned (%s)", fmt.Sprintf("for %s", n.Ours))
		}
		return nil
	},
	undo:    (*Begun).uncordon, // it was for a while only, and the run may have died before
	pretend: func(x *pretence, s *Step) { x.cordon(s.Target.Name, "") },
}
