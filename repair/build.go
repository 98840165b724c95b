package repair

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
)

// Build makes a plan from a state: what would be done, what must not be and why,
// and what people should do. It reads and writes nothing. The same state and
// request give the same plan.
func Build(st *state.State, req Request) *Plan {
	report := audit.NewReport(st, &audit.Result{})
	p := &Plan{
		APIVersion: audit.APIVersion, Kind: PlanKind, Cluster: report.Cluster,
		CreatedAt: audit.Time{Time: st.Cluster.TakenAt}, Grace: Duration{st.Grace}, Request: req,
		Complete: st.Complete(), Steps: []Step{}, Refused: []Refusal{}, Manual: []Manual{}, Before: report.Pools,
	}
	for _, g := range st.Gaps {
		p.Gaps = append(p.Gaps, g.String())
	}
	for _, k := range kinds {
		if k != setStrictAffinity {
			p.collect(st, k)
		}
	}
	all := *p
	all.Steps, all.Refused = slices.Clone(p.Steps), slices.Clone(p.Refused)
	p.narrow(st)
	p.sort(st)
	p.limit(st)
	// The setting comes last: whom it would starve depends on what is freed before.
	after := afterwards(st, p.Steps)
	p.collect(after, setStrictAffinity)
	p.limit(st)
	p.sayIdle(st, &all)
	p.conclude(st)
	p.Seal()
	return p
}

// Derive returns the step of an ID if the state gives reason for it, or why it is
// refused, or neither. It is the same code that [Build] uses, so that a step comes
// out of a state if and only if a plan made of that state would have it. Pools,
// nodes and the bound on steps are not looked at.
func Derive(st *state.State, req Request, id string) (*Step, *Refusal) {
	name, _, _ := strings.Cut(id, ":")
	if k := KindOf(Kind(name)); k != nil {
		return k.derive(st, req, id)
	}
	return nil, nil
}

// derive is [Derive] for a step of the kind.
func (k *StepKind) derive(st *state.State, req Request, id string) (*Step, *Refusal) {
	if !k.asked(req) {
		return nil, nil
	}
	x := propose(st, req, k, id)
	switch {
	case len(x.steps) > 0:
		return &x.steps[0], nil
	case len(x.refused) > 0:
		return nil, &x.refused[0]
	}
	return nil, nil
}

// propose asks one kind what it finds; only is the ID of the one step that is of
// interest, or empty.
func propose(st *state.State, req Request, k *StepKind, only string) *proposals {
	x := &proposals{st: st.WithTerminated(req.Terminated), req: req, kind: k, only: only}
	if x.unread() {
		return x
	}
	k.propose(x)
	x.dropAmbiguous()
	return x
}

// dropAmbiguous refuses steps that several objects give the same identity: which
// one is meant cannot be told.
func (p *proposals) dropAmbiguous() {
	count := map[string]int{}
	for i := range p.steps {
		count[p.steps[i].ID]++
	}
	p.steps = slices.DeleteFunc(p.steps, func(s Step) bool {
		if count[s.ID] < 2 {
			return false
		}
		p.refuse(concern{s.Target, s.Pools, s.Nodes}, RefusedConflict, "there are %d objects that say the same of it, object %s among them: look at them by hand", count[s.ID], s.Target.Name)
		return true
	})
}

func (p *Plan) collect(st *state.State, k *StepKind) {
	if !k.asked(p.Request) {
		return
	}
	x := propose(st, p.Request, k, "")
	p.Steps = append(p.Steps, x.steps...)
	p.Refused = append(p.Refused, x.refused...)
}

// narrow keeps what the request's filters do not leave out: what belongs together if any
// of it is kept; and always what takes back something that is there.
func (p *Plan) narrow(st *state.State) {
	kept := map[string]bool{}
	for i := range p.Steps {
		s := &p.Steps[i]
		if k := KindOf(s.Kind); s.Group() != "" && !k.restores && !p.Request.beside(st, s.Target, s.Pools, s.Nodes) {
			kept[s.Group()] = true
		}
	}
	p.Steps = slices.DeleteFunc(p.Steps, func(s Step) bool {
		if s.Group() != "" {
			return !kept[s.Group()] && !s.Stands(st)
		}
		return p.Request.beside(st, s.Target, s.Pools, s.Nodes)
	})
	p.Refused = slices.DeleteFunc(p.Refused, func(r Refusal) bool { return p.Request.beside(st, r.Target, r.Pools, r.Nodes) })
}

// limit cuts steps off beyond the bound, and says so of each.
func (p *Plan) limit(st *state.State) {
	n := p.Request.MaxSteps
	if n <= 0 || len(p.Steps) <= n {
		return
	}
	// A consolidation is carried out whole or not at all.
	within := slices.DeleteFunc(slices.Clone(p.Steps), func(s Step) bool { return s.Group() != "" })
	if len(within) < len(p.Steps) && len(p.Steps)-len(within) <= n {
		within = slices.DeleteFunc(slices.Clone(p.Steps), func(s Step) bool { return s.Group() == "" })
	}
	within = within[:min(n, len(within))]
	taken := p.Steps
	p.Steps = slices.DeleteFunc(slices.Clone(taken), func(s Step) bool {
		return !s.Stands(st) && !slices.ContainsFunc(within, func(w Step) bool { return w.ID == s.ID })
	})
	for _, s := range taken {
		if slices.ContainsFunc(p.Steps, func(w Step) bool { return w.ID == s.ID }) {
			continue
		}
		p.Refused = append(p.Refused, Refusal{
			Kind: s.Kind, Target: s.Target, Code: RefusedLimit, Pools: s.Pools, Nodes: s.Nodes,
			Reason: "it is beyond the bound on steps (--max-steps): plan again when these are done",
		})
	}
}

// sort puts the steps into the order in which they are carried out: by kind; then
// those of pools that have no block left, for whom others wait; then by address.
func (p *Plan) sort(st *state.State) {
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
	slices.SortStableFunc(p.Steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(rank(a.Kind), rank(b.Kind)), cmp.Compare(urgency(a.Pools), urgency(b.Pools)),
			compareTargets(a.Target, b.Target), cmp.Compare(a.ID, b.ID))
	})
	slices.SortStableFunc(p.Refused, func(a, b Refusal) int {
		return cmp.Or(cmp.Compare(rank(a.Kind), rank(b.Kind)), compareTargets(a.Target, b.Target),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Reason, b.Reason))
	})
}

// compareTargets orders subjects by address, then by name.
func compareTargets(a, b state.Subject) int {
	return cmp.Or(placeOf(a).Addr().Compare(placeOf(b).Addr()), cmp.Compare(placeOf(a).Bits(), placeOf(b).Bits()),
		cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Name, b.Name))
}

func placeOf(s state.Subject) netip.Prefix {
	if a, err := netip.ParseAddr(s.IP); err == nil {
		return netip.PrefixFrom(a, a.BitLen())
	}
	c, _ := netip.ParsePrefix(s.CIDR)
	return c
}
