package view

import (
	"slices"

	"github.com/calico-audit/calico-audit/repair"
)

// mapOfPlan is how much is drawn of the pools that a plan changes.
var mapOfPlan = mapSize{rows: 4, pools: 3}

// maps draws the pools that the plan changes, before and after it.
func (t *planTable) maps(p *page, plan *repair.Plan) {
	if t.Report == nil || len(plan.Steps) == 0 || !drawable(t.Report) {
		return
	}
	before, after := NewBlockMap(t.Report, plan), NewBlockMap(AfterPlan(t.Report, plan), nil)
	l := newLegend(t.ASCII)
	drawn, more := 0, 0
	for i := range before.Pools {
		m := &before.Pools[i]
		changes := slices.ContainsFunc(m.Cells, func(c MapCell) bool { return c.Planned })
		switch {
		case !changes || i >= len(after.Pools) || m.Pool < 0:
			continue
		case drawn == mapOfPlan.pools:
			more++
			continue
		}
		drawn++
		p.blank()
		drawBeforeAfter(p, m, &after.Pools[i], l)
	}
	if drawn > 0 {
		l.write(p)
	}
	if more > 0 {
		p.wrap("", 0, plural(more, "more pool is changed.", "more pools are changed."))
	}
}

// drawBeforeAfter draws a pool twice, in the same rows.
func drawBeforeAfter(p *page, before, after *PoolMap, l *legend) {
	layout := before.fit(p.width, mapOfPlan.rows, false)
	p.wrap("", 2, before.title(layout))
	p.line(span{text: "before"})
	before.drawRows(p, layout, false, l)
	p.line(span{text: "after"})
	if len(after.Cells) == 0 {
		p.line(span{text: "  no block is claimed"})
		return
	}
	layout.rows = after.rows(layout.columns, layout.span)
	after.drawRows(p, layout, false, l)
}
