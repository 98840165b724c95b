package view

import "strings"

// glyphs are the characters of a map.
type glyphs struct {
	// fill are those of one to seven eighths; full of a block without an address
	// left.
	fill                          [7]string
	full, free, empty, held, bust string
	gap                           string
}

var (
	drawnGlyphs = glyphs{
		fill: [7]string{"▁", "▂", "▃", "▄", "▅", "▆", "▇"},
		full: "█", free: "·", empty: "○", held: "░", bust: "✕", gap: "⋯",
	}
	asciiGlyphs = glyphs{
		fill: [7]string{"1", "2", "3", "4", "5", "6", "7"},
		full: "8", free: ".", empty: "o", held: "#", bust: "X", gap: "~",
	}
)

// The marks of a cell, which stand beside its glyph; of several the first is drawn.
const (
	markPlanned = "*"
	markDead    = "!"
	markLent    = "<"
	markNoOwner = "?"
	markStray   = "+"
	markPartly  = ":"
)

// markTexts explain the marks, in the order of precedence.
var markTexts = []struct{ mark, text string }{
	{markPlanned, "the plan changes it"},
	{markDead, "its owner is no node"},
	{markLent, "other nodes use addresses of it"},
	{markNoOwner, "nobody owns it"},
	{markStray, "an affinity claims it, and no block exists"},
	{markPartly, "free in part"},
}

// glyph returns what a cell is drawn as.
func (g *glyphs) glyph(c *drawnCell) string {
	switch {
	case c.State == MapBroken:
		return g.bust
	case c.State == MapReserved:
		return g.held
	case c.State == MapEmpty:
		return g.empty
	case c.State == MapUsed && c.Fill >= 8:
		return g.full
	case c.State == MapUsed:
		return g.fill[max(c.Fill, 1)-1]
	}
	return g.free
}

// mark returns the mark of a cell; empty if it has none.
func (d *drawnCell) mark() string {
	switch {
	case d.Planned:
		return markPlanned
	case d.DeadNode:
		return markDead
	case d.Lent > 0:
		return markLent
	case d.NoOwner:
		return markNoOwner
	case d.Stray:
		return markStray
	case d.partly:
		return markPartly
	}
	return ""
}

// legend remembers what was drawn, to explain that and no more.
type legend struct {
	glyphs *glyphs
	seen   map[string]bool
}

func newLegend(ascii bool) *legend {
	g := &drawnGlyphs
	if ascii {
		g = &asciiGlyphs
	}
	return &legend{glyphs: g, seen: map[string]bool{}}
}

// draw returns a character and remembers it.
func (l *legend) draw(s string) string {
	l.seen[s] = true
	return s
}

// write explains what was drawn.
func (l *legend) write(p *page) {
	g := l.glyphs
	var spans []span
	add := func(sign, text string) { spans = append(spans, span{text: sign + " " + text}) }
	for _, x := range []struct{ sign, text string }{{g.full, "full"}, {"", ""}, {g.empty, "claimed, but empty"}, {g.free, "free to claim"},
		{g.held, "reserved"}, {g.bust, "broken: corrupt, overlapping, or marked deleted"}, {g.gap, "slots left out"}} {
		switch {
		case x.sign == "" && l.anyFill():
			add(g.fill[0]+"-"+g.fill[6], "in use, in eighths")
		case l.seen[x.sign]:
			add(x.sign, x.text)
		}
	}
	for _, m := range markTexts {
		if l.seen[m.mark] {
			add(m.mark, m.text)
		}
	}
	if len(spans) > 0 {
		p.flow(spans...)
	}
}

func (l *legend) anyFill() bool {
	for _, f := range l.glyphs.fill {
		if l.seen[f] {
			return true
		}
	}
	return false
}

// letter names an owner by its place; empty for those beyond the alphabet.
func letter(owner int) string {
	if owner < 0 || owner >= 26 {
		return " "
	}
	return string(rune('A' + owner))
}

// asciiTexts writes the few characters beyond ASCII that texts of this program have
// in ASCII.
var asciiTexts = strings.NewReplacer("…", "...", "→", "->", "⌈", "", "⌉", "", "×", "x", "±", "+-")
