package view

import (
	"bytes"
	"io"
	"math"
	"slices"
	"strings"
)

// printer collects what people read. It is the one place where text from a report
// meets the terminal: everything is cleaned here, and colours are added after
// that.
type printer struct {
	Options
	wide bool // write everything out
	buf  bytes.Buffer

	glyphs *glyphs         // of maps
	drawn  map[string]bool // those that were drawn
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

// forPeople makes a format's Write of what prints a value; wide has it print all.
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

// asciiTexts writes the few characters beyond ASCII that texts of this program have
// in ASCII.
var asciiTexts = strings.NewReplacer("…", "...", "→", "->", "⌈", "", "⌉", "", "×", "x", "±", "+-")

// atMost is how many of alike things are written out: so many, or all.
func (p *printer) atMost(n int) int {
	if p.wide {
		return math.MaxInt
	}
	return n
}

// style is a colour: the SGR parameters of ECMA-48. The zero style is none.
type style string

// span is a piece of a line in one style.
type span struct {
	text  string
	style style
}

// spans makes pieces of texts, without the empty ones.
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

// wrap writes a text over as many lines as it needs. The first begins with lead,
// the others are indented by hang columns.
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

// wrapAll wraps texts, each after the same lead.
func (p *printer) wrapAll(lead string, hang int, texts []string) {
	for _, t := range texts {
		p.wrap(lead, hang, t)
	}
}

// label writes a text under a word, wrapped; nothing for no text.
func (p *printer) label(word, text string) {
	if text != "" {
		p.wrap("    "+pad(word, 6, false), 10, text)
	}
}

// flow writes pieces one after the other, two blanks between them, and begins a
// new, indented line where one does not fit.
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

// Heading heads a column of a table, which is aligned to the right for numbers.
type Heading struct {
	Title string
	Right bool
}

// Table is text in aligned columns.
type Table struct {
	Columns []Heading
	Rows    [][]string
	// noTitles leaves out the line of titles.
	noTitles bool
	// gap is what stands between columns; empty means two blanks.
	gap string
}

func (g *Table) add(cells ...string) { g.Rows = append(g.Rows, cells) }

// drop leaves out a column.
func (g *Table) drop(title string) {
	i := slices.IndexFunc(g.Columns, func(c Heading) bool { return c.Title == title })
	g.Columns = slices.Delete(g.Columns, i, i+1)
	for n, row := range g.Rows {
		g.Rows[n] = slices.Delete(row, i, i+1)
	}
}

// lines returns the table's lines, cleaned and aligned by display width, and the width
// of the widest.
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
