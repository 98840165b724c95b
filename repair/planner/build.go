package planner

import (
	"cmp"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/repair"
)

// Build makes a plan from a state: its steps, its refusals with their reasons, and the manual
// steps. It reads and writes nothing. The same state and request give the same plan.
func Build(st *state.State, req repair.Request) *repair.Plan {
	report := audit.NewReport(st, &audit.Result{})
	req.ObserveTwice = req.ObserveTwice || st.Cluster.Ageless
	p := &repair.Plan{
		APIVersion: audit.APIVersion, Kind: repair.PlanKind, Cluster: report.Cluster,
		CreatedAt: audit.Time{Time: st.Cluster.TakenAt}, Grace: repair.Duration{Duration: st.Grace}, Request: req,
		Complete: st.Complete(), Steps: []repair.Step{}, Refused: []repair.Refusal{}, Manual: []repair.Manual{}, Before: report.Pools,
	}
	for _, g := range st.Gaps {
		p.Gaps = append(p.Gaps, g.String())
	}
	for _, k := range kinds {
		if k != setStrictAffinity {
			collect(p, st, k)
		}
	}
	if req.AfterRestore == repair.ResolveDuplicates {
		_, p.Refused = unresolved(st)
	}
	all := *p
	all.Steps, all.Refused = slices.Clone(p.Steps), slices.Clone(p.Refused)
	narrow(p, st)
	separate(p, st)
	order(p, st)
	limit(p, st)
	// The setting comes last, because freed blocks decide which nodes could not allocate under it.
	after := afterwards(st, p.Steps)
	collect(p, after, setStrictAffinity)
	limit(p, st)
	sayIdle(p, st, &all)
	conclude(p, st)
	p.Seal()
	return p
}

// Derive returns the step of an ID if the state calls for it, or why it is refused, or neither. It
// uses the same code as [Build], so it returns a step exactly if a plan made from the state would
// contain it. It ignores pools, nodes and the bound on steps.
func Derive(st *state.State, req repair.Request, id string) (*repair.Step, *repair.Refusal) {
	name, _, _ := strings.Cut(id, ":")
	if k := KindOf(repair.Kind(name)); k != nil {
		return k.Derive(st, req, id)
	}
	return nil, nil
}

func collect(p *repair.Plan, st *state.State, k *repair.StepKind) {
	if !p.Request.Asks(k.Kind) {
		return
	}
	x := repair.Propose(st, p.Request, k, "")
	p.Steps = append(p.Steps, x.Steps...)
	p.Refused = append(p.Refused, x.Refused...)
}

// narrow applies the request's filters. It keeps all steps of a group if it keeps one of them, and
// always keeps steps that remove what an earlier run left in place.
func narrow(p *repair.Plan, st *state.State) {
	kept := map[string]bool{}
	for i := range p.Steps {
		s := &p.Steps[i]
		if k := KindOf(s.Kind); s.Group() != "" && !k.Restores && !p.Request.Beside(st, s.Target, s.Pools, s.Nodes) {
			kept[s.Group()] = true
		}
	}
	p.Steps = slices.DeleteFunc(p.Steps, func(s repair.Step) bool {
		if s.Group() != "" {
			return !kept[s.Group()] && !Stands(&s, st)
		}
		return p.Request.Beside(st, s.Target, s.Pools, s.Nodes)
	})
	p.Refused = slices.DeleteFunc(p.Refused, func(r repair.Refusal) bool { return p.Request.Beside(st, r.Target, r.Pools, r.Nodes) })
}

// separate postpones moves of pods to a later plan if other steps change which blocks nodes may
// claim, or if a block is emptied at the same time: until then, the pods' new addresses are
// unknown. A consolidation or rehoming under way continues.
func separate(p *repair.Plan, st *state.State) {
	if slices.ContainsFunc(p.Steps, func(s repair.Step) bool { return Stands(&s, st) }) {
		return
	}
	for _, moves := range []struct {
		why   string
		first func(*repair.Step) bool
		later func(*repair.Step) bool
	}{
		{"the other steps come first, and may make it unnecessary", changesBlocks, func(s *repair.Step) bool { return s.Group() != "" }},
		{"a block is emptied first", emptiesBlock, func(s *repair.Step) bool { return s.Group() == remedies.Rehoming }},
	} {
		first, later := slices.IndexFunc(p.Steps, func(s repair.Step) bool { return moves.first(&s) }), slices.IndexFunc(p.Steps, func(s repair.Step) bool { return moves.later(&s) })
		if first < 0 || later < 0 {
			continue
		}
		p.Refused = append(p.Refused, repair.Refusal{
			Kind: repair.EvictPod, Target: state.ClusterSubject(st), Code: repair.RefusedNotYet, Reason: "no pod is moved yet: " + moves.why + ": plan again when this plan is done",
		})
		p.Steps = slices.DeleteFunc(p.Steps, func(s repair.Step) bool { return moves.later(&s) })
	}
}

func changesBlocks(s *repair.Step) bool {
	return s.Group() == "" && slices.Contains([]repair.Kind{
		repair.ReleaseBlock, repair.DisownBlock, repair.DeleteAffinity, repair.RestoreAffinity, repair.FinishDelete, repair.RecordIP, repair.ReleaseIP,
	}, s.Kind)
}

func emptiesBlock(s *repair.Step) bool { return s.Group() != "" && s.Group() != remedies.Rehoming }

func limit(p *repair.Plan, st *state.State) {
	n := p.Request.MaxSteps
	if n <= 0 || len(p.Steps) <= n {
		return
	}
	// A consolidation is carried out completely or not at all.
	within := slices.DeleteFunc(slices.Clone(p.Steps), func(s repair.Step) bool { return s.Group() != "" })
	if len(within) < len(p.Steps) && len(p.Steps)-len(within) <= n {
		within = slices.DeleteFunc(slices.Clone(p.Steps), func(s repair.Step) bool { return s.Group() == "" })
	}
	kept := map[string]bool{}
	for i := range within[:min(n, len(within))] {
		kept[within[i].ID] = true
	}
	taken := p.Steps
	p.Steps = nil
	for _, s := range taken {
		if kept[s.ID] || Stands(&s, st) {
			p.Steps = append(p.Steps, s)
			continue
		}
		p.Refused = append(p.Refused, repair.Refusal{
			Kind: s.Kind, Target: s.Target, Code: repair.RefusedLimit, Pools: s.Pools, Nodes: s.Nodes,
			Reason: "it is beyond the limit of steps (--max-steps): plan again when these are done",
		})
	}
}

// order sorts the steps for execution: by kind, then steps of pools without free blocks first,
// because nodes wait for them, then by address. Pods without a controller that recreates them are
// evicted last, because a refused eviction before them ends the run.
func order(p *repair.Plan, st *state.State) {
	scarce := map[string]bool{}
	for _, q := range st.Pools {
		scarce[q.Name] = q.ServesWorkloads() && q.Slots.Allocatable.IsZero()
	}
	urgency := func(pools []string) int {
		if slices.ContainsFunc(pools, func(name string) bool { return scarce[name] }) {
			return 0
		}
		return 1
	}
	bare := func(s *repair.Step) int {
		if s.Kind == repair.EvictPod && s.Guard(repair.GuardController) == repair.Absent {
			return 1
		}
		return 0
	}
	full := func(s *repair.Step) int { // a full block counts towards the node's block limit, too
		if b := repair.BlockAt(st, s.Target.CIDR); s.Kind == repair.RestoreAffinity && b != nil && st.Unused(b) == 0 {
			return 1
		}
		return 0
	}
	place := func(s *repair.Step) int {
		if s.Conditional() {
			return 2*rank(repair.EvictPod) + 1 // only the run knows before which eviction
		}
		return 2 * rank(s.Kind)
	}
	slices.SortStableFunc(p.Steps, func(a, b repair.Step) int {
		return cmp.Or(cmp.Compare(place(&a), place(&b)), cmp.Compare(bare(&a), bare(&b)), cmp.Compare(full(&a), full(&b)), cmp.Compare(urgency(a.Pools), urgency(b.Pools)),
			compareTargets(a.Target, b.Target), cmp.Compare(a.ID, b.ID))
	})
	slices.SortStableFunc(p.Refused, func(a, b repair.Refusal) int {
		return cmp.Or(cmp.Compare(rank(a.Kind), rank(b.Kind)), compareTargets(a.Target, b.Target),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Reason, b.Reason))
	})
}

// compareTargets orders subjects by address, then by name.
func compareTargets(a, b state.Subject) int {
	return cmp.Or(repair.PlaceOf(a).Addr().Compare(repair.PlaceOf(b).Addr()), cmp.Compare(repair.PlaceOf(a).Bits(), repair.PlaceOf(b).Bits()),
		cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Name, b.Name))
}

// sayIdle explains, for each kind of repair in a plan without steps, why there are none. It leaves
// out kinds with refusals. before is the plan without its filters.
func sayIdle(p *repair.Plan, st *state.State, before *repair.Plan) {
	if len(p.Steps) > 0 {
		return
	}
	refused := p.Refused
	for i := range repair.Requests {
		q := &repair.Requests[i]
		refuses := func(r repair.Refusal) bool { return slices.Contains(q.Steps, r.Kind) }
		if q.Field == nil || !q.In(&p.Request) || slices.ContainsFunc(refused, refuses) {
			continue // a warning reports that the setting already has this value
		}
		why := q.Idle
		switch of := KindOf(q.Steps[0]); {
		case slices.ContainsFunc(before.Refused, refuses) || slices.ContainsFunc(before.Steps, func(s repair.Step) bool { return slices.Contains(q.Steps, s.Kind) }):
			why = "all steps found are for pools, nodes, addresses or blocks that were not requested"
		case of.Idle != nil:
			why = of.Idle(st)
		}
		p.Refused = append(p.Refused, repair.Refusal{Kind: q.Steps[0], Target: state.ClusterSubject(st), Code: repair.RefusedNothing, Reason: why})
	}
}

// afterwards returns the state after the steps, if nothing else happens. A plan's "after" numbers
// come from it.
func afterwards(st *state.State, steps []repair.Step) *state.State {
	if len(steps) == 0 {
		return st
	}
	x := repair.NewPretence(st.Snapshot)
	for i := range steps {
		if k := KindOf(steps[i].Kind); k != nil {
			k.Pretend(x, &steps[i])
		}
	}
	return state.New(x.Done(), state.Options{Grace: max(st.Grace, 1)})
}
