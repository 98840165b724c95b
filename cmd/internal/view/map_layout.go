package view

import (
	"fmt"
	"net/netip"
	"slices"
)

// mapLayout is a picture laid out in rows.
type mapLayout struct {
	rows []mapRow
	// columns is the number of cells to a row, a power of two, and span that of the
	// places to a cell, one as well.
	columns, span int
	// lettered is true if a cell has the letter of its owner, marked if cells have room
	// for a mark.
	lettered, marked bool
}

// mapRow is a row of cells or, where nothing stands out, what was left out.
type mapRow struct {
	// label is the address that the row begins at.
	label string
	cells []drawnCell
	// left says what was left out instead of cells.
	left string
}

// drawnCell is a cell as drawn, which may stand for several places.
type drawnCell struct {
	MapCell
	// partly is true if some places of it are free and others are not.
	partly bool
}

// fit lays a picture out with as many cells to a row as the page has room for.
func (m *PoolMap) fit(width, maxRows int, lettered bool) mapLayout {
	for columns := 64; ; columns /= 2 {
		if columns > 1 && columns/2 >= m.Places {
			continue
		}
		l := m.layout(columns, maxRows)
		l.lettered = lettered
		cell := 1 // the glyph
		if lettered {
			cell += 2 // the letter, and a blank or the sign of a gap
		} else if m.Sparse {
			cell++ // the same
		}
		if l.marked {
			cell++
		}
		if columns == 1 || 2+l.labelWidth()+1+columns*cell <= width {
			return l
		}
	}
}

func (l *mapLayout) labelWidth() int {
	return widest(l.rows, func(r *mapRow) string { return r.label })
}

// layout lays a picture out in rows of so many cells. Where that takes more rows
// than maxRows, a cell stands for 2, 4, 8 … places.
func (m *PoolMap) layout(columns, maxRows int) mapLayout {
	for span := 1; ; span *= 2 {
		l := mapLayout{rows: m.rows(columns, span), columns: columns, span: span}
		if len(l.rows) <= maxRows || columns*span >= m.Places {
			l.marked = slices.ContainsFunc(l.rows, func(r mapRow) bool {
				return slices.ContainsFunc(r.cells, func(c drawnCell) bool { return c.mark() != "" })
			})
			return l
		}
	}
}

func (m *PoolMap) rows(columns, span int) []mapRow {
	if m.Sparse {
		return m.sparseRows(columns, span)
	}
	return m.denseRows(columns, span)
}

func (m *PoolMap) sparseRows(columns, span int) (rows []mapRow) {
	for row := range slices.Chunk(m.Cells, columns*span) {
		r := mapRow{label: row[0].CIDR.Addr().String()}
		for group := range slices.Chunk(row, span) {
			r.cells = append(r.cells, mergeCells(group, len(group)))
		}
		rows = append(rows, r)
	}
	return rows
}

// denseRows gives each place its column, so that a row is a CIDR, and leaves rows
// out that are all alike.
func (m *PoolMap) denseRows(columns, span int) (rows []mapRow) {
	pool := netip.MustParsePrefix(m.CIDR).Masked() // NewBlockMap has parsed it
	next := 0
	kind, run := MapUsed, 0 // of the rows before this one that were all alike
	for at := 0; at < m.Places; at += columns * span {
		row := mapRow{label: SlotAt(pool, m.BlockSize, at).Addr().String()}
		begin := next
		for from := at; from < min(at+columns*span, m.Places); from += span {
			first := next
			for next < len(m.Cells) && m.Cells[next].Place < from+span {
				next++
			}
			row.cells = append(row.cells, mergeCells(m.Cells[first:next], min(span, m.Places-from)))
		}
		is := uniform(m.Cells[begin:next], min(columns*span, m.Places-at))
		if is == kind && kind != MapUsed {
			run++
		} else {
			rows, kind, run = m.fold(rows, kind, run, columns*span), is, 1
		}
		rows = append(rows, row)
	}
	return m.fold(rows, kind, run, columns*span)
}

// uniform tells what a row is that is free, or reserved, throughout; of any other
// it says that it is used.
func uniform(cells []MapCell, places int) MapState {
	switch {
	case len(cells) == 0:
		return MapFree
	case len(cells) < places, slices.ContainsFunc(cells, func(c MapCell) bool { return c.State != MapReserved }):
		return MapUsed
	}
	return MapReserved
}

// fold replaces the last rows, if they are all alike, by a remark. Of IPv4 a single
// row stays, so that the picture of a small pool is whole.
func (m *PoolMap) fold(rows []mapRow, kind MapState, run, places int) []mapRow {
	if kind == MapUsed || run == 0 || run == 1 && AddressBits(m.CIDR) == 32 {
		return rows
	}
	first, n := len(rows)-run, min(run*places, m.Places)
	rows[first] = mapRow{label: rows[first].label, left: fmt.Sprintf("%s, all %s", Plural(n, "slot", "slots"), kind)}
	return rows[:first+1]
}

// mergeCells makes one cell of the cells of so many neighbouring places.
func mergeCells(group []MapCell, places int) drawnCell {
	if len(group) == 1 && places == 1 {
		return drawnCell{MapCell: group[0]}
	}
	d := drawnCell{MapCell: MapCell{State: MapFree}}
	if len(group) > 0 {
		d.CIDR, d.Place, d.Gap = group[0].CIDR, group[0].Place, group[0].Gap
	}
	taken := d.merge(group)
	d.partly = taken > 0 && taken < places
	return d
}
