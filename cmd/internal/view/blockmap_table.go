package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// mapSize says how much of a map is drawn.
type mapSize struct {
	// rows is how many rows of a pool are drawn before cells stand for several
	// blocks; pools how many pools are drawn, 0 for all.
	rows, pools int
	// letters is for how many owners of a pool each gets a letter; with more only
	// those with the most blocks are named.
	letters int
}

var (
	mapShort = mapSize{rows: 8, pools: 4, letters: 8}
	mapWhole = mapSize{rows: 128, letters: 26}
)

// drawMap draws the map of a report. It draws nothing if there is nothing to draw.
func (t *table) drawMap(p *page, r *audit.Report, size mapSize) {
	all := NewBlockMap(r, nil)
	l := newLegend(t.ASCII)
	pools, more := worstPools(all.Pools, size.pools)
	for i := range pools {
		p.blank()
		drawPool(p, &pools[i], size, l)
	}
	if len(pools) == 0 {
		return
	}
	if len(pools) > 1 {
		p.blank()
	}
	l.write(p)
	if more > 0 {
		p.wrap("", 0, plural(more, "more pool has blocks", "more pools have blocks")+": -o map draws all.")
	}
}

// worstPools picks so many of the pools that have something to draw, those with the
// worst findings first, and returns them in order with the number of those that are
// left. 0 picks all, also those that have nothing to draw.
func worstPools(pools []PoolMap, limit int) (picked []PoolMap, more int) {
	if limit == 0 {
		return pools, 0
	}
	order := make([]int, 0, len(pools))
	for i := range pools {
		if len(pools[i].Cells) > 0 {
			order = append(order, i)
		}
	}
	more = max(len(order)-limit, 0)
	slices.SortStableFunc(order, func(a, b int) int { return int(pools[b].worst()) - int(pools[a].worst()) })
	order = order[:len(order)-more]
	slices.Sort(order)
	for _, i := range order {
		picked = append(picked, pools[i])
	}
	return picked, more
}

func (m *PoolMap) worst() (s audit.Severity) {
	for i := range m.Cells {
		s = max(s, m.Cells[i].Severity)
	}
	return s
}

// drawPool draws the map of one pool and says whose the blocks are.
func drawPool(p *page, m *PoolMap, size mapSize, l *legend) {
	lettered := len(m.Owners) <= size.letters
	layout := m.fit(p.width, size.rows, lettered)
	p.wrap("", 2, m.title(layout))
	if len(m.Cells) == 0 {
		p.line(span{text: "  no block is claimed"})
	} else {
		m.drawRows(p, layout, lettered, l)
	}
	m.drawOwners(p, lettered)
}

// title says what is drawn.
func (m *PoolMap) title(l mapLayout) string {
	if m.Pool < 0 {
		return "MAP of the blocks outside all pools: a cell is " + cellText(l.span, "block", "blocks that follow each other")
	}
	block := "block"
	switch bits := addressBits(m.CIDR) - m.BlockSize; {
	case bits == 0:
		block = "block of one address"
	case bits > 0:
		block = "block of " + short(blocks.PowerOfTwo(bits)) + " addresses"
	}
	many := strings.Replace(block, "block", "blocks", 1)
	text := "MAP of " + m.Name + ", " + m.CIDR + ": a cell is "
	if m.Sparse && l.span > 1 {
		return text + cellText(l.span, block, many+" that follow each other")
	}
	return text + cellText(l.span, block, many)
}

func addressBits(cidr string) int {
	if strings.Contains(cidr, ":") {
		return 128
	}
	return 32
}

// cellText says what one cell stands for.
func cellText(span int, one, many string) string {
	if span == 1 {
		return "a " + one
	}
	return fmt.Sprintf("%d %s, drawn as the worst of them and as full as they are on average", span, many)
}

// fit lays a picture out with as many cells to a row as the page has room for.
func (m *PoolMap) fit(width, maxRows int, lettered bool) mapLayout {
	for columns := 64; ; columns /= 2 {
		if columns > 1 && columns/2 >= m.Places {
			continue
		}
		l := m.layout(columns, maxRows)
		if columns == 1 || l.width(m.Sparse, lettered) <= width {
			return l
		}
	}
}

// cellWidth is how many columns of the page a cell takes: glyph, letter, mark, and
// a blank or the sign of a gap before the next.
func (l *mapLayout) cellWidth(sparse, lettered bool) int {
	w := 1
	if lettered {
		w += 2
	} else if sparse {
		w++
	}
	if l.marked {
		w++
	}
	return w
}

func (l *mapLayout) labelWidth() int {
	w := 0
	for i := range l.rows {
		w = max(w, len(l.rows[i].label))
	}
	return w
}

func (l *mapLayout) width(sparse, lettered bool) int {
	return 2 + l.labelWidth() + 1 + l.columns*l.cellWidth(sparse, lettered)
}

// drawRows draws the cells. Where each owner has a letter it stands after the
// glyph. A cell has the colour of the worst finding about it.
func (m *PoolMap) drawRows(p *page, l mapLayout, lettered bool, lg *legend) {
	label := l.labelWidth()
	for i := range l.rows {
		row := &l.rows[i]
		spans := []span{{text: "  " + pad(row.label, label, false) + " "}}
		if row.left != "" {
			spans = append(spans, span{text: " " + lg.glyphs.gap + " " + row.left})
		}
		for j := range row.cells {
			c := &row.cells[j]
			switch {
			case m.Sparse && c.left():
				spans = append(spans, span{text: lg.draw(lg.glyphs.gap)})
			case m.Sparse || lettered || j == 0:
				spans = append(spans, span{text: " "})
			}
			text := lg.draw(lg.glyphs.glyph(c))
			if lettered {
				text += letter(c.Owner)
			}
			if l.marked {
				text += pad(lg.draw(c.mark()), 1, false)
			}
			spans = append(spans, span{text, severityStyle(c.Severity)})
		}
		p.line(spans...)
	}
	if m.Hidden {
		p.wrap("  ", 2, "Parts of the pool are reserved; only blocks are drawn.")
	}
}
