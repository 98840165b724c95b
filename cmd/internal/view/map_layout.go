package view

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/cmd/internal/view/blockmap"
)

// mapLayout is a map arranged in rows.
type mapLayout struct {
	rows []mapRow
	// columns is the number of cells in a row, and span the number of places in a cell;
	// both are powers of two.
	columns, span int
	// lettered is true if cells have their owner's letter; marked is true if cells have
	// room for a mark.
	lettered, marked bool
}

// mapRow is a row of cells, or a remark in place of uniform rows.
type mapRow struct {
	// label is the first address of the row.
	label string
	cells []drawnCell
	// left describes the omitted rows.
	left string
}

// drawnCell is a drawn cell, which may stand for several places.
type drawnCell struct {
	blockmap.Cell
	// partly is true if some of its places are free and others are not.
	partly bool
}

// fit arranges a map with as many cells in a row as fit into the width.
func fit(m *blockmap.Pool, width, maxRows int, lettered bool) mapLayout {
	for columns := 64; ; columns /= 2 {
		if columns > 1 && columns/2 >= m.Places {
			continue
		}
		l := layOut(m, columns, maxRows)
		l.lettered = lettered
		cell := 1 // the glyph
		if lettered {
			cell += 2 // the letter, and a space or the sign of a gap
		} else if m.Sparse {
			cell++ // a space or the sign of a gap
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

// layOut arranges a map in rows of the given number of cells. If that exceeds maxRows, each
// cell stands for 2, 4, 8 … places.
func layOut(m *blockmap.Pool, columns, maxRows int) mapLayout {
	for span := 1; ; span *= 2 {
		l := mapLayout{rows: rowsOf(m, columns, span), columns: columns, span: span}
		if len(l.rows) <= maxRows || columns*span >= m.Places {
			l.marked = slices.ContainsFunc(l.rows, func(r mapRow) bool {
				return slices.ContainsFunc(r.cells, func(c drawnCell) bool { return c.mark() != "" })
			})
			return l
		}
	}
}

func rowsOf(m *blockmap.Pool, columns, span int) []mapRow {
	if m.Sparse {
		return sparseRows(m, columns, span)
	}
	return denseRows(m, columns, span)
}

func sparseRows(m *blockmap.Pool, columns, span int) (rows []mapRow) {
	for row := range slices.Chunk(m.Cells, columns*span) {
		r := mapRow{label: row[0].CIDR.Addr().String()}
		for group := range slices.Chunk(row, span) {
			r.cells = append(r.cells, mergeCells(group, len(group)))
		}
		rows = append(rows, r)
	}
	return rows
}

// denseRows gives each place its column, so that each row is a CIDR, and folds uniform
// rows.
func denseRows(m *blockmap.Pool, columns, span int) (rows []mapRow) {
	pool := netip.MustParsePrefix(m.CIDR).Masked() // blockmap.New has parsed it
	next := 0
	kind, run := blockmap.Used, 0 // number of uniform rows before this one
	for at := 0; at < m.Places; at += columns * span {
		row := mapRow{label: blockmap.SlotAt(pool, m.BlockSize, at).Addr().String()}
		begin := next
		for from := at; from < min(at+columns*span, m.Places); from += span {
			first := next
			for next < len(m.Cells) && m.Cells[next].Place < from+span {
				next++
			}
			row.cells = append(row.cells, mergeCells(m.Cells[first:next], min(span, m.Places-from)))
		}
		is := uniform(m.Cells[begin:next], min(columns*span, m.Places-at))
		if is == kind && kind != blockmap.Used {
			run++
		} else {
			rows, kind, run = fold(m, rows, kind, run, columns*span), is, 1
		}
		rows = append(rows, row)
	}
	return fold(m, rows, kind, run, columns*span)
}

// uniform returns Free or Reserved if a whole row is, else Used.
func uniform(cells []blockmap.Cell, places int) blockmap.State {
	switch {
	case len(cells) == 0:
		return blockmap.Free
	case len(cells) < places, slices.ContainsFunc(cells, func(c blockmap.Cell) bool { return c.State != blockmap.Reserved }):
		return blockmap.Used
	}
	return blockmap.Reserved
}

// fold replaces the last run of uniform rows by a remark. A single row of an IPv4 pool
// stays, so that small pools are drawn completely.
func fold(m *blockmap.Pool, rows []mapRow, kind blockmap.State, run, places int) []mapRow {
	if kind == blockmap.Used || run == 0 || run == 1 && blockmap.AddressBits(m.CIDR) == 32 {
		return rows
	}
	first, n := len(rows)-run, min(run*places, m.Places)
	rows[first] = mapRow{label: rows[first].label, left: fmt.Sprintf("%s, all %s", phrase.Plural(n, "slot"), kind)}
	return rows[:first+1]
}

// mergeCells merges the cells of neighbouring places.
func mergeCells(group []blockmap.Cell, places int) drawnCell {
	if len(group) == 1 && places == 1 {
		return drawnCell{Cell: group[0]}
	}
	d := drawnCell{Cell: blockmap.Cell{State: blockmap.Free}}
	if len(group) > 0 {
		d.CIDR, d.Place, d.Gap = group[0].CIDR, group[0].Place, group[0].Gap
	}
	taken := d.Merge(group)
	d.partly = taken > 0 && taken < places
	return d
}
