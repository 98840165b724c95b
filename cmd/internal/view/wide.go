package view

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
)

func newWide(_ string, o Options) (Printer, error) { return &table{o.defaults(), true}, nil }

// nodes writes the nodes' numbers.
func (t *table) nodes(p *page, r *audit.Report) {
	if len(r.Nodes) == 0 {
		return
	}
	p.blank()
	g := &grid{columns: []column{
		{title: "NODE"}, {"BLOCKS", true}, {"EMPTY", true}, {"ADDRESSES", true},
		{title: "BORROWED FROM"}, {title: "LENT TO"}, {title: "BLOCK CIDRS"},
	}}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		name := n.Name
		if n.Missing {
			name += " (no such node)"
		}
		g.add(name, strconv.Itoa(len(n.Blocks)), strconv.Itoa(n.EmptyBlocks), strconv.Itoa(n.Addresses),
			counted(n.Borrowed, n.BorrowedFrom), counted(n.Lent, n.LentTo), dash(strings.Join(n.Blocks, " ")))
	}
	p.grid(g, 0)
}

// counted writes a number of addresses with the nodes that it concerns.
func counted(n int, nodes []string) string {
	if n == 0 && len(nodes) == 0 {
		return "-"
	}
	return fmt.Sprintf("%d: %s", n, strings.Join(nodes, " "))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// each writes every finding of a group on its own, with its evidence.
func (t *table) each(p *page, g group, why string) {
	for i, f := range g {
		heading(p, group{f}, of(i, len(g)))
		p.wrap("  ", 4, message(f))
		width := 0
		for _, e := range f.Evidence {
			width = max(width, displayWidth(clean(e.Name)))
		}
		for _, e := range f.Evidence {
			lead := "    " + pad(clean(e.Name), width, false) + "  "
			p.wrap(lead, width+6, e.Value)
		}
		if i == 0 {
			label(p, "why", why)
		}
		t.fix(p, f)
	}
}

// of counts a finding among alike ones: " (2 of 4)".
func of(i, n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" (%d of %d)", i+1, n)
}
