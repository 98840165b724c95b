package repair

import (
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
)

// Confirm makes the plan of a second reading, and holds only the steps that the
// first one gave as well: objects of different kinds are read one after the other,
// and what came or went in between looks like damage in one reading and not in the
// next. The first plan should be made without a bound on steps. What only the
// second reading gives is refused, and said.
func Confirm(first *Plan, st *state.State, req Request) *Plan {
	unbounded := req
	unbounded.MaxSteps = 0
	p := Build(st, unbounded)
	seen := map[string]*Step{}
	for i := range first.Steps {
		seen[first.Steps[i].ID] = &first.Steps[i]
	}
	p.Steps = slices.DeleteFunc(p.Steps, func(s Step) bool {
		if before := seen[s.ID]; before != nil && changed(kindOf(s.Kind), st, before, &s) == nil {
			return false
		}
		p.Refused = append(p.Refused, Refusal{
			Kind: s.Kind, Target: s.Target, Code: RefusedUnconfirmed, Pools: s.Pools, Nodes: s.Nodes,
			Reason: "two readings, one right after the other, do not agree about it: it is changing just now",
		})
		return true
	})
	p.Request.MaxSteps = req.MaxSteps
	p.limit(st)
	p.conclude(st)
	p.Seal()
	return p
}

// conclude orders a plan's steps, and computes what follows from them.
func (p *Plan) conclude(st *state.State) {
	p.sort(st)
	if p.Request.StrictAffinity != nil && st.FirstMissing(setStrictAffinity.needs) == nil {
		freed := slices.DeleteFunc(slices.Clone(p.Steps), func(s Step) bool { return s.Kind == SetStrictAffinity })
		p.Strict = previewStrict(st, afterwards(st, freed), *p.Request.StrictAffinity)
	}
	after := afterwards(st, p.Steps)
	p.After = audit.NewReport(after, &audit.Result{}).Pools
	p.Manual = append([]Manual{}, manual(st, after, p)...)
	p.Manual = slices.DeleteFunc(p.Manual, func(m Manual) bool { return !p.Request.aims(st, m.Target) })
	p.Warnings = warnings(st, after, p)
}
