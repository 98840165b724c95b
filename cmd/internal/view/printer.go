package view

import (
	"bytes"
	"io"
	"math"
	"slices"
	"strings"
)

// printer collects output for people. All text from a report passes through it: it makes
// control characters visible, and only then adds colours.
type printer struct {
	Options
	wide bool // show everything
	buf  bytes.Buffer

	glyphs *glyphs         // of maps
	drawn  map[string]bool // the glyphs in use, for the legend
}

func newPrinter(o Options, wide bool) *printer {
	if o.Width <= 0 {
		o.Width = PipeWidth
	}
	o.Width = max(o.Width, 40)
	p := &printer{Options: o.Defaults(), wide: wide, glyphs: &drawnGlyphs, drawn: map[string]bool{}}
	if o.ASCII {
		p.glyphs = &asciiGlyphs
	}
	return p
}

// forPeople returns a Write function from a print function; with wide set it prints
// everything.
func forPeople[T any](print func(p *printer, v T), wide bool) func(io.Writer, T, Options) error {
	return func(w io.Writer, v T, o Options) error {
		p := newPrinter(o, wide)
		print(p, v)
		return p.writeTo(w)
	}
}

func (p *printer) writeTo(w io.Writer) error {
	text := p.buf.Bytes()
	if p.ASCII {
		text = []byte(asciiTexts.Replace(string(text)))
	}
	_, err := w.Write(text)
	return err
}

// asciiTexts replaces the program's own characters beyond ASCII.
var asciiTexts = strings.NewReplacer("…", "...", "→", "->", "⌈", "", "⌉", "", "×", "x", "±", "+-")

// atMost returns n as the limit of a list; wide output has no limit.
func (p *printer) atMost(n int) int {
	if p.wide {
		return math.MaxInt
	}
	return n
}

// style is a colour, as SGR parameters of ECMA-48. The zero style leaves the text
// uncoloured.
type style string

// span is a part of a line with one style.
type span struct {
	text  string
	style style
}

// spans returns a span for each non-empty text.
func spans(texts ...string) (out []span) {
	for _, t := range texts {
		if t != "" {
			out = append(out, span{text: t})
		}
	}
	return out
}

func (p *printer) line(pieces ...span) {
	var b strings.Builder
	for _, s := range pieces {
		text := Clean(s.text)
		if p.Color && s.style != "" && text != "" {
			text = "\x1b[" + string(s.style) + "m" + text + "\x1b[0m"
		}
		b.WriteString(text)
	}
	p.buf.WriteString(strings.TrimRight(b.String(), " "))
	p.buf.WriteByte('\n')
}

func (p *printer) say(text string) { p.line(span{text: text}) }

func (p *printer) blank() { p.buf.WriteByte('\n') }

func (p *printer) section(title string) { p.blank(); p.say(title) }

// wrap writes a text on as many lines as it needs. The first line starts with lead; the
// others are indented by hang columns.
func (p *printer) wrap(lead string, hang int, text string) {
	lead = Clean(lead)
	for i, l := range append(wrapWords(Clean(text), p.Width-max(hang, displayWidth(lead))), "") {
		switch {
		case i == 0:
			p.say(lead + l)
		case l != "":
			p.say(strings.Repeat(" ", hang) + l)
		}
	}
}

// wrapAll wraps several texts, each with the same lead.
func (p *printer) wrapAll(lead string, hang int, texts []string) {
	for _, t := range texts {
		p.wrap(lead, hang, t)
	}
}

// label writes a non-empty text after a label, wrapped.
func (p *printer) label(word, text string) {
	if text != "" {
		p.wrap("    "+pad(word, 6, false), 10, text)
	}
}

// flow writes spans one after the other, separated by two spaces, and continues on an
// indented line if one does not fit.
func (p *printer) flow(pieces ...span) {
	var row []span
	used := 0
	for _, s := range pieces {
		w := displayWidth(Clean(s.text))
		if used > 0 && used+2+w > p.Width {
			p.line(row...)
			row, used = []span{{text: "  "}}, 2
		} else if used > 0 {
			row, used = append(row, span{text: "  "}), used+2
		}
		row, used = append(row, s), used+w
	}
	if row != nil {
		p.line(row...)
	}
}

// Heading is the title of a column; numbers are aligned to the right.
type Heading struct {
	Title string
	Right bool
}

// Table is text in aligned columns.
type Table struct {
	Columns []Heading
	Rows    [][]string
	// noTitles omits the line of titles.
	noTitles bool
	// gap separates columns; empty means two spaces.
	gap string
}

func (g *Table) add(cells ...string) { g.Rows = append(g.Rows, cells) }

// drop removes a column.
func (g *Table) drop(title string) {
	i := slices.IndexFunc(g.Columns, func(c Heading) bool { return c.Title == title })
	g.Columns = slices.Delete(g.Columns, i, i+1)
	for n, row := range g.Rows {
		g.Rows[n] = slices.Delete(row, i, i+1)
	}
}

// lines returns the table's lines, aligned by display width, and the width of the widest.
// Control characters are made visible.
func (g *Table) lines() (out []string, width int) {
	rows := g.Rows
	if !g.noTitles {
		titles := make([]string, len(g.Columns))
		for i, c := range g.Columns {
			titles[i] = c.Title
		}
		rows = append([][]string{titles}, rows...)
	}
	widths := make([]int, len(g.Columns))
	for i := range widths {
		widths[i] = widest(rows, func(row *[]string) string { return (*row)[i] })
	}
	gap := g.gap
	if gap == "" {
		gap = "  "
	}
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = pad(Clean(c), widths[i], g.Columns[i].Right)
		}
		l := strings.TrimRight(strings.Join(cells, gap), " ")
		out, width = append(out, l), max(width, displayWidth(l))
	}
	return out, width
}

func (p *printer) grid(g *Table, indent int) {
	lines, _ := g.lines()
	for _, l := range lines {
		p.say(strings.Repeat(" ", indent) + l)
	}
}
