package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/explain"
	"github.com/calico-audit/calico-audit/audit/state"
)

// ExplainFormats returns the formats of an explanation.
func ExplainFormats() Formats[*explain.Explanation] {
	return explainFormats((*printer).explanation)
}

// ExplainCheckFormats returns the formats of an explained check. They have the same names
// as [ExplainFormats].
func ExplainCheckFormats() Formats[CheckDocs] { return explainFormats((*printer).checks) }

func explainFormats[T any](print func(*printer, T)) Formats[T] {
	return append(slices.Concat(tables(print, "the explanation, for people; long lists are cut", "the table in full, with the evidence of findings and the source object of each fact"),
		DataFormats[T]("the whole explanation")), paths[T]("the explanation"))
}

const (
	// widestName is the maximum width of fact names that share a line with their values. Longer
	// names get a line of their own.
	widestName = 24
	// listed limits the listed items of a list in the table.
	listed = 10
)

func (p *printer) explanation(e *explain.Explanation) {
	if e.Cluster.Datastore != "" {
		p.head(&e.Cluster, e.Complete)
	}
	first := ""
	var kinds []string
	for i := range e.Subjects {
		s := &e.Subjects[i]
		p.section(strings.ToUpper(kindWord(s.Subject.Kind)) + " " + s.Subject.ID())
		p.wrap("  ", 2, s.Summary)
		for j := range s.Sections {
			p.facts(&s.Sections[j])
		}
		p.findings(s.Findings, s.Diagnoses)
		p.diagnoses(s.Diagnoses)
		p.related(s.Related)
		p.remedies(s.Remedies)
		if first == "" && len(s.Findings) > 0 {
			first = s.Findings[0].Check
		}
		kinds = append(kinds, strings.ToLower(kindWord(s.Subject.Kind)))
	}
	p.notSeen(e.Gaps, e.SkippedChecks, true) // one of these gaps may concern the subject
	if first != "" || len(kinds) > 1 {
		p.blank()
	}
	if e.Cluster.Datastore == "" {
		p.blank()
		p.say("No cluster was read. With --kubeconfig or -f, the objects that cause it are named.")
	}
	if len(kinds) > 1 && kinds[0] != strings.ToLower(explain.KindError) {
		p.wrap("", 2, fmt.Sprintf("%d objects have this name (%s); --kind selects one kind.", len(kinds), strings.Join(kinds, ", ")))
	}
	if first != "" {
		p.say("More about a check: " + p.Program + " explain " + first)
	}
}

func kindWord(kind string) string {
	switch kind {
	case state.KindPool:
		return "Pool"
	case state.KindBlock:
		return "Block"
	case state.KindHandle:
		return "Handle"
	}
	return kind
}

// facts writes a section. If all its facts come from one object, the title names it.
func (p *printer) facts(s *explain.Section) {
	source := commonSource(s.Facts)
	title := s.Title
	if source != "" && (p.wide || !s.List && displayWidth(Clean(title+source)) <= p.Width-4) {
		title += "  (" + source + ")"
	}
	p.section(title)
	facts, rest := s.Facts, 0
	if s.List {
		facts, rest = cut(facts, p.atMost(listed))
	}
	width := 0
	for _, f := range facts {
		if w := displayWidth(Clean(f.Name)); w <= widestName {
			width = max(width, w)
		}
	}
	last := ""
	for _, f := range facts {
		name := Clean(f.Name)
		if f.Name == last {
			name = ""
		}
		last = f.Name
		value := f.Value
		if p.wide && source == "" && f.Source != "" {
			value += "  [" + f.Source + "]"
		}
		if displayWidth(name) > widestName {
			p.say("  " + name)
			name = ""
		}
		p.wrap("  "+pad(name, width, false)+"  ", width+4, value)
	}
	if rest > 0 {
		p.say(fmt.Sprintf("  … and %d more (-o wide lists all)", rest))
	}
}

// commonSource returns the source of all facts; "" if they have several or none.
func commonSource(facts []explain.Fact) string {
	for _, f := range facts {
		if f.Source != facts[0].Source {
			return ""
		}
	}
	return facts[0].Source
}

// related lists the findings about the subject's context or contents, one line for each
// check and severity.
func (p *printer) related(findings []audit.Finding) {
	if len(findings) == 0 {
		return
	}
	const hang = 6
	p.section("Related findings")
	for _, g := range Groups(findings) {
		severity, after, text := severitySpan(g[0].Severity), " "+g[0].Check+"  ", Message(&g[0])
		if n := len(g); n > 1 {
			some, rest := cut(g, p.atMost(listed))
			ids := make([]string, len(some))
			for i := range some {
				ids[i] = some[i].Subject.ID()
			}
			if rest > 0 {
				ids = append(ids, fmt.Sprintf("and %d more", rest))
			}
			after, text = fmt.Sprintf(" %s (%d)  ", g[0].Check, n), strings.Join(ids, ", ")
		}
		lines := append(wrapWords(Clean(text), p.Width-2-displayWidth(Clean(severity.text+after))), "")
		p.line(span{text: "  "}, severity, span{text: after + lines[0]})
		for _, l := range wrapWords(strings.Join(lines[1:], " "), p.Width-hang) {
			p.say(strings.Repeat(" ", hang) + l)
		}
	}
}

func (p *printer) remedies(all []explain.Remedy) {
	if len(all) == 0 {
		return
	}
	p.section("Remedies")
	width := widest(all, func(o *explain.Remedy) string { return o.Verdict })
	for _, o := range all {
		p.wrap("  "+pad(Clean(o.Verdict), width, false)+"  ", width+4, o.Change)
	}
}
