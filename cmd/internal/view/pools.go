package view

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// notKnown stands for a number that is not known.
const notKnown = "-"

// What a pool's numbers rest on: what is taken of it, what is left, and what its nodes will
// need.
var (
	takenReads = []blocks.Resource{blocks.Pools, blocks.Blocks}
	leftReads  = append(takenReads[:2:2], blocks.Reservations)
	needReads  = []blocks.Resource{blocks.Pools, blocks.Nodes}
)

// lacks reports whether any of some resources was not read, or not as a whole. Numbers that
// rest on it are not known then, whatever the report holds.
func lacks(r *audit.Report, resources ...blocks.Resource) bool {
	return slices.ContainsFunc(r.Gaps, func(g blocks.Gap) bool {
		return g.Whole() && !g.Tolerated && !g.Stale && slices.Contains(resources, g.Resource)
	})
}

// LeftKnown reports whether it is known which blocks and addresses of pools are taken, and
// which are left.
func LeftKnown(r *audit.Report) bool { return !lacks(r, leftReads...) }

// poolNumbers are a pool's numbers, written out.
type poolNumbers struct {
	InUse, Share, Available, Reserved              string // of addresses
	Claimed, Free, Allocatable, Releasable, Needed string // of blocks
}

// numbersOf writes a pool's numbers, those with [notKnown] for which something was not read.
func numbersOf(r *audit.Report, p *audit.PoolReport, write func(blocks.Count) string) poolNumbers {
	a, b := p.Addresses, p.Blocks
	out := poolNumbers{
		InUse: write(a.InUse), Share: percent(a.InUse, a.Capacity), Available: write(a.Available), Reserved: write(a.Reserved),
		Claimed: write(b.Claimed), Free: write(b.Free), Allocatable: write(b.Allocatable), Releasable: write(b.Reclaimable), Needed: write(b.Needed),
	}
	for _, x := range []struct {
		reads   []blocks.Resource
		numbers []*string
	}{
		{takenReads, []*string{&out.InUse, &out.Share, &out.Claimed}}, {leftReads, []*string{&out.Available, &out.Reserved, &out.Free, &out.Allocatable}},
		{state.ReleaseReads, []*string{&out.Releasable}}, {needReads, []*string{&out.Needed}},
	} {
		for _, n := range x.numbers {
			if lacks(r, x.reads...) {
				*n = notKnown
			}
		}
	}
	out.InUse += "/" + write(a.Capacity)
	out.Claimed += "/" + write(b.Capacity)
	return out
}

// pools writes the pools' numbers: as a grid, or pool by pool where the grid is
// wider than the page.
func (p *printer) pools(r *audit.Report) {
	if len(r.Pools) == 0 {
		return
	}
	p.blank()
	g := &Table{Columns: []Heading{{Title: "POOL"}, {Title: "CIDR"}, {Title: "SIZE"}, {"IN USE", true}, {"", true}, {"AVAIL", true}, {"RESERVED", true},
		{"BLOCKS", true}, {"FREE", true}, {"ALLOCATABLE", true}, {"RELEASABLE", true}, {"NEEDED", true}}}
	asFree := true // allocatable is what is free, unless blocks of another size lie about, or the allocator takes empty ones
	for i := range r.Pools {
		pl := &r.Pools[i]
		n := numbersOf(r, pl, Short)
		g.add(poolLabel(pl), pl.CIDR, fmt.Sprintf("/%d", pl.BlockSize), n.InUse, n.Share, n.Available,
			n.Reserved, n.Claimed, n.Free, n.Allocatable, n.Releasable, n.Needed)
		asFree = asFree && pl.Blocks.Free.Cmp(pl.Blocks.Allocatable) == 0
	}
	if asFree {
		g.drop("ALLOCATABLE")
	}
	if !p.wide {
		g.drop("SIZE")
		g.drop("RESERVED")
	}
	if _, width := g.lines(); width <= p.Width {
		p.grid(g, 0)
		return
	}
	for i := range r.Pools {
		pl := &r.Pools[i]
		p.say("Pool " + poolLabel(pl) + "  " + pl.CIDR)
		p.wrap("  addresses  ", 13, AddressesText(r, pl))
		p.wrap("  blocks     ", 13, BlocksText(r, pl))
	}
}

func poolLabel(pl *audit.PoolReport) string {
	if pl.Disabled {
		return pl.Name + " (disabled)"
	}
	return pl.Name
}

// AddressesText says in words how many addresses of a report's pool are in use.
func AddressesText(r *audit.Report, p *audit.PoolReport) string {
	a := p.Addresses
	if lacks(r, takenReads...) {
		return Short(a.Capacity) + ", how many are in use is not known"
	}
	text := fmt.Sprintf("%s of %s in use (%s)", Short(a.InUse), Short(a.Capacity), percent(a.InUse, a.Capacity))
	if LeftKnown(r) {
		text += ", " + Short(a.Available) + " available"
	}
	return text
}

// BlocksText says in words how many blocks of a report's pool are claimed.
func BlocksText(r *audit.Report, p *audit.PoolReport) string {
	b := p.Blocks
	text := Short(b.Capacity) + ", how many are claimed is not known"
	if !lacks(r, takenReads...) {
		text = fmt.Sprintf("%s of %s claimed", Short(b.Claimed), Short(b.Capacity))
	}
	for _, x := range []struct {
		n     blocks.Count
		what  string
		is    bool
		reads []blocks.Resource
	}{
		{b.Free, "free", true, leftReads}, {b.Allocatable, "allocatable", b.Free.Cmp(b.Allocatable) != 0, leftReads},
		{b.Reclaimable, "releasable", true, state.ReleaseReads}, {b.Needed, "needed", true, needReads},
	} {
		if x.is && !lacks(r, x.reads...) {
			text += ", " + Short(x.n) + " " + x.what
		}
	}
	return text
}
