package view

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// notKnown is the placeholder for an unknown number.
const notKnown = "-"

// The resources behind a pool's taken numbers, its free numbers, and the needs of its
// nodes.
var (
	takenReads = []blocks.Resource{blocks.Pools, blocks.Blocks}
	leftReads  = append(takenReads[:2:2], blocks.Reservations)
	needReads  = []blocks.Resource{blocks.Pools, blocks.Nodes}
)

// lacks reports whether any of the resources has a gap. Numbers that depend on it are then
// unknown, whatever the report contains.
func lacks(r *audit.Report, resources ...blocks.Resource) bool {
	return slices.ContainsFunc(r.Gaps, func(g blocks.Gap) bool {
		return g.Whole() && !g.Tolerated && !g.Stale && slices.Contains(resources, g.Resource)
	})
}

// LeftKnown reports whether the taken and free blocks and addresses of a pool are known.
func LeftKnown(r *audit.Report, p *audit.PoolReport) bool {
	return !lacks(r, leftReads...) && p.UnreadableBlocks+p.UnplacedBlocks == 0
}

// unreadable counts the objects of a kind that could not be decoded, less nodes that the report counts.
func unreadable(r *audit.Report, kind blocks.Resource) int {
	names := map[string]bool{}
	for i := range r.Gaps {
		counted := func(n audit.NodeReport) bool { return n.Name == r.Gaps[i].Name && !n.Missing }
		if g := &r.Gaps[i]; g.Resource == kind && !g.Whole() && !g.Tolerated && (kind != blocks.Nodes || !slices.ContainsFunc(r.Nodes, counted)) {
			names[g.Source+" "+g.Name] = true
		}
	}
	return len(names)
}

// bound is the relation of the true value to a number.
type bound int

const (
	exact bound = iota
	atLeast
	atMost
	unknown
)

// bounds holds the bounds of a pool's numbers.
type bounds struct{ taken, available, claimed, free, allocatable, releasable, needed bound }

// boundsOf returns which numbers of a pool are only bounds because a block could not be decoded. No
// number includes the addresses of such a block. If its CIDR is unknown, no number includes the
// block itself, either.
func boundsOf(r *audit.Report, p *audit.PoolReport) (out bounds) {
	if unreadable(r, blocks.Blocks) > 0 {
		out.releasable, out.needed = atLeast, atMost // the blocks also show whether another IPAM serves the pool's pods
	}
	if p.UnreadableBlocks+p.UnplacedBlocks > 0 {
		out.taken, out.available = atLeast, atMost
		if blocks.CalicoAtLeast(r.Cluster.CalicoVersion, 3, 32) {
			out.allocatable = unknown // the allocator may take over an empty block of another node
		}
	}
	if p.UnplacedBlocks > 0 {
		out.claimed, out.free, out.allocatable = atLeast, atMost, max(out.allocatable, atMost)
		out.releasable = unknown // the undecodable block may be a second object of an empty block
	}
	return out
}

// sign formats a bound for a table; word does so for a sentence.
func (b bound) sign(number string) string {
	return []string{number, "≥" + number, "≤" + number, notKnown}[b]
}

// share formats the share of a pool's addresses in use, if it is known.
func (b bound) share(a blocks.Addrs) string {
	if b != exact {
		return notKnown
	}
	return percent(a.InUse, a.Capacity)
}

func (b bound) word(number string) string {
	return []string{number, "at least " + number, "at most " + number, "unknown"}[b]
}

// poolNumbers are a pool's formatted numbers.
type poolNumbers struct {
	InUse, Share, Available, Reserved              string // of addresses
	Claimed, Free, Allocatable, Releasable, Needed string // of blocks
}

// numbersOf formats a pool's numbers. Numbers with missing resources become [notKnown].
func numbersOf(r *audit.Report, p *audit.PoolReport, write func(blocks.Count) string) poolNumbers {
	a, b, is := p.Addresses, p.Blocks, boundsOf(r, p)
	out := poolNumbers{
		InUse: is.taken.sign(write(a.InUse)), Share: is.taken.share(a), Available: is.available.sign(write(a.Available)), Reserved: write(a.Reserved),
		Claimed: is.claimed.sign(write(b.Claimed)), Free: is.free.sign(write(b.Free)), Allocatable: is.allocatable.sign(write(b.Allocatable)),
		Releasable: is.releasable.sign(write(b.Releasable)), Needed: is.needed.sign(write(b.Needed)),
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

// pools writes the pools' numbers as a grid, or pool by pool if the grid is too wide.
func (p *printer) pools(r *audit.Report) {
	if len(r.Pools) == 0 {
		return
	}
	p.blank()
	g := &Table{Columns: []Heading{{Title: "POOL"}, {Title: "CIDR"}, {Title: "SIZE"}, {"IN USE", true}, {"", true}, {"AVAIL", true}, {"RESERVED", true},
		{"BLOCKS", true}, {"FREE", true}, {"ALLOCATABLE", true}, {"RELEASABLE", true}, {"NEEDED", true}}}
	asFree := true // allocatable equals free, unless there are blocks of other sizes or the allocator takes over empty ones
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

// AddressesText describes how many addresses of a pool are in use.
func AddressesText(r *audit.Report, p *audit.PoolReport) string {
	a := p.Addresses
	if lacks(r, takenReads...) {
		return Short(a.Capacity) + ", number in use unknown"
	}
	is := boundsOf(r, p)
	text := fmt.Sprintf("%s of %s in use", is.taken.word(Short(a.InUse)), Short(a.Capacity))
	if is.taken == exact {
		text += " (" + percent(a.InUse, a.Capacity) + ")"
	}
	if !lacks(r, leftReads...) {
		text += ", " + is.available.word(Short(a.Available)) + " available"
	}
	return text
}

// BlocksText describes how many blocks of a pool are claimed.
func BlocksText(r *audit.Report, p *audit.PoolReport) string {
	b, is := p.Blocks, boundsOf(r, p)
	text := Short(b.Capacity) + ", number claimed unknown"
	if !lacks(r, takenReads...) {
		text = fmt.Sprintf("%s of %s claimed", is.claimed.word(Short(b.Claimed)), Short(b.Capacity))
	}
	for _, x := range []struct {
		n     blocks.Count
		what  string
		bound bound
		is    bool
		reads []blocks.Resource
	}{
		{b.Free, "free", is.free, true, leftReads}, {b.Allocatable, "allocatable", is.allocatable, b.Free.Cmp(b.Allocatable) != 0, leftReads},
		{b.Releasable, "releasable", is.releasable, true, state.ReleaseReads}, {b.Needed, "needed", is.needed, true, needReads},
	} {
		if x.is && x.bound != unknown && !lacks(r, x.reads...) {
			text += ", " + x.bound.word(Short(x.n)) + " " + x.what
		}
	}
	return text
}
