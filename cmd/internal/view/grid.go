package view

import "strings"

// column is a column of a grid.
type column struct {
	title string
	// right aligns numbers.
	right bool
}

// grid is text in aligned columns.
type grid struct {
	columns []column
	rows    [][]string
	// noTitles leaves out the line of titles.
	noTitles bool
	// gap is the number of blanks between columns; 0 means 2.
	gap int
}

func (g *grid) add(cells ...string) { g.rows = append(g.rows, cells) }

// lines returns the grid's lines, cleaned and aligned by display width.
func (g *grid) lines() []string {
	widths := make([]int, len(g.columns))
	var rows [][]string
	if !g.noTitles {
		titles := make([]string, len(g.columns))
		for i, c := range g.columns {
			titles[i] = c.title
		}
		rows = append(rows, titles)
	}
	rows = append(rows, g.rows...)
	for _, row := range rows {
		for i := range row {
			widths[i] = max(widths[i], displayWidth(clean(row[i])))
		}
	}
	gap := g.gap
	if gap == 0 {
		gap = 2
	}
	out := make([]string, 0, len(rows))
	for _, row := range rows {
		var b strings.Builder
		for i := range row {
			if i > 0 {
				b.WriteString(strings.Repeat(" ", gap))
			}
			b.WriteString(pad(clean(row[i]), widths[i], g.columns[i].right))
		}
		out = append(out, strings.TrimRight(b.String(), " "))
	}
	return out
}

// width returns the width of the grid's widest line.
func (g *grid) width() int {
	n := 0
	for _, l := range g.lines() {
		n = max(n, displayWidth(l))
	}
	return n
}

// grid writes a grid, indented.
func (p *page) grid(g *grid, indent int) {
	for _, l := range g.lines() {
		p.line(span{text: strings.Repeat(" ", indent) + l})
	}
}
