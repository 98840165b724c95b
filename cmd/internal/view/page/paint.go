package page

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/view/blockmap"
)

// Path is an SVG path that covers all cells with the same look.
type Path struct{ Class, D string }

// Group is a layer of a drawing.
type Group struct {
	Class string
	Paths []Path
}

// The layers of a map. Every mode shows the ground and the marks, and one of the other
// layers.
const (
	layerGround   = "ground"
	layerFill     = "by-fill"
	layerOwner    = "by-owner"
	layerFindings = "by-findings"
	layerPlan     = "by-plan"
	layerMarks    = "marks"
)

// mapLayers lists the layers with their classes, in painting order.
var mapLayers = []struct {
	name    string
	classes []string
}{
	{layerGround, []string{"reserved", "gap"}},
	{layerFill, []string{"claimed", "empty", "a-free", "a-used", "a-cooling", "a-borrowed", "a-leaked", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8"}},
	{layerOwner, []string{"t-", "t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "tx", "o-", "o0", "o1", "o2", "o3", "o4", "o5", "o6", "o7", "ox"}},
	{layerFindings, []string{severityClass(0), severityClass(state.Info), severityClass(state.Warning), severityClass(state.Error), severityClass(state.Critical)}},
	{layerPlan, []string{"p0", "p1"}},
	{layerMarks, []string{"lent", "unowned", "dead", "orphan", "broken", "contested", "pinned"}},
}

// severityClass returns the class for the highest severity of a cell's findings, 0 for
// none.
func severityClass(s state.Severity) string { return "s-" + cmp.Or(s.String(), "none") }

// painter paints cells. Cells with the same look share one path: a page with an element for
// each cell would not open for a large cluster.
type painter struct {
	cell, gap int
	// whole is true if cells are too small for partial heights.
	whole   bool
	planned bool // there is a plan
	owners  []blockmap.Owner
	// usage describes single addresses; may be nil.
	usage audit.Usage
	paths map[string]*path
}

func newPainter(cell int, planned bool) *painter {
	gap := 4
	switch {
	case cell < 6:
		gap = 0
	case cell < 14:
		gap = 1
	case cell < 24:
		gap = 2
	}
	return &painter{cell: cell, gap: gap, whole: cell < 14, planned: planned, paths: map[string]*path{}}
}

func (p *painter) at(layer, class string) *path {
	key := layer + " " + class
	d := p.paths[key]
	if d == nil {
		d = &path{}
		p.paths[key] = d
	}
	return d
}

// cellAt paints a cell whose corner is at x, y.
func (p *painter) cellAt(c *blockmap.Cell, x, y int) {
	x, y = x+p.gap/2, y+p.gap/2
	n := p.cell - p.gap
	if !c.Gap.IsZero() && p.cell >= 8 {
		p.at(layerGround, "gap").line(x-p.gap/2, y, 0, n)
	}
	if c.State == blockmap.Reserved {
		p.at(layerGround, "reserved").line(x, y+n, n, -n).line(x, y+n/2, n/2, -n/2).line(x+n/2, y+n, n/2, -n/2)
	}
	claimed := c.State == blockmap.Empty || c.State == blockmap.Used || c.State == blockmap.Broken
	if claimed {
		p.claimed(c, x, y, n)
	}
	if c.Severity > 0 && !claimed {
		p.at(layerFindings, severityClass(c.Severity)).rect(x, y, n, n)
	}
	if p.planned && c.Planned && !claimed {
		p.at(layerPlan, "p1").rect(x, y, n, n)
	}
	p.marks(c, x, y, n)
}

// claimed paints a block in all modes.
func (p *painter) claimed(c *blockmap.Cell, x, y, n int) {
	height := n // height of the used part
	if !p.whole {
		height = n * min(c.Fill, 8) / 8
	}
	switch {
	case c.Fill == 0:
		p.at(layerFill, "empty").rect(x, y, n, n)
	case p.whole: // partial heights are illegible, so shades show the fill level
		p.at(layerFill, "f"+strconv.Itoa(min(c.Fill, 8))).rect(x, y, n, n)
	default:
		p.at(layerFill, "claimed").rect(x, y, n, n)
		if p.addresses(c, x, y, n) {
			break // single addresses show more than the fill level
		}
		shade := "f6"
		if c.Fill >= 8 {
			shade = "f8"
		}
		p.at(layerFill, shade).rect(x, y+n-height, n, height)
	}
	owner := "x"
	switch {
	case c.Owner < 0:
		owner = "-"
	case p.owners[c.Owner].Color < blockmap.Colours:
		owner = strconv.Itoa(p.owners[c.Owner].Color)
	}
	if height < n {
		p.at(layerOwner, "t"+owner).rect(x, y, n, n)
	}
	if height > 0 {
		p.at(layerOwner, "o"+owner).rect(x, y+n-height, n, height)
	}
	p.at(layerFindings, severityClass(c.Severity)).rect(x, y, n, n)
	if p.planned {
		class := "p0"
		if c.Planned {
			class = "p1"
		}
		p.at(layerPlan, class).rect(x, y, n, n)
	}
}

// leastAddress is the minimum size of a painted address, in pixels.
const leastAddress = 4

// addresses paints the single addresses of a block as squares, row by row, and reports
// whether it did. The cell must be large enough, and Usage known.
func (p *painter) addresses(c *blockmap.Cell, x, y, n int) bool {
	side := 1
	for side*side < c.Size {
		side *= 2
	}
	if p.usage == nil || len(c.Blocks) != 1 || side*side != c.Size || n%side != 0 || n/side < leastAddress {
		return false
	}
	uses := p.usage.Block(c.Blocks[0])
	if len(uses) != c.InUse {
		return false
	}
	step := n / side
	paint := func(class string, ordinal int) {
		p.at(layerFill, class).rect(x+ordinal%side*step, y+ordinal/side*step, step, step)
	}
	next := 0
	for _, u := range append(uses, audit.AddressUse{Ordinal: c.Size}) {
		for ; next < u.Ordinal; next++ {
			paint("a-free", next)
		}
		next++
		switch {
		case u.Ordinal >= c.Size:
		case u.Marks&audit.MarkLeaked != 0:
			paint("a-leaked", u.Ordinal)
		case u.Marks&audit.MarkBorrowed != 0:
			paint("a-borrowed", u.Ordinal)
		case u.Marks&audit.MarkCooling != 0:
			paint("a-cooling", u.Ordinal)
		default:
			paint("a-used", u.Ordinal)
		}
	}
	return true
}

// marks paints the marks of a cell. Each has its own shape, so that colour is never the
// only difference.
func (p *painter) marks(c *blockmap.Cell, x, y, n int) {
	if n < 4 {
		return
	}
	if c.Lent > 0 {
		t := max(min(n/2, 12), 3)
		p.at(layerMarks, "lent").triangle(x+n-t, y, t, t)
	}
	if c.NoOwner {
		p.at(layerMarks, "unowned").rect(x, y, n, n)
	}
	if c.DeadNode {
		p.at(layerMarks, "dead").rect(x, y, n, n)
	}
	if c.OrphanAffinity {
		m := n / 4
		p.at(layerMarks, "orphan").line(x+n/2, y+m, 0, n-2*m).line(x+m, y+n/2, n-2*m, 0)
	}
	if t := min(max(n/3, 6), 12, n/2); c.Contested {
		p.at(layerMarks, "contested").rect(x+1, y+1, t, t)
	}
	if t := min(max(n/4, 6), 10, n/2); c.Pinned {
		p.at(layerMarks, "pinned").rect(x+(n-t)/2, y+(n-t)/2, t, t)
	}
	if c.State == blockmap.Broken {
		m := n / 5
		p.at(layerMarks, "broken").line(x+m, y+m, n-2*m, n-2*m).line(x+m, y+n-m, n-2*m, -(n - 2*m))
	}
}

// groups returns the painted layers, in order.
func (p *painter) groups() (out []Group) {
	for _, l := range mapLayers {
		g := Group{Class: l.name}
		for _, class := range l.classes {
			if d := p.paths[l.name+" "+class]; d != nil {
				g.Paths = append(g.Paths, Path{class, d.String()})
			}
		}
		if len(g.Paths) > 0 {
			out = append(out, g)
		}
	}
	return out
}

// has reports whether any of the classes was painted.
func (p *painter) has(layer string, classes ...string) bool {
	return slices.ContainsFunc(classes, func(c string) bool { return p.paths[layer+" "+c] != nil })
}
