package view

import (
	"cmp"
	"fmt"
	"html/template"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
)

// htmlPage is what the page's template is filled with.
type htmlPage struct {
	Policy        string
	Style, Script template.HTML // ours, written as they are
	Title         string
	Live          *liveState
	Verdict       verdict
	Pools         []poolBars
	Maps          []htmlMap
	// NoMap says why there is no map; empty if there is one.
	NoMap    string
	Findings []htmlGroup
	Plan     *htmlPlan
	Report   *audit.Report
	Skipped  []notJudged
	Nodes    int
	Data     []template.HTML
	Muted    []mutedRule
	Program  string
}

// liveState is what a live page knows of its state's time.
type liveState struct {
	Now     string // by the clock of who made the page
	Refresh int    // seconds
}

// notJudged are the checks that gave no verdict for one reason.
type notJudged struct {
	Checks []string
	Reason string
}

type mutedRule struct {
	Text     string
	Findings []string
}

func newHTMLPage(r *audit.Report, o HTMLOptions) (*htmlPage, error) {
	h := &htmlPage{
		Policy: policy(o.Live), Report: r, Nodes: len(r.Nodes), Program: o.Program,
		Style:  template.HTML("<style>" + pageStyle + "</style>"),    //nolint:gosec // our own
		Script: template.HTML("<script>" + pageScript + "</script>"), //nolint:gosec // our own
		Title:  "calico-audit: " + verdictText(r) + ", cluster " + orText(r.Cluster.GUID, "not known"),
	}
	t := &table{Options: o.Options}
	if o.Live {
		h.Live = &liveState{audit.FormatTime(o.Now), int(cmp.Or(o.Refresh, DefaultRefresh).Seconds())}
	}
	h.Verdict = newVerdict(r, t)
	for i := range r.Pools {
		h.Pools = append(h.Pools, newPoolBars(r, &r.Pools[i]))
	}
	switch {
	case !drawable(r):
		h.NoMap = "There is no map: the blocks could not be read."
	case len(r.Pools) == 0 && len(r.Blocks) == 0:
		h.NoMap = "There is nothing to draw: no IP pool and no block was seen."
	default:
		h.Maps = htmlMaps(NewBlockMap(r, o.Plan), o.Plan != nil, r.Usage)
	}
	h.Findings = htmlGroups(r, t)
	if o.Plan != nil {
		h.Plan = newHTMLPlan(r, o)
	}
	for _, s := range byReason(r.SkippedChecks) {
		h.Skipped = append(h.Skipped, notJudged{s.checks, s.reason})
	}
	for i := range r.Muted {
		m := mutedRule{Text: mutedBy(&r.Muted[i])}
		for j := range r.Muted[i].Findings {
			f := &r.Muted[i].Findings[j]
			m.Findings = append(m.Findings, f.Severity.String()+" "+f.Check+": "+message(f))
		}
		h.Muted = append(h.Muted, m)
	}
	var err error
	h.Data, err = embedAll(r, o, h.Maps, t)
	return h, err
}

// verdict is the head of the page.
type verdict struct {
	// Heading is empty where Counts say it all.
	Heading string
	// Lead is the worst finding, or what no finding means.
	Lead   string
	Worst  string // class of the worst severity
	Counts []severityCount
	Facts  []fact
	// Taken is when the data were read; Incomplete says that something was not.
	Taken      string
	Incomplete bool
}

type severityCount struct{ Class, Text string }

type fact struct{ Name, Value, Class string }

// verdictText says in a few words what was found.
func verdictText(r *audit.Report) string {
	switch counted := severities(r.Summary); {
	case counted != "":
		return counted
	case r.Summary.Pools == 0 && r.Summary.Blocks == 0:
		return "nothing to judge"
	case !r.Complete:
		return "no findings in what could be read"
	}
	return "no findings"
}

func newVerdict(r *audit.Report, t *table) verdict {
	text := verdictText(r)
	v := verdict{Taken: audit.FormatTime(r.Cluster.TakenAt.Time), Incomplete: !r.Complete}
	s := r.Summary
	for _, c := range []struct {
		severity  audit.Severity
		n         int
		one, many string
	}{
		{audit.Critical, s.Critical, "critical", "critical"}, {audit.Error, s.Error, "error", "errors"},
		{audit.Warning, s.Warning, "warning", "warnings"}, {audit.Info, s.Info, "info", "info"},
	} {
		if c.n > 0 {
			v.Counts = append(v.Counts, severityCount{severityClass(c.severity), plural(c.n, c.one, c.many)})
		}
	}
	if len(v.Counts) == 0 {
		v.Heading = strings.ToUpper(text[:1]) + text[1:]
	}
	switch {
	case len(r.Findings) > 0:
		v.Lead, v.Worst = message(&r.Findings[0]), severityClass(r.Findings[0].Severity)
	case s.Pools == 0 && s.Blocks == 0:
		v.Lead = "No IP pool and no block was seen, so there was nothing to judge. Does this cluster use Calico's IPAM?"
	case r.Complete:
		v.Lead, v.Worst = "Every check that ran found what it expects.", "sev-none"
	default:
		v.Lead = "Something could not be read, so this is no all-clear: see what was not seen."
	}
	add := func(name, value, class string) {
		if value != "" {
			v.Facts = append(v.Facts, fact{name, value, class})
		}
	}
	c := r.Cluster
	add("Cluster", orText(c.GUID, "GUID not known"), "")
	add("Calico", c.CalicoVersion, "")
	add("Read from", orText(t.Source, c.Datastore), "")
	add("API group", c.APIGroup, "")
	add("Seen", fmt.Sprintf("%s, %s, %s, %s", plural(s.Nodes, "node", "nodes"), plural(s.Pools, "pool", "pools"),
		plural(s.Blocks, "block", "blocks"), plural(s.Allocations, "allocated address", "allocated addresses")), "")
	if s.Muted > 0 {
		add("Muted", plural(s.Muted, "finding", "findings"), "")
	}
	add("Scope", scopeText(r.Scope), "warn")
	add("Tightest pool", tightestPool(r), "")
	return v
}

// scopeText says what a report was narrowed to; empty for a whole one.
func scopeText(s *audit.Scope) string {
	if s == nil {
		return ""
	}
	var parts []string
	add := func(what string, names []string) {
		switch n := len(names); {
		case n > mapNames:
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		case n > 0:
			parts = append(parts, what+" "+strings.Join(names, ", "))
		}
	}
	add("checks", s.Checks)
	add("pools", s.Pools)
	add("nodes", s.Nodes)
	return "narrowed to " + strings.Join(parts, "; ")
}

// tightestPool names the pool that is the nearest to having no block left for the
// nodes that it has to serve, with its numbers.
func tightestPool(r *audit.Report) string {
	var worst *audit.PoolReport
	room := func(p *audit.PoolReport) float64 {
		b := p.Blocks
		return b.Allocatable.Add(b.Reclaimable).Share(b.Capacity)
	}
	for _, serving := range []bool{true, false} { // those that nodes need come first
		for i := range r.Pools {
			p := &r.Pools[i]
			if !p.Disabled && p.Blocks.Needed.IsZero() != serving && (worst == nil || room(p) < room(worst)) {
				worst = p
			}
		}
		if worst != nil {
			break
		}
	}
	if worst == nil {
		return ""
	}
	b, a := worst.Blocks, worst.Addresses
	return fmt.Sprintf("%s: %s of %s blocks left to claim, %s of %s addresses available", worst.Name,
		short(b.Allocatable), short(b.Capacity), short(a.Available), short(a.Capacity))
}
