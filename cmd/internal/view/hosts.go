package view

import (
	"fmt"
	"strconv"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
)

// gapsShown limits the listed gaps of one kind, or of host views, in the table.
const gapsShown = 6

// hosts writes the number of nodes with host views, and the gaps. With wide set it lists
// all.
func (p *printer) hosts(r *audit.Report) {
	if r.HostViews == nil && r.HostGaps == nil {
		return
	}
	p.blank()
	p.wrap("Host views: ", 2, hostCount(r))
	if p.wide && len(r.HostViews) > 0 {
		g := &Table{Columns: []Heading{{Title: "NODE"}, {Title: "TAKEN AT"}, {Title: "TAKEN BY"}, {"ROUTES", true}, {"NAMESPACES", true}, {Title: "SOURCE"}}}
		for _, v := range r.HostViews {
			maker := "ip route"
			if v.Agent {
				maker = "agent"
			}
			g.add(v.Node, v.TakenAt.String(), maker, strconv.Itoa(v.Routes), strconv.Itoa(v.Namespaces), v.Source)
		}
		p.grid(g, 2)
	}
	gaps, rest := cut(r.HostGaps, p.atMost(gapsShown))
	p.wrapAll("  ", 4, texts(gaps))
	if rest > 0 {
		p.wrap("  ", 4, fmt.Sprintf("… and %d more (-o wide lists all)", rest))
	}
}

func hostCount(r *audit.Report) string {
	seen := map[bool]map[string]bool{false: {}, true: {}} // by NoNode
	for _, v := range r.HostViews {
		seen[v.NoNode][v.Node] = true
	}
	text := fmt.Sprintf("of %d of %s", len(seen[false]), phrase.Plural(r.Summary.Nodes, "node"))
	if n := len(seen[true]); n > 0 {
		text += fmt.Sprintf(", and of %s not in the cluster", phrase.Plural(n, "machine"))
	}
	if n := len(r.HostGaps); n > 0 {
		text += "; " + phrase.Plural(n, "gap")
	}
	return text
}
