package planner

import (
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// Confirm makes the plan of a second reading, and keeps only the steps that the first plan also
// has. Objects of different kinds are read one after the other, so an object that appears or
// disappears in between looks like damage in one reading only. The first plan should have no bound
// on steps. Steps that only the second reading gives are refused and reported. [audit.Confirm] is
// different: it compares findings by fingerprint and severity, while Confirm compares steps by the
// guards of their kind.
func Confirm(first *repair.Plan, st *state.State, req repair.Request) *repair.Plan {
	unbounded := req
	unbounded.MaxSteps = 0
	p := Build(st, unbounded)
	seen := map[string]*repair.Step{}
	for i := range first.Steps {
		seen[first.Steps[i].ID] = &first.Steps[i]
	}
	p.Steps = slices.DeleteFunc(p.Steps, func(s repair.Step) bool {
		if before := seen[s.ID]; before != nil && KindOf(s.Kind).Changed(st, before, &s) == "" {
			return false
		}
		p.Refused = append(p.Refused, repair.Refusal{
			Kind: s.Kind, Target: s.Target, Code: repair.RefusedUnconfirmed, Pools: s.Pools, Nodes: s.Nodes,
			Reason: "two consecutive readings disagree about it: it is changing right now",
		})
		return true
	})
	p.Request.MaxSteps = req.MaxSteps
	limit(p, st)
	conclude(p, st)
	p.Seal()
	return p
}

// conclude orders a plan's steps, and computes the numbers that follow from them.
func conclude(p *repair.Plan, st *state.State) {
	order(p, st)
	if want := p.Request.StrictAffinity; want != nil && *want != st.IPAM.StrictAffinity && st.FirstMissing(setStrictAffinity.Requires) == nil {
		freed := slices.DeleteFunc(slices.Clone(p.Steps), func(s repair.Step) bool { return s.Kind == repair.SetStrictAffinity })
		p.Strict = previewStrict(st, afterwards(st, freed), *want)
	}
	after := afterwards(st, p.Steps)
	report := audit.NewReport(after, &audit.Result{})
	p.After, p.AfterBlocks = report.Pools, report.Blocks
	for i := range p.Steps {
		takeAgain(p, &p.Steps[i])
	}
	p.Manual = append([]repair.Manual{}, manual(st, after, p)...)
	p.Manual = slices.DeleteFunc(p.Manual, func(m repair.Manual) bool { return !p.Request.Aims(st, m.Target) })
	p.Warnings = warnings(st, after, p)
}

// takeAgain counts the address of an evicted pod's replacement. It usually comes from the same
// pool, so an eviction frees no address on balance.
func takeAgain(p *repair.Plan, s *repair.Step) {
	addr, err := netip.ParseAddr(s.Target.IP)
	if s.Kind != repair.EvictPod || s.Guard(repair.GuardController) == repair.Absent || s.Guard(repair.GuardBlock) == repair.Absent || err != nil {
		return
	}
	for i := range p.After {
		if cidr, err := netip.ParsePrefix(p.After[i].CIDR); err == nil && cidr.Contains(addr) && slices.Contains(s.Pools, p.After[i].Name) {
			a, one := &p.After[i].Addresses, blocks.CountOf(1)
			a.InUse, a.Available = a.InUse.Add(one), a.Available.Sub(one)
		}
	}
}
