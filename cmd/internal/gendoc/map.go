package main

import (
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/cmd/internal/view/blockmap"
	"github.com/calico-audit/calico-audit/cmd/internal/view/page"
)

// picture is a standalone SVG, drawn from top to bottom.
type picture struct {
	body  strings.Builder
	y     int
	width int
}

const (
	pictureMargin = 16
	pictureLine   = 20
	// pictureRune is the approximate width of a character, in pixels.
	pictureRune = 7
)

// writeMap draws the block map of a report as an SVG for documents: the fill level of
// blocks, their owners where there is room, and a legend. The output is deterministic, and
// follows the reader's light or dark colours.
func writeMap(w io.Writer, r *audit.Report) error {
	m := blockmap.New(r, nil)
	p := &picture{y: pictureMargin, width: 720}
	for i := range m.Pools {
		if i > 0 {
			p.y += pictureLine
		}
		p.pool(&m.Pools[i], r.Usage)
	}
	var b strings.Builder
	height := p.y + pictureMargin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n",
		p.width, height, p.width, height, html.EscapeString(pictureTitle(m)))
	fmt.Fprintf(&b, "<style>%ssvg { background: var(--bg); }\ntext { font: 13px system-ui, sans-serif; fill: var(--text); }\n"+
		".soft { fill: var(--soft); } .bold { font-weight: 650; } .mono { font-family: ui-monospace, monospace; font-size: 12px; }\n</style>\n", page.MapStyle)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="var(--bg)"/>`+"\n", p.width, height)
	b.WriteString(p.body.String())
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func pictureTitle(m *blockmap.Map) string {
	var names []string
	for i := range m.Pools {
		names = append(names, view.Clean(m.Pools[i].Name))
	}
	return "Map of the blocks of " + strings.Join(names, ", ")
}

// text writes text that starts, or ends, at x.
func (p *picture) text(x, y int, class, text string, end bool) {
	anchor := ""
	if end {
		anchor = ` text-anchor="end"`
	}
	fmt.Fprintf(&p.body, `<text x="%d" y="%d" class="%s"%s>%s</text>`+"\n", x, y, class, anchor, html.EscapeString(view.Clean(text)))
}

func (p *picture) pool(m *blockmap.Pool, usage audit.Usage) {
	d, name := page.Draw(m, false, usage), page.MapName(m)
	p.text(pictureMargin, p.y+13, "bold", name, false)
	p.text(pictureMargin+(len([]rune(name))+2)*(pictureRune+1), p.y+13, "soft", strings.TrimPrefix(m.CIDR+", "+page.AboutMap(m), ", "), false)
	p.y += pictureLine + 8

	left := pictureMargin
	for _, l := range d.Labels {
		left = max(left, pictureMargin+len(l)*pictureRune+8)
	}
	p.width = max(p.width, left+d.Width+pictureMargin)
	for i, l := range d.Labels {
		p.text(left-8, p.y+i*d.LabelRows*d.Cell+min(d.LabelRows*d.Cell, 14), "soft mono", l, true)
	}
	fmt.Fprintf(&p.body, `<g class="base c%d" transform="translate(%d %d)">`, d.Cell, left, p.y)
	if d.Free {
		fmt.Fprintf(&p.body, `<rect class="free" width="%d" height="%d"/>`, d.Width, d.Height)
	}
	if d.Lines != "" {
		fmt.Fprintf(&p.body, `<path class="lines" stroke-width="%d" d="%s"/>`, d.GapWidth(), d.Lines)
	}
	p.groups(d.Groups)
	p.body.WriteString("</g>\n")
	if d.Cell >= 68 && d.Rows == 1 {
		for i := range m.Cells {
			c := &m.Cells[i]
			if c.Owner >= 0 {
				p.text(left+c.Place*d.Cell+2, p.y+d.Cell+14, "mono", shortened(m.Owners[c.Owner].Name(), d.Cell/pictureRune-1), false)
			}
		}
		p.y += pictureLine
	}
	p.y += d.Height + 10
	p.legend(m, &d)
}

func (p *picture) groups(groups []page.Group) {
	for _, g := range groups {
		if g.Class != "ground" && g.Class != "by-fill" && g.Class != "marks" {
			continue
		}
		fmt.Fprintf(&p.body, `<g class="%s">`, g.Class)
		for _, path := range g.Paths {
			fmt.Fprintf(&p.body, `<path class="%s" d="%s"/>`, path.Class, path.D)
		}
		p.body.WriteString("</g>")
	}
}

// legend draws the legend, on as many lines as needed.
func (p *picture) legend(m *blockmap.Pool, d *page.Drawing) {
	var shown []page.Swatch
	for _, l := range d.Legends() {
		if l.Mode == "fill" || l.Mode == "" {
			shown = append(shown, l.Items...)
		}
	}
	x := pictureMargin
	for _, s := range shown {
		width := 24 + len([]rune(s.Text))*pictureRune + 20
		if x > pictureMargin && x+width > p.width {
			x, p.y = pictureMargin, p.y+pictureLine
		}
		fmt.Fprintf(&p.body, `<g class="base" transform="translate(%d %d)">`, x, p.y)
		if s.Free {
			p.body.WriteString(`<rect class="free" width="16" height="16"/>`)
		}
		p.groups(s.Groups)
		p.body.WriteString("</g>\n")
		p.text(x+24, p.y+13, "soft", s.Text, false)
		x += width
	}
	p.y += pictureLine
	if len(m.Borrowers) > 0 {
		p.text(pictureMargin, p.y+13, "", "Without a block here, borrowing: "+strings.Join(m.Borrowers[:min(len(m.Borrowers), view.MapNames)], ", "), false)
		p.y += pictureLine
	}
}

// shortened truncates a name to most characters.
func shortened(name string, most int) string {
	if runes := []rune(name); len(runes) > most && most > 1 {
		return string(runes[:most-1]) + "…"
	}
	return name
}
