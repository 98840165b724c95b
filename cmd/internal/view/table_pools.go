package view

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
)

// pools writes the pools' numbers: as a grid, or pool by pool where the grid is
// wider than the page.
func (t *table) pools(p *page, r *audit.Report) {
	if len(r.Pools) == 0 {
		return
	}
	p.blank()
	g := t.poolGrid(r)
	if w := g.width(); w <= p.width {
		p.grid(g, 0)
		return
	}
	for i := range r.Pools {
		poolParagraph(p, &r.Pools[i])
	}
}

func (t *table) poolGrid(r *audit.Report) *grid {
	g := &grid{columns: []column{{title: "POOL"}, {title: "CIDR"}}}
	right := func(titles ...string) {
		for _, s := range titles {
			g.columns = append(g.columns, column{s, true})
		}
	}
	if t.wide {
		g.columns = append(g.columns, column{title: "SIZE"})
	}
	right("IN USE", "", "AVAIL")
	if t.wide {
		right("RESERVED")
	}
	right("BLOCKS", "TO CLAIM", "RECLAIM", "NEEDED")
	for i := range r.Pools {
		pl := &r.Pools[i]
		a, b := pl.Addresses, pl.Blocks
		cells := []string{poolLabel(pl), pl.CIDR}
		if t.wide {
			cells = append(cells, fmt.Sprintf("/%d", pl.BlockSize))
		}
		cells = append(cells, short(a.InUse)+"/"+short(a.Capacity), percent(a.InUse, a.Capacity), short(a.Available))
		if t.wide {
			cells = append(cells, short(a.Reserved))
		}
		g.add(append(cells, short(b.Claimed)+"/"+short(b.Capacity), short(b.Allocatable), short(b.Reclaimable), short(b.Needed))...)
	}
	return g
}

func poolLabel(pl *audit.PoolReport) string {
	if pl.Disabled {
		return pl.Name + " (disabled)"
	}
	return pl.Name
}

// poolParagraph writes the numbers of one pool in words.
func poolParagraph(p *page, pl *audit.PoolReport) {
	a, b := pl.Addresses, pl.Blocks
	p.line(span{text: "Pool " + poolLabel(pl) + "  " + pl.CIDR})
	p.wrap("  addresses  ", 13, fmt.Sprintf("%s of %s in use (%s), %s available",
		short(a.InUse), short(a.Capacity), percent(a.InUse, a.Capacity), short(a.Available)))
	p.wrap("  blocks     ", 13, fmt.Sprintf("%s of %s claimed, %s left to claim, %s reclaimable, %s needed",
		short(b.Claimed), short(b.Capacity), short(b.Allocatable), short(b.Reclaimable), short(b.Needed)))
}
