package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/view/blockmap"
	"github.com/calico-audit/calico-audit/repair"
)

// mapSize limits the size of a map.
type mapSize struct {
	// rows limits the rows of a pool; for larger pools, cells stand for several blocks.
	// pools limits the number of pools, 0 for all.
	rows, pools int
	// letters is the maximum number of owners with letters. If a pool has more, only those
	// with the most blocks are named.
	letters int
}

var (
	mapShort  = mapSize{rows: 8, pools: 4, letters: 8}
	mapWhole  = mapSize{rows: 128, letters: 26}
	mapOfPlan = mapSize{rows: 4, pools: 3}
)

// MapNames limits the names in a line of a map.
const MapNames = 8

type glyphs struct {
	// fill has glyphs for one to eight eighths. The last one means that no address is left.
	fill                            [8]string
	free, empty, reserved, bad, gap string
}

var (
	drawnGlyphs = glyphs{[8]string{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}, "·", "○", "░", "✕", "⋯"}
	asciiGlyphs = glyphs{[8]string{"1", "2", "3", "4", "5", "6", "7", "8"}, ".", "o", "#", "X", "~"}
)

func (g *glyphs) glyph(c *drawnCell) string {
	switch c.State {
	case blockmap.Broken:
		return g.bad
	case blockmap.Reserved:
		return g.reserved
	case blockmap.Empty:
		return g.empty
	case blockmap.Used:
		return g.fill[min(max(c.Fill, 1), 8)-1]
	case blockmap.Free:
	}
	return g.free
}

// marks are drawn next to a cell's glyph; only the first that applies is drawn.
var marks = []struct {
	sign, text string
	is         func(c *drawnCell) bool
}{
	{"*", "changed by the plan", func(c *drawnCell) bool { return c.Planned }},
	{"#", "contested: blocks overlap, or another node's affinity claims it", func(c *drawnCell) bool { return c.Contested }},
	{"!", "its node no longer exists", func(c *drawnCell) bool { return c.DeadNode }},
	{"<", "lends addresses to other nodes", func(c *drawnCell) bool { return c.Lent > 0 }},
	{"?", "no owner", func(c *drawnCell) bool { return c.NoOwner }},
	{"+", "BlockAffinity exists, its IPAMBlock does not", func(c *drawnCell) bool { return c.OrphanAffinity }},
	{":", "partly free", func(c *drawnCell) bool { return c.partly }},
}

// mark returns the mark of a cell; "" for none.
func (c *drawnCell) mark() string {
	for _, m := range marks {
		if m.is(c) {
			return m.sign
		}
	}
	return ""
}

// draw returns a character of the map, and adds it to the legend.
func (p *printer) draw(s string) string {
	p.drawn[s] = true
	return s
}

// legend explains the characters that were drawn.
func (p *printer) legend() {
	var shown []string
	g, drawn := p.glyphs, p.drawn
	add := func(is bool, sign, text string) {
		if is {
			shown = append(shown, sign+" "+text)
		}
	}
	add(drawn[g.fill[7]], g.fill[7], "full")
	add(slices.ContainsFunc(g.fill[:7], func(f string) bool { return drawn[f] }), g.fill[0]+"-"+g.fill[6], "in use, in eighths")
	add(drawn[g.empty], g.empty, "claimed, but empty")
	add(drawn[g.free], g.free, "free")
	add(drawn[g.reserved], g.reserved, "reserved")
	add(drawn[g.bad], g.bad, "broken: corrupt or unreadable, overlapping, or marked deleted")
	add(drawn[g.gap], g.gap, "omitted slots")
	for _, m := range marks {
		add(drawn[m.sign], m.sign, m.text)
	}
	p.flow(spans(shown...)...)
}

func (p *printer) mapAlone(r *audit.Report) {
	p.head(&r.Cluster, r.Complete)
	if none := blockmap.Missing(r); none != "" {
		p.blank()
		p.wrap("", 0, none)
	} else {
		p.drawMap(r, mapWhole)
	}
	p.notSeen(r.Gaps, r.SkippedChecks, false)
}

// drawMap draws the map of a report, if there are blocks or pools.
func (p *printer) drawMap(r *audit.Report, size mapSize) {
	pools, more := worstPools(blockmap.New(r, nil).Pools, size.pools)
	for i := range pools {
		p.blank()
		p.poolMap(&pools[i], size)
	}
	if len(pools) == 0 {
		return
	}
	if len(pools) > 1 {
		p.blank()
	}
	p.legend()
	if more > 0 {
		p.wrap("", 0, phrase.PluralVerb(more, "more pool", "has blocks", "have blocks")+" (-o map draws all).")
	}
}

// worstPools picks at most limit pools with cells, those with the most severe findings first, and
// returns them in the report's order. It also returns the number of pools left out. A limit of 0
// picks all pools, even empty ones.
func worstPools(pools []blockmap.Pool, limit int) (picked []blockmap.Pool, more int) {
	if limit == 0 {
		return pools, 0
	}
	var order []int
	for i := range pools {
		if len(pools[i].Cells) > 0 {
			order = append(order, i)
		}
	}
	worst := func(i int) (s state.Severity) {
		for _, c := range pools[i].Cells {
			s = max(s, c.Severity)
		}
		return s
	}
	more = max(len(order)-limit, 0)
	slices.SortStableFunc(order, func(a, b int) int { return int(worst(b)) - int(worst(a)) })
	order = order[:len(order)-more]
	slices.Sort(order)
	for _, i := range order {
		picked = append(picked, pools[i])
	}
	return picked, more
}

func (p *printer) poolMap(m *blockmap.Pool, size mapSize) {
	lettered := len(m.Owners) <= size.letters
	layout := fit(m, p.Width, size.rows, lettered)
	p.wrap("", 2, mapTitle(m, layout))
	p.mapRows(m, layout)
	p.mapOwners(m, lettered)
}

func mapTitle(m *blockmap.Pool, l mapLayout) string {
	block, after := "block", ""
	bits := blockmap.AddressBits(m.CIDR) - m.BlockSize
	switch {
	case m.Pool < 0:
	case bits == 0:
		block = "block of one address"
	case bits > 0:
		block = "block of " + Short(blocks.PowerOfTwo(bits)) + " addresses"
	}
	if m.Sparse {
		after = " in a row"
	}
	text := "MAP of " + m.Name + ", " + m.CIDR
	if m.Pool < 0 {
		text = "MAP of the blocks outside all pools"
	}
	if l.span == 1 {
		return text + ": a cell is a " + block
	}
	return fmt.Sprintf("%s: a cell is %d %s%s, with the worst state and the average fill level",
		text, l.span, strings.Replace(block, "block", "blocks", 1), after)
}

// mapRows draws the cells. If owners have letters, a cell's letter follows its glyph. A
// cell has the colour of its most severe finding.
func (p *printer) mapRows(m *blockmap.Pool, l mapLayout) {
	if len(m.Cells) == 0 {
		p.say("  no block is claimed")
		return
	}
	label := l.labelWidth()
	for i := range l.rows {
		row := &l.rows[i]
		spans := []span{{text: "  " + pad(row.label, label, false) + " "}}
		if row.left != "" {
			spans = append(spans, span{text: " " + p.glyphs.gap + " " + row.left})
		}
		for j := range row.cells {
			c := &row.cells[j]
			switch {
			case m.Sparse && !c.Gap.IsZero():
				spans = append(spans, span{text: p.draw(p.glyphs.gap)})
			case m.Sparse || l.lettered || j == 0:
				spans = append(spans, span{text: " "})
			}
			text := p.draw(p.glyphs.glyph(c))
			if l.lettered {
				text += letter(c.Owner)
			}
			if l.marked {
				text += pad(p.draw(c.mark()), 1, false)
			}
			spans = append(spans, span{text, styleOf(c.Severity)})
		}
		p.line(spans...)
	}
	if m.Hidden {
		p.wrap("  ", 2, "Parts of the pool are reserved. Only blocks are drawn.")
	}
}

// letter returns the letter of an owner, by index; a space for none.
func letter(owner int) string {
	if owner < 0 || owner >= 26 {
		return " "
	}
	return string(rune('A' + owner))
}

func (p *printer) mapOwners(m *blockmap.Pool, lettered bool) {
	var owners []string
	for i := range m.Owners {
		text := m.Owners[i].Text()
		if lettered {
			text = letter(i) + " " + text
		}
		owners = append(owners, text)
	}
	if len(owners) > MapNames && !lettered {
		rest := m.Owners[MapNames:]
		most, least := rest[0].Blocks, rest[len(rest)-1].Blocks
		each := phrase.Plural(most, "block")
		if least < most {
			each = fmt.Sprintf("%d to %s", least, each)
		}
		owners = append(owners[:MapNames], fmt.Sprintf("%s with %s each", phrase.Plural(len(rest), "other"), each))
	}
	if len(owners) > 0 {
		owners[0] = "  " + owners[0]
	}
	p.flow(spans(owners...)...)
	if len(m.Borrowers) > 0 {
		some, rest := cut(m.Borrowers, MapNames)
		if rest > 0 {
			some = append(slices.Clone(some), fmt.Sprintf("and %d more", rest))
		}
		p.wrap("  ", 4, "without a block here, borrowing: "+strings.Join(some, ", "))
	}
}

// planMaps draws the pools that a plan changes, before and after it, with the same layout.
func (p *printer) planMaps(plan *repair.Plan) {
	maps := blockmap.OfPlan(p.Report, plan)
	for _, m := range maps[:min(len(maps), mapOfPlan.pools)] {
		layout := fit(m.Before, p.Width, mapOfPlan.rows, false)
		p.blank()
		p.wrap("", 2, mapTitle(m.Before, layout))
		p.say("before")
		p.mapRows(m.Before, layout)
		p.say("after")
		if len(m.After.Cells) > 0 {
			layout.rows = rowsOf(m.After, layout.columns, layout.span)
		}
		p.mapRows(m.After, layout)
	}
	if len(maps) > 0 {
		p.legend()
	}
	if more := len(maps) - mapOfPlan.pools; more > 0 {
		p.wrap("", 0, phrase.PluralVerb(more, "more pool", "is changed.", "are changed."))
	}
}
