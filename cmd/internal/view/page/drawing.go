package page

import (
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/view/blockmap"
)

// Drawing is the drawing of a pool's map, with square cells. Cell, Width and Height are in
// pixels.
type Drawing struct {
	Columns, Rows, Cell int
	Width, Height       int
	// Free is true if unpainted cells are free slots.
	Free   bool
	Lines  string // the lines between cells
	Groups []Group
	// Labels are the first addresses of rows. Each label covers LabelRows rows.
	Labels    []string
	LabelRows int

	pool    *blockmap.Pool
	painted *painter
}

// Draw draws a pool's map. It shows single addresses if usage is not nil and cells are
// large enough. planned marks the changes of a plan.
func Draw(m *blockmap.Pool, planned bool, usage audit.Usage) Drawing {
	d := Drawing{Free: !m.Sparse, pool: m}
	d.layOut(m.Places, usage != nil && !m.Sparse)
	p := newPainter(d.Cell, planned)
	p.usage, p.owners = usage, m.Owners
	for i := range m.Cells {
		c := &m.Cells[i]
		p.cellAt(c, c.Place%d.Columns*d.Cell, c.Place/d.Columns*d.Cell)
	}
	if d.Free && p.gap > 0 {
		var lines path
		for x := range d.Columns + 1 {
			lines.write('M', x*d.Cell, 0)
			lines.write('v', d.Height)
		}
		for y := range d.Rows + 1 {
			lines.write('M', 0, y*d.Cell)
			lines.write('h', d.Width)
		}
		d.Lines = lines.String()
	}
	d.Groups, d.painted = p.groups(), p
	for row := 0; row < d.Rows; row += d.LabelRows {
		d.Labels = append(d.Labels, rowLabel(m, row*d.Columns))
	}
	return d
}

// layOut chooses the number of columns, always a power of two, so that each row is a CIDR.
// large allows cells large enough for single addresses. Labels are spaced to stay legible.
func (d *Drawing) layOut(places int, large bool) {
	d.Columns, d.Cell = 1, 44
	if large {
		d.Cell = 132
	}
	for d.Columns < 4 && d.Columns < places {
		d.Columns *= 2
	}
	for _, more := range []struct{ places, columns, cell int }{{4, 8, 68}, {8, 16, 44}, {64, 32, 28}, {512, 64, 16}, {4096, 128, 8}, {32768, 256, 4}} {
		if places > more.places {
			d.Columns, d.Cell = more.columns, min(d.Cell, more.cell)
		}
	}
	for d.LabelRows = 1; d.LabelRows*d.Cell < 16; {
		d.LabelRows *= 2
	}
	d.Rows = max((places+d.Columns-1)/d.Columns, 1)
	d.Rows = (d.Rows + d.LabelRows - 1) / d.LabelRows * d.LabelRows
	d.Width, d.Height = d.Columns*d.Cell, d.Rows*d.Cell
}

// GapWidth returns the width of the lines between cells.
func (d Drawing) GapWidth() int { return d.painted.gap }

// rowLabel returns the first address of the row that begins at a place; "" beyond the end.
func rowLabel(m *blockmap.Pool, place int) string {
	if place >= m.Places {
		return ""
	}
	if m.Sparse {
		return m.Cells[place].CIDR.Addr().String()
	}
	pool := netip.MustParsePrefix(m.CIDR) // blockmap.New has parsed it
	return blockmap.SlotAt(pool.Masked(), m.BlockSize, place).Addr().String()
}

// Legend explains a mode of a map. The mode "" explains the marks, which all modes have.
type Legend struct {
	Mode  string
	Cell  int // of the map, in pixels
	Items []Swatch
}

// Swatch is an entry of a legend: a drawn cell and its meaning.
type Swatch struct {
	Groups []Group
	Free   bool
	Text   string
}

// swatchCell is the size of a legend's cells, in pixels.
const swatchCell = 16

// Legends explains the drawn cells.
func (d *Drawing) Legends() (out []Legend) {
	m, p := d.pool, d.painted
	var l Legend
	entry := func(is bool, s Swatch) {
		if is {
			l.Items = append(l.Items, s)
		}
	}
	cell := func(is bool, c blockmap.Cell, text string) {
		if !is {
			return
		}
		like := newPainter(swatchCell, p.planned)
		like.whole, like.owners = p.whole, m.Owners
		like.cellAt(&c, 0, 0)
		groups := slices.DeleteFunc(like.groups(), func(g Group) bool {
			return g.Class != layerGround && g.Class != layerMarks && g.Class != "by-"+l.Mode
		})
		l.Items = append(l.Items, Swatch{Groups: groups, Text: text})
	}
	// mode ends the entries of the previous mode.
	mode := func(next string) {
		if len(l.Items) > 0 {
			out = append(out, l)
		}
		l = Legend{Mode: next, Cell: d.Cell}
	}

	mode("fill")
	entry(d.Free && len(m.Cells) < m.Places, Swatch{Free: true, Text: "free"})
	cell(slices.ContainsFunc(m.Cells, func(c blockmap.Cell) bool { return c.State == blockmap.Empty }), blockmap.Cell{State: blockmap.Empty}, "claimed, no address in use")
	for _, a := range []struct{ class, text string }{
		{"a-used", "an address in use"}, {"a-free", "an unused address"}, {"a-borrowed", "an address used by another node"},
		{"a-cooling", "an address in cooldown"}, {"a-leaked", "a leaked address"},
	} {
		entry(p.has(layerFill, a.class), Swatch{Groups: []Group{{layerFill, []Path{{a.class, new(path).rect(4, 4, 8, 8).String()}}}}, Text: a.text})
	}
	cell(p.has(layerFill, "f1", "f2", "f3", "f4") || !p.whole && p.has(layerFill, "f6"), blockmap.Cell{State: blockmap.Used, Fill: 3}, "in use, in eighths")
	cell(p.whole && p.has(layerFill, "f5", "f6", "f7"), blockmap.Cell{State: blockmap.Used, Fill: 6}, "fuller")
	cell(p.has(layerFill, "f8"), blockmap.Cell{State: blockmap.Used, Fill: 8}, "no address left")

	mode("owner")
	for i := range m.Owners[:min(len(m.Owners), blockmap.Colours)] {
		cell(true, blockmap.Cell{State: blockmap.Used, Fill: 8, Owner: i}, m.Owners[i].Text())
	}
	rest := len(m.Owners) - blockmap.Colours
	cell(rest > 0, blockmap.Cell{State: blockmap.Used, Fill: 8, Owner: min(blockmap.Colours, len(m.Owners)-1)}, phrase.Plural(rest, "other owner"))
	cell(p.has(layerOwner, "o-", "t-"), blockmap.Cell{State: blockmap.Used, Fill: 8, Owner: -1}, "no owner, or several")
	cell(!p.whole && len(m.Owners) > 0, blockmap.Cell{State: blockmap.Used, Fill: 3, Owner: 0}, "in use, in eighths; pale: not in use")

	mode("findings")
	for _, s := range state.Severities {
		cell(p.has(layerFindings, severityClass(s)), blockmap.Cell{State: blockmap.Empty, Severity: s}, s.String())
	}
	cell(p.has(layerFindings, severityClass(0)), blockmap.Cell{State: blockmap.Empty}, "no finding about the block")

	mode("plan")
	cell(p.planned, blockmap.Cell{State: blockmap.Empty, Planned: true}, "changed by the plan")
	cell(p.planned, blockmap.Cell{State: blockmap.Empty}, "unchanged")

	mode("")
	cell(p.has(layerMarks, "lent"), blockmap.Cell{State: blockmap.Free, Lent: 1}, "lends addresses to other nodes")
	cell(p.has(layerMarks, "dead"), blockmap.Cell{State: blockmap.Free, DeadNode: true}, "its node no longer exists")
	cell(p.has(layerMarks, "unowned"), blockmap.Cell{State: blockmap.Free, NoOwner: true}, "no owner")
	cell(p.has(layerMarks, "broken"), blockmap.Cell{State: blockmap.Broken}, "corrupt or unreadable, overlapping, or marked deleted")
	cell(p.has(layerMarks, "contested"), blockmap.Cell{State: blockmap.Free, Contested: true}, "contested: blocks overlap, or another node's affinity claims it")
	cell(p.has(layerMarks, "pinned"), blockmap.Cell{State: blockmap.Free, Pinned: true}, "holds an address that cannot move: of a tunnel, a VM or a service, or reserved by Windows")
	cell(p.has(layerMarks, "orphan"), blockmap.Cell{State: blockmap.Free, OrphanAffinity: true}, "BlockAffinity exists, its IPAMBlock does not")
	cell(p.has(layerGround, "reserved"), blockmap.Cell{State: blockmap.Reserved}, "reserved by an IPReservation")
	entry(p.has(layerGround, "gap"), Swatch{
		Groups: []Group{{layerGround, []Path{{"gap", new(path).line(swatchCell/2, 2, 0, swatchCell-4).String()}}}},
		Text:   "a line before a block: free slots omitted there",
	})
	mode("")
	return out
}

// legendsOfBoth explains the fill levels and the marks of two drawings of a pool.
func legendsOfBoth(before, after *Drawing) (out []Legend) {
	for _, l := range slices.Concat(before.Legends(), after.Legends()) {
		if l.Mode != "" && l.Mode != "fill" {
			continue
		}
		i := slices.IndexFunc(out, func(have Legend) bool { return have.Mode == l.Mode })
		if i < 0 {
			out = append(out, l)
			continue
		}
		for _, item := range l.Items {
			if !slices.ContainsFunc(out[i].Items, func(s Swatch) bool { return s.Text == item.Text }) {
				out[i].Items = append(out[i].Items, item)
			}
		}
	}
	return out
}
