package view

import (
	"bytes"
	"io"
	"strings"
)

// page collects what people read. It is the one place where text from a report
// meets the terminal: everything is cleaned here, and colours are added after
// that.
type page struct {
	buf   bytes.Buffer
	width int
	color bool
	ascii bool
}

func newPage(o Options) *page {
	w := o.Width
	if w <= 0 {
		w = PipeWidth
	}
	return &page{width: max(w, 40), color: o.Color, ascii: o.ASCII}
}

// span is a piece of a line in one style.
type span struct {
	text  string
	style style
}

// line writes pieces as one line.
func (p *page) line(spans ...span) {
	var b strings.Builder
	for _, s := range spans {
		b.WriteString(p.paint(clean(s.text), s.style))
	}
	p.buf.WriteString(strings.TrimRight(b.String(), " "))
	p.buf.WriteByte('\n')
}

// blank writes an empty line.
func (p *page) blank() { p.buf.WriteByte('\n') }

// wrap writes a text over as many lines as it needs. The first begins with lead,
// the others are indented by hang columns.
func (p *page) wrap(lead string, hang int, text string) {
	lead, text = clean(lead), clean(text)
	lines := wrapWords(text, p.width-max(hang, displayWidth(lead)))
	if len(lines) == 0 {
		lines = []string{""}
	}
	for i, l := range lines {
		if i == 0 {
			p.line(span{text: lead + l})
			continue
		}
		p.line(span{text: strings.Repeat(" ", hang) + l})
	}
}

// flow writes pieces one after the other, two blanks between them, and begins a
// new, indented line where one does not fit.
func (p *page) flow(spans ...span) {
	var row []span
	used := 0
	for _, s := range spans {
		w := displayWidth(clean(s.text))
		if used > 0 && used+2+w > p.width {
			p.line(row...)
			row, used = []span{{text: "  "}}, 2
		} else if used > 0 {
			row, used = append(row, span{text: "  "}), used+2
		}
		row, used = append(row, s), used+w
	}
	p.line(row...)
}

func (p *page) writeTo(w io.Writer) error {
	text := p.buf.Bytes()
	if p.ascii {
		text = []byte(asciiTexts.Replace(string(text)))
	}
	_, err := w.Write(text)
	return err
}
