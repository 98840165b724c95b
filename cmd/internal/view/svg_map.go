package view

import (
	"net/netip"
	"strconv"

	"github.com/calico-audit/calico-audit/audit"
)

// mapGrid is how a picture is laid out as a drawing: columns and rows of square
// cells, in pixels.
type mapGrid struct{ Columns, Rows, Cell int }

// gridOf chooses how many columns a drawing has, always a power of two, so that a
// row is a CIDR. large allows cells that single addresses can be told apart in.
func gridOf(places int, large bool) mapGrid {
	g := mapGrid{Columns: 1, Cell: 132}
	if !large {
		g.Cell = 44
	}
	for g.Columns < 4 && g.Columns < places {
		g.Columns *= 2
	}
	for _, more := range []struct{ places, columns, cell int }{{4, 8, 68}, {8, 16, 44}, {64, 32, 28}, {512, 64, 16}, {4096, 128, 8}, {32768, 256, 4}} {
		if places > more.places {
			g.Columns, g.Cell = more.columns, min(g.Cell, more.cell)
		}
	}
	g.Rows = max((places+g.Columns-1)/g.Columns, 1)
	return g
}

// labelEvery is how many rows lie between labels: as many as leave them legible.
func (g mapGrid) labelEvery() int {
	n := 1
	for n*g.Cell < 16 {
		n *= 2
	}
	return n
}

// mapDrawing is a pool's picture as a drawing.
type mapDrawing struct {
	mapGrid
	Width, Height int
	// Free tells whether what is not painted is a slot that is free.
	Free   bool
	Lines  string // the lines between cells
	Groups []svgGroup
	// Labels are the addresses that rows begin at, each for LabelRows of them.
	Labels    []string
	LabelRows int

	painted *painter
}

// drawingOf draws a pool's picture, with single addresses where there is room for
// them and usage, which may be nil, has them.
func drawingOf(m *PoolMap, planned bool, usage *audit.Usage) mapDrawing {
	d := mapDrawing{mapGrid: gridOf(m.Places, usage != nil && !m.Sparse), Free: !m.Sparse}
	p := newPainter(d.Cell, planned)
	p.usage = usage
	for i := range m.Cells {
		c := &m.Cells[i]
		p.cellAt(c, c.Place%d.Columns*d.Cell, c.Place/d.Columns*d.Cell)
	}
	every := d.labelEvery()
	d.Rows = (d.Rows + every - 1) / every * every
	d.Width, d.Height, d.LabelRows = d.Columns*d.Cell, d.Rows*d.Cell, every
	if d.Free && p.gap > 0 {
		var lines pathData
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
	for row := 0; row < d.Rows; row += every {
		d.Labels = append(d.Labels, rowLabel(m, row*d.Columns))
	}
	return d
}

// GapWidth is how wide the lines between cells are.
func (d mapDrawing) GapWidth() int { return d.painted.gap }

// rowLabel is the address that a row begins at, whose first place is given; empty
// where there is none.
func rowLabel(m *PoolMap, place int) string {
	if m.Sparse {
		if place < len(m.Cells) {
			return m.Cells[place].CIDR.Addr().String()
		}
		return ""
	}
	pool, err := netip.ParsePrefix(m.CIDR)
	if err != nil || place >= m.Places {
		return ""
	}
	return slotAt(pool.Masked(), m.BlockSize, place).Addr().String()
}

// swatch is an entry of a legend: a cell as it is drawn, and what it means.
type swatch struct {
	Groups []svgGroup
	Free   bool
	Text   string
}

// swatchCell is the size of a legend's cells.
const swatchCell = 16

func newSwatch(layer string, c MapCell, text string, like *painter) swatch {
	p := newPainter(swatchCell, like.planned)
	p.whole = like.whole
	p.cellAt(&c, 0, 0)
	s := swatch{Text: text}
	for _, g := range p.groups() {
		if g.Class == layer || g.Class == layerGround || g.Class == layerMarks {
			s.Groups = append(s.Groups, g)
		}
	}
	return s
}

// legends explain what is drawn, and no more: by the layer that it belongs to, and
// the marks beside.
func (d *mapDrawing) legends(m *PoolMap) (fill, owners, findings, plan, marks []swatch) {
	p := d.painted
	one := func(layer string, c MapCell, text string) swatch { return newSwatch(layer, c, text, p) }
	free := swatch{Free: true, Text: "free to claim"}
	if d.Free && len(m.Cells) < m.Places {
		fill = append(fill, free)
	}
	if countState(m, MapEmpty) > 0 {
		fill = append(fill, one(layerFill, MapCell{State: MapEmpty}, "claimed, no address in use"))
	}
	for _, a := range []struct{ class, text string }{
		{"a-used", "an address in use"}, {"a-free", "one that is not"}, {"a-borrowed", "one that another node uses"},
		{"a-cooling", "one that cools down"}, {"a-leaked", "one that is leaked"},
	} {
		if p.has(layerFill, a.class) {
			fill = append(fill, swatch{Groups: []svgGroup{{layerFill, []svgPath{{a.class, new(pathData).rect(4, 4, 8, 8).String()}}}}, Text: a.text})
		}
	}
	if p.has(layerFill, "f1") || p.has(layerFill, "f2") || p.has(layerFill, "f3") || p.has(layerFill, "f4") {
		fill = append(fill, one(layerFill, MapCell{State: MapUsed, Fill: 3}, "in use, in eighths"))
	}
	if p.has(layerFill, "f5") || p.has(layerFill, "f6") || p.has(layerFill, "f7") {
		fill = append(fill, one(layerFill, MapCell{State: MapUsed, Fill: 6}, "fuller"))
	}
	if p.has(layerFill, "f8") {
		fill = append(fill, one(layerFill, MapCell{State: MapUsed, Fill: 8}, "no address left"))
	}
	for i := range m.Owners {
		if i == namedOwners {
			owners = append(owners, one(layerOwner, MapCell{State: MapEmpty, Owner: namedOwners}, plural(len(m.Owners)-i, "other owner", "other owners")))
			break
		}
		owners = append(owners, one(layerOwner, MapCell{State: MapEmpty, Owner: i}, ownerPhrase(&m.Owners[i])))
	}
	if p.has(layerOwner, "o-") {
		owners = append(owners, one(layerOwner, MapCell{State: MapEmpty, Owner: -1}, "nobody, or several owners"))
	}
	for _, s := range audit.Severities {
		if p.has(layerFindings, "s"+strconv.Itoa(int(s))) {
			findings = append(findings, one(layerFindings, MapCell{State: MapEmpty, Severity: s}, s.String()))
		}
	}
	if p.has(layerFindings, "s0") {
		findings = append(findings, one(layerFindings, MapCell{State: MapEmpty}, "no finding about the block"))
	}
	if p.planned {
		plan = append(plan, one(layerPlan, MapCell{State: MapEmpty, Planned: true}, "the plan changes it"), one(layerPlan, MapCell{State: MapEmpty}, "stays as it is"))
	}
	for _, x := range []struct {
		class, text string
		cell        MapCell
	}{
		{"lent", "other nodes use addresses of it", MapCell{State: MapFree, Lent: 1}},
		{"dead", "its owner is no node", MapCell{State: MapFree, DeadNode: true}},
		{"nobody", "nobody owns it", MapCell{State: MapFree, NoOwner: true}},
		{"broken", "corrupt, overlapping or marked deleted", MapCell{State: MapBroken}},
		{"stray", "an affinity claims it, and no block exists", MapCell{State: MapFree, Stray: true}},
	} {
		if p.has(layerMarks, x.class) {
			marks = append(marks, one(layerMarks, x.cell, x.text))
		}
	}
	if p.has(layerGround, "reserved") {
		marks = append(marks, one(layerGround, MapCell{State: MapReserved}, "kept back by an IPReservation"))
	}
	if p.has(layerGround, "gap") {
		s := one(layerGround, MapCell{State: MapFree}, "a line before a block: free slots are left out there")
		s.Groups = []svgGroup{{layerGround, []svgPath{{"gap", new(pathData).line(swatchCell/2, 2, 0, swatchCell-4).String()}}}}
		marks = append(marks, s)
	}
	return fill, owners, findings, plan, marks
}

func countState(m *PoolMap, s MapState) (n int) {
	for i := range m.Cells {
		if m.Cells[i].State == s {
			n++
		}
	}
	return n
}
