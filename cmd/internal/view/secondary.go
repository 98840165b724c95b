package view

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
)

// SecondaryShown limits the listed Whereabouts pools in an overview.
const SecondaryShown = 12

// FullestFirst returns Whereabouts pools, the fullest first and those without a known
// capacity last.
func FullestFirst(pools []audit.WhereaboutsPoolReport) []*audit.WhereaboutsPoolReport {
	out := make([]*audit.WhereaboutsPoolReport, len(pools))
	for i := range pools {
		out[i] = &pools[i]
	}
	room := func(p *audit.WhereaboutsPoolReport) float64 {
		if p.Capacity == nil {
			return 2
		}
		return p.Available.Share(*p.Capacity)
	}
	slices.SortStableFunc(out, func(a, b *audit.WhereaboutsPoolReport) int { return cmp.Compare(room(a), room(b)) })
	return out
}

// secondary writes the pools of secondary networks.
func (p *printer) secondary(r *audit.Report) {
	if len(r.WhereaboutsPools) == 0 {
		return
	}
	p.blank()
	g := &Table{Columns: []Heading{{Title: "WHEREABOUTS POOL"}, {Title: "RANGE"}, {Title: "NETWORK"}, {"IN USE", true}, {"", true}, {"AVAIL", true}}}
	shown, rest := cut(FullestFirst(r.WhereaboutsPools), p.atMost(SecondaryShown))
	for _, pl := range shown {
		whole, share, left := "-", "-", "-"
		if pl.Capacity != nil {
			whole, share, left = Short(*pl.Capacity), percent(pl.Capacity.Sub(*pl.Available), *pl.Capacity), Short(*pl.Available)
		}
		g.add(pl.Name, pl.Range, cmp.Or(pl.Network, "-"), Short(pl.InUse)+"/"+whole, share, left)
	}
	if _, width := g.lines(); width <= p.Width {
		p.grid(g, 0)
	} else {
		for _, pl := range shown {
			p.say("Whereabouts pool " + pl.Name)
			p.wrap("  addresses  ", 13, SecondaryText(pl))
		}
	}
	if rest > 0 {
		p.wrap("", 2, fmt.Sprintf("… and %d more with more room (-o wide lists all)", rest))
	}
}

// SecondaryText describes how many of a pool's addresses are in use.
func SecondaryText(p *audit.WhereaboutsPoolReport) string {
	if p.Capacity == nil {
		return Short(p.InUse) + " in use"
	}
	return fmt.Sprintf("%s of %s in use (%s), %s available", Short(p.InUse), Short(*p.Capacity), percent(p.Capacity.Sub(*p.Available), *p.Capacity), Short(*p.Available))
}
