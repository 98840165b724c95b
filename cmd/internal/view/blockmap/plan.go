package blockmap

import (
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/repair"
)

// BeforeAfter holds the maps of a pool before and after a plan.
type BeforeAfter struct{ Before, After *Pool }

// OfPlan returns the maps of the pools that a plan changes, before and after it; none if
// the report has no map. The cells of both refer to blocks by their index in the report.
func OfPlan(r *audit.Report, plan *repair.Plan) (out []BeforeAfter) {
	if r == nil || len(plan.Steps) == 0 || !Drawable(r) {
		return nil
	}
	left := AfterPlan(r, plan)
	before, after := New(r, plan), New(left, nil)
	var kept []int // indexes in the report of the remaining blocks
	for i := range r.Blocks {
		if len(kept) < len(left.Blocks) && r.Blocks[i].CIDR == left.Blocks[len(kept)].CIDR {
			kept = append(kept, i)
		}
	}
	for i := range before.Pools {
		m := &before.Pools[i]
		if !slices.ContainsFunc(m.Cells, func(c Cell) bool { return c.Planned }) || m.Pool < 0 || i >= len(after.Pools) {
			continue
		}
		for j := range after.Pools[i].Cells {
			for k, b := range after.Pools[i].Cells[j].Blocks {
				after.Pools[i].Cells[j].Blocks[k] = kept[b]
			}
		}
		out = append(out, BeforeAfter{m, &after.Pools[i]})
	}
	return out
}

// AfterPlan returns the report with its blocks as they would be if every step succeeded and
// nothing else changed. It has no findings, because no check has run on that state. The
// given report is not changed.
func AfterPlan(r *audit.Report, plan *repair.Plan) *audit.Report {
	after := *r
	after.Findings, after.Muted, after.Usage = nil, nil, nil
	after.Blocks, after.Pools = slices.Clone(r.Blocks), slices.Clone(r.Pools)
	find := newBlockFinder(r.Blocks)
	released := map[int]bool{}
	for i := range plan.Steps {
		step := &plan.Steps[i]
		in, _ := find.find(step.Target)
		for _, b := range in {
			switch {
			case step.Kind == repair.ReleaseIP, step.Kind == repair.EvictPod:
				after.Blocks[b].InUse, after.Blocks[b].Available = after.Blocks[b].InUse-1, after.Blocks[b].Available+1
			case step.Kind == repair.ReleaseBlock, step.Kind == repair.FinishDelete && step.Target.Kind == state.KindBlock:
				released[b] = true
			case step.Kind == repair.ClaimBlock:
				x := &after.Blocks[b]
				*x = audit.BlockReport{CIDR: x.CIDR, Pool: x.Pool, Owner: "host:" + step.Target.Node, Available: x.InUse + x.Available}
				delete(released, b)
			}
		}
	}
	var kept []audit.BlockReport
	for i := range after.Blocks {
		if !released[i] {
			kept = append(kept, after.Blocks[i])
		}
	}
	after.Blocks = kept
	for i := range plan.After {
		named := func(p audit.PoolReport) bool { return p.Name == plan.After[i].Name }
		if at := slices.IndexFunc(after.Pools, named); at >= 0 {
			reservations := after.Pools[at].Reservations
			after.Pools[at] = plan.After[i]
			after.Pools[at].Reservations = reservations
		}
	}
	return &after
}
