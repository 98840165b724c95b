package view

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/capacity"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// CapacityKind is the kind of a CapacityReport.
const CapacityKind = "CapacityReport"

// CapacityReport is the document of a capacity answer, with its cluster.
type CapacityReport struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Cluster    audit.ReportCluster `json:"cluster"`
	Complete   bool                `json:"complete"`
	Gaps       []blocks.Gap        `json:"gaps,omitempty"`
	capacity.Answer
}

// NewCapacityReport builds the document of an answer about a state.
func NewCapacityReport(st *state.State, answer *capacity.Answer) *CapacityReport {
	return &CapacityReport{
		APIVersion: audit.APIVersion, Kind: CapacityKind, Cluster: audit.NewReportCluster(st),
		Complete: st.Complete(), Gaps: st.Gaps, Answer: *answer,
	}
}

// CapacityFormats returns the formats of a capacity report. page writes it as HTML.
func CapacityFormats(page func(io.Writer, *CapacityReport, Options) error) Formats[*CapacityReport] {
	return slices.Concat(tables((*printer).capacity, "the remaining capacity and the scenario's outcome, for people; long lists are cut", "the table with every node"),
		DataFormats[*CapacityReport]("the whole answer"), Formats[*CapacityReport]{
			paths[*CapacityReport]("the answer"), tickets[*CapacityReport]("capacity"),
			{Name: "html", Help: "a page with a chart of the blocks that joining nodes claim", Write: page},
		})
}

// capacityNodes limits the listed nodes in the table.
const capacityNodes = 10

func (p *printer) capacity(r *CapacityReport) {
	p.head(&r.Cluster, r.Complete)
	if r.Inconclusive != "" {
		p.section("INCONCLUSIVE")
		p.wrap("  ", 2, r.Inconclusive)
		return
	}
	if lines := DemandLines(r); len(lines) > 0 {
		p.section("SERVED FIRST")
		p.wrapAll("  ", 4, lines)
	}
	p.section("HEADROOM TODAY, BY THE ALLOCATOR OF CALICO " + r.Rules)
	p.grid(HeadroomTable(r), 2)
	if o := r.Outcome; o != nil {
		p.section("WHAT IF " + strings.ToUpper(ScenarioText(r.Scenario)))
		p.wrapAll("  ", 4, OutcomeLines(r))
		if len(o.Changes) > 0 {
			p.section("SMALLEST CHANGES, EACH ENOUGH BY ITSELF")
			p.wrapAll("  - ", 4, ChangeLines(o))
		}
		if len(o.Nodes) > 0 {
			p.section("NODES")
			p.grid(NodesTable(o, p.atMost(capacityNodes)), 2)
			if more := len(o.Nodes) - p.atMost(capacityNodes); more > 0 {
				p.say(fmt.Sprintf("  … and %d more (-o wide)", more))
			}
		}
		p.section("POOLS AFTERWARDS")
		p.grid(PoolsTable(o), 2)
	}
	if len(r.Notes) > 0 {
		p.section("NOTES")
		p.wrapAll("  - ", 4, r.Notes)
	}
}

// HeadroomTable is the table of the pools' headroom.
func HeadroomTable(r *CapacityReport) *Table {
	g := &Table{Columns: []Heading{{Title: "POOL"}, {Title: "CIDR"}, {Title: "BLOCKS LEFT", Right: true}, {Title: "ADDRESSES LEFT", Right: true}, {Title: "NODES CAN JOIN"}, {Title: "PODS CAN START"}, {Title: "THEN"}}}
	for i := range r.Today {
		h := &r.Today[i]
		then := "no node uses it"
		switch {
		case h.First != "" && h.Refused:
			then = fmt.Sprintf("a pod on %s gets no address (%s)", h.First, h.PodsLimit)
		case h.First != "":
			then = fmt.Sprintf("a pod on %s borrows (%s)", h.First, h.PodsLimit)
		}
		g.add(h.Pool, h.CIDR.String(), fmt.Sprintf("%s of /%d", h.Blocks, h.BlockSize), h.Addresses.String(), withLimit(h.Nodes, h.NodesLimit), h.Pods.String(), then)
	}
	return g
}

func withLimit(n blocks.Count, l capacity.Limit) string {
	if l == capacity.LimitNone {
		return n.String()
	}
	return fmt.Sprintf("%s (%s)", n, l)
}

// NodesTable is the table of the nodes, up to most.
func NodesTable(o *capacity.Outcome, most int) *Table {
	g := &Table{Columns: []Heading{{Title: "NODE"}, {Title: "BLOCKS CLAIMED"}, {Title: "PODS", Right: true}, {Title: "BORROWED", Right: true}, {Title: "REFUSED", Right: true}, {Title: "BORROWS FROM"}}}
	for i := range o.Nodes[:min(most, len(o.Nodes))] {
		n := &o.Nodes[i]
		var cidrs []string
		for _, c := range n.Claimed {
			cidrs = append(cidrs, c.String())
		}
		g.add(n.Node, phrase.OrNone(CutNames(cidrs, 3, "… %d more")), strconv.Itoa(n.Started), strconv.Itoa(n.Borrowed), strconv.Itoa(n.Refused), CutNames(n.From, 3, "… %d more"))
	}
	return g
}

// PoolsTable is the table of the pools after the scenario.
func PoolsTable(o *capacity.Outcome) *Table {
	g := &Table{Columns: []Heading{{Title: "POOL"}, {Title: "CIDR"}, {Title: "BLOCKS BEFORE", Right: true}, {Title: "AFTER", Right: true}, {Title: "LEFT", Right: true}, {Title: "UNUSED IN BLOCKS", Right: true}, {Title: "WASTED", Right: true}}}
	for i := range o.Pools {
		p := &o.Pools[i]
		g.add(p.Pool, p.CIDR.String(), strconv.Itoa(p.Before), strconv.Itoa(p.After), p.Blocks.String(), p.Idle.String(), p.Wasted.String())
	}
	return g
}

// ScenarioText describes a scenario.
func ScenarioText(q *capacity.Scenario) string {
	var out []string
	add := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	if q.StrictAffinity != nil {
		add("strict affinity is %s", map[bool]string{true: "on", false: "off"}[*q.StrictAffinity])
	}
	if q.MaxBlocks != nil {
		add("a node may hold at most %s", phrase.Plural(*q.MaxBlocks, "block"))
	}
	for _, r := range q.Reserve {
		add("%s is reserved", r)
	}
	for _, p := range q.AddPools {
		add("a pool %s with blocks of /%d is added", p.CIDR, p.BlockSize)
	}
	for _, b := range q.BlockSizes {
		add("%s is replaced by a pool with blocks of /%d", b.Pool, b.Bits)
	}
	if len(q.RemoveNodes) > 0 {
		add("removed: %s", blocks.Names(q.RemoveNodes))
	}
	if q.AddNodes > 0 {
		text := phrase.PluralVerb(q.AddNodes, "node", "joins", "join") + " with " + phrase.Plural(max(q.PodsPerNode, 1), "pod") + " each"
		var labels []string
		for _, k := range slices.Sorted(maps.Keys(q.NodeLabels)) {
			labels = append(labels, k+"="+q.NodeLabels[k])
		}
		if len(labels) > 0 {
			text += " and " + strings.Join(labels, ",")
		}
		if q.MaxNodes > 0 {
			text += fmt.Sprintf(", up to the maximum of %d nodes", q.MaxNodes)
		}
		out = append(out, text)
	} else if q.MaxNodes > 0 {
		add("no node joins, because the maximum of %s is reached", phrase.Plural(q.MaxNodes, "node"))
	}
	if q.Pods > 0 {
		add("%s, spread like the existing pods", phrase.PluralVerb(q.Pods, "pod", "starts", "start"))
	}
	return strings.Join(out, "; ")
}

// DemandLines describe today's unmet demand, and the part of it that remains unmet.
func DemandLines(r *CapacityReport) (out []string) {
	d := &r.Demand
	if d.Pods > 0 {
		out = append(out, fmt.Sprintf("Pods that wait for an address: %d%s.", d.Pods, leftOf(d.PodsLeft)))
	}
	if d.Nodes > 0 {
		text := fmt.Sprintf("Existing nodes without a block of their own: %d%s", d.Nodes, leftOf(len(d.NodesLeft)))
		if len(d.NodesLeft) > 0 {
			text += ": " + CutNames(d.NodesLeft, capacityNodes, "… %d more")
		}
		out = append(out, text+".")
	}
	if d.First != nil {
		who := "node " + d.First.Node
		if d.First.Waits != "" {
			who = "pod " + d.First.Waits + " on " + d.First.Node
		}
		out = append(out, fmt.Sprintf("The first is %s: %s.", who, d.First.Reason))
	}
	return out
}

// leftOf describes how much of the demand remains unmet.
func leftOf(n int) string {
	if n == 0 {
		return "; there is room for all"
	}
	return fmt.Sprintf("; no room for %d of them", n)
}

// OutcomeLines describe the outcome of a scenario.
func OutcomeLines(r *CapacityReport) (out []string) {
	o := r.Outcome
	add := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	switch {
	case o.Fits && r.Scenario.AddNodes > 0:
		add("It fits: every joining node gets a block of its own, and every starting pod gets an address from its node's blocks.")
	case o.Fits:
		add("It fits: every starting pod gets an address from its node's blocks.")
	case o.Borrowed+o.Refused+len(o.WithoutBlock) == 0:
		add("It does not fit: even the waiting pods and existing nodes, which come first, do not all find room.")
	default:
		add("It does not fit.")
	}
	if n := len(o.WithoutBlock); n > 0 {
		add("Nodes that get no block (%d): %s.", n, CutNames(o.WithoutBlock, capacityNodes, "… %d more"))
	}
	if e := o.FirstBorrow; e != nil {
		add("Addresses borrowed from other nodes' blocks: %d; the first is %s: %s.", o.Borrowed, eventText(e), e.Reason)
	}
	if t := o.Traffic; t != nil {
		add("%s", TrafficText(t))
	}
	if e := o.FirstRefusal; e != nil {
		add("Pods that get no address: %d; the first is %s: %s.", o.Refused, eventText(e), e.Reason)
	}
	if o.Restarted > 0 {
		add("A pool's block size cannot change: a new pool replaces the old one, and its pods restart (addresses: %d).", o.Restarted)
	}
	for i := range o.Pools {
		if p := &o.Pools[i]; !p.Wasted.IsZero() {
			add("Unused addresses of %s in nodes' blocks, which other nodes cannot use without harm: %s.", p.Pool, p.Wasted)
		}
	}
	if !o.Fits && len(o.Changes) == 0 {
		add("No single change of a prefix, a block size, the number of pools or the block limit makes it fit.")
	}
	return out
}

// TrafficText describes the traffic to borrowed addresses.
func TrafficText(t *capacity.Traffic) string {
	text := "Traffic to borrowed addresses is " + t.Outcome
	if t.Outcome == "dropped" {
		text += " by the blocks' owners (black-holed)"
	}
	if t.Reason != "" {
		text += ": " + t.Reason
	}
	return text + "."
}

func eventText(e *capacity.Event) string {
	switch {
	case e.Pod == 0:
		return "an address on " + e.Node
	case e.Node == "":
		return fmt.Sprintf("pod %d", e.Pod)
	}
	return fmt.Sprintf("pod %d, on %s", e.Pod, e.Node)
}

// ChangeLines list the changes that make the scenario fit.
func ChangeLines(o *capacity.Outcome) (out []string) {
	for i := range o.Changes {
		c := &o.Changes[i]
		out = append(out, fmt.Sprintf("%s (blocks left: %s)", c.Title, c.Left))
	}
	return out
}
