package view

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/calico-audit/calico-audit/audit"
)

// hostGapsShown is how many gaps of host views the table names one by one.
const hostGapsShown = 6

// hosts says of how many nodes there are host views, and which are missing: in the
// table in some lines, with wide set in full.
func (t *table) hosts(p *page, r *audit.Report) {
	if r.HostViews == nil && r.HostGaps == nil {
		return
	}
	p.blank()
	p.wrap("Host views: ", 2, hostCount(r))
	if t.wide && len(r.HostViews) > 0 {
		g := &grid{columns: []column{{title: "NODE"}, {title: "TAKEN AT"}, {title: "BY"}, {"ROUTES", true}, {"NAMESPACES", true}, {title: "SOURCE"}}}
		for _, v := range r.HostViews {
			g.add(v.Node, audit.FormatTime(v.TakenAt.Time), hostMaker(v), strconv.Itoa(v.Routes), strconv.Itoa(v.Namespaces), v.Source)
		}
		p.grid(g, 2)
	}
	shown := r.HostGaps
	if !t.wide && len(shown) > hostGapsShown+1 {
		shown = shown[:hostGapsShown]
	}
	for _, g := range shown {
		p.wrap("  ", 4, g.String())
	}
	if rest := len(r.HostGaps) - len(shown); rest > 0 {
		p.wrap("  ", 4, fmt.Sprintf("… and %d more; -o wide shows them", rest))
	}
}

// hostCount says of how many nodes there are views.
func hostCount(r *audit.Report) string {
	nodes, others := map[string]bool{}, map[string]bool{}
	for _, v := range r.HostViews {
		if v.NoNode {
			others[v.Node] = true
		} else {
			nodes[v.Node] = true
		}
	}
	text := fmt.Sprintf("of %d of %s", len(nodes), plural(r.Summary.Nodes, "node", "nodes"))
	if n := len(others); n > 0 {
		text += fmt.Sprintf(", and of %s not in the cluster", plural(n, "machine", "machines"))
	}
	if n := len(r.HostGaps); n > 0 {
		text += "; " + plural(n, "gap", "gaps")
	}
	return text
}

func hostMaker(v audit.HostViewReport) string {
	if v.Agent {
		return "agent"
	}
	return "ip route"
}

// markdownHosts is the same for a ticket.
func markdownHosts(b *bytes.Buffer, r *audit.Report) {
	if r.HostViews == nil && r.HostGaps == nil {
		return
	}
	fmt.Fprintf(b, "\n**Host views:** %s.\n", mdText(hostCount(r)))
	if len(r.HostGaps) > 0 {
		b.WriteString("\n")
	}
	for i, g := range r.HostGaps {
		if i == markdownShown {
			fmt.Fprintf(b, "- … and %d more\n", len(r.HostGaps)-i)
			break
		}
		fmt.Fprintf(b, "- %s\n", mdText(g.String()))
	}
}
