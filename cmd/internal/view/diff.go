package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
)

// DiffFormats returns the formats of a comparison.
func DiffFormats() Formats[*audit.Diff] {
	return slices.Concat(tables((*printer).diff, "the changes, for people; unchanged findings are counted", "the table in full, with unchanged findings and the evidence"),
		DataFormats[*audit.Diff]("the whole comparison"), Formats[*audit.Diff]{
			{Name: "name", Help: "the names of the subjects of new and worse findings, one per line", Write: asLines(worseNames)},
			tickets[*audit.Diff]("diff"),
		})
}

// worseNames returns the distinct subjects of findings that are new or worse, sorted.
func worseNames(d *audit.Diff) []string {
	var worse audit.Report
	for i := range d.Findings {
		if f := &d.Findings[i]; f.Change == audit.Added || f.Rose() {
			worse.Findings = append(worse.Findings, f.Finding)
		}
	}
	return subjectNames(&worse)
}

// changes holds the heading and the label of each change.
var changes = map[audit.Change]struct{ title, counted string }{
	audit.Added: {"NEW", "new"}, audit.Changed: {"SEVERITY CHANGED", "changed in severity"}, audit.Fixed: {"FIXED", "fixed"},
	audit.NotEvaluated: {"NOT EVALUATED", "not evaluated"}, audit.Unchanged: {"UNCHANGED", "unchanged"}, audit.MutedNow: {"MUTED", "muted"},
}

func changeTitle(g []audit.DiffFinding) string { return changes[g[0].Change].title }

func diffRuns(d *audit.Diff) [][]audit.DiffFinding {
	return Runs(d.Findings, func(a, b *audit.DiffFinding) bool { return a.Change == b.Change })
}

// diffShown limits the listed findings of one check and severity.
const diffShown = 20

// diffAlike is a group of findings of one check and severity: those to list, and a remark
// on the rest.
type diffAlike struct {
	Shown []audit.DiffFinding
	Rest  string
}

func alikeChanges(g []audit.DiffFinding, most int) (out []diffAlike) {
	for _, alike := range Runs(g, func(a, b *audit.DiffFinding) bool { return a.Check == b.Check && a.Severity == b.Severity }) {
		shown, rest := cut(alike, most)
		x := diffAlike{Shown: shown}
		if rest > 0 {
			x.Rest = fmt.Sprintf("… and %d more of %s (-o wide lists all)", rest, alike[0].Check)
		}
		out = append(out, x)
	}
	return out
}

func diffCounts(g []audit.DiffFinding) string {
	var c audit.FindingCounts
	for i := range g {
		*c.Of(g[i].Severity)++
	}
	return SeverityCounts(c)
}

func (p *printer) diff(d *audit.Diff) {
	for _, side := range []struct {
		name string
		*audit.DiffSide
	}{{"OLD", &d.Old}, {"NEW", &d.New}} {
		p.flow(span{text: side.name}, span{text: side.Source}, span{text: cmp.Or(side.Cluster.TakenAt.String(), "time unknown")},
			completeness(side.Complete, &side.Cluster), span{text: cmp.Or(SeverityCounts(side.Summary.FindingCounts), noFindings(side.Complete))})
		p.assumed(&side.Cluster)
	}
	for _, g := range diffRuns(d) {
		title := fmt.Sprintf("%s (%d)", changeTitle(g), len(g))
		if g[0].Change == audit.Unchanged && !p.wide {
			p.section(title + ": " + diffCounts(g))
			continue
		}
		p.section(title)
		for _, alike := range alikeChanges(g, p.atMost(diffShown)) {
			for i := range alike.Shown {
				p.change(&alike.Shown[i])
			}
			if alike.Rest != "" {
				p.wrap("    ", 6, alike.Rest)
			}
		}
	}
	p.blank()
	p.wrap("", 0, diffTotals(d))
}

func (p *printer) change(f *audit.DiffFinding) {
	spans := []span{{text: "  "}}
	if f.OldSeverity != nil {
		spans = append(spans, severitySpan(*f.OldSeverity), span{text: " -> "})
	}
	severity := severitySpan(f.Severity)
	if f.Change == audit.Fixed {
		severity.style = ""
	}
	p.line(append(spans, severity, span{text: " " + f.Check})...)
	p.wrap("    ", 6, Message(&f.Finding))
	if f.Reason != "" {
		p.wrap("      ", 8, "("+f.Reason+")")
	}
	if p.wide {
		p.evidence(f.Evidence)
	}
}

func diffTotals(d *audit.Diff) string {
	s := d.Summary
	var out []string
	for i, n := range []int{s.New, s.Changed, s.Fixed, s.NotEvaluated, s.Unchanged, s.Muted} {
		if n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, changes[audit.Changes[i]].counted))
		}
	}
	switch {
	case len(out) > 0:
		return strings.Join(out, ", ")
	case d.Old.Complete && d.New.Complete:
		return "No findings in either."
	}
	return "No findings in the parts of either that could be read."
}

// noFindings qualifies the absence of findings in an incomplete reading.
func noFindings(complete bool) string {
	if complete {
		return "no findings"
	}
	return "no findings in the parts that could be read"
}
