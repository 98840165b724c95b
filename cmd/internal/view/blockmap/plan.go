package blockmap

import (
	"slices"

	"github.com/calico-audit/calico-audit/audit"
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
	if left == nil {
		return nil
	}
	before, after := New(r, plan), New(left, nil)
	place := map[string]int{} // in the report, by CIDR
	for i := range r.Blocks {
		place[r.Blocks[i].CIDR] = i
	}
	for i := range before.Pools {
		m := &before.Pools[i]
		if !slices.ContainsFunc(m.Cells, func(c Cell) bool { return c.Planned }) || m.Pool < 0 || i >= len(after.Pools) {
			continue
		}
		for j := range after.Pools[i].Cells {
			x := &after.Pools[i].Cells[j]
			var kept []int
			for _, b := range x.Blocks {
				if at, there := place[left.Blocks[b].CIDR]; there {
					kept = append(kept, at)
				}
			}
			x.Blocks = kept
		}
		out = append(out, BeforeAfter{m, &after.Pools[i]})
	}
	return out
}

// AfterPlan returns the report with its blocks as they would be if every step succeeded and
// nothing else changed. It has no findings, because no check has run on that state. The
// given report is not changed. It is nil for a plan that was read back, which holds no blocks.
func AfterPlan(r *audit.Report, plan *repair.Plan) *audit.Report {
	if plan.AfterBlocks == nil {
		return nil
	}
	after := *r
	after.Findings, after.Muted, after.Usage = nil, nil, nil
	after.Blocks, after.Pools = nil, slices.Clone(r.Pools)
	for _, b := range plan.AfterBlocks {
		shown := func(o audit.BlockReport) bool { return o.CIDR == b.CIDR }
		if slices.ContainsFunc(r.Pools, func(p audit.PoolReport) bool { return p.Name == b.Pool }) || slices.ContainsFunc(r.Blocks, shown) {
			after.Blocks = append(after.Blocks, b)
		}
	}
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
