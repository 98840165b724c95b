package view

import (
	"fmt"
	"io"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
)

// explainTable is an explanation for people.
type explainTable struct{ table }

// widestName is how wide the names of facts may be that values stand beside. A
// wider one stands on a line of its own.
const widestName = 24

// listed is how many items of a list the table writes out before it counts the
// rest.
const listed = 10

func (t *explainTable) print(w io.Writer, e *audit.Explanation) error {
	p := newPage(t.Options)
	t.head(p, &audit.Report{Cluster: e.Cluster, Complete: e.Complete})
	var first string
	for i := range e.Subjects {
		t.subject(p, &e.Subjects[i])
		if f := e.Subjects[i].Findings; first == "" && len(f) > 0 {
			first = f[0].Check
		}
	}
	t.notSeen(p, &audit.Report{Gaps: e.Gaps, SkippedChecks: e.SkippedChecks})
	if first != "" || len(e.Subjects) > 1 {
		p.blank()
	}
	if len(e.Subjects) > 1 {
		var kinds []string
		for _, s := range e.Subjects {
			kinds = append(kinds, strings.ToLower(kindWord(s.Subject.Kind)))
		}
		p.wrap("", 2, fmt.Sprintf("%d things go by this name (%s); --kind shows those of one kind.", len(kinds), strings.Join(kinds, ", ")))
	}
	if first != "" {
		p.line(span{text: "More about a check: " + t.Program + " explain " + first})
	}
	return p.writeTo(w)
}

// kindWord is what people call a kind of subject.
func kindWord(kind string) string {
	switch kind {
	case audit.KindPool:
		return "Pool"
	case audit.KindBlock:
		return "Block"
	case audit.KindHandle:
		return "Handle"
	}
	return kind
}

func (t *explainTable) subject(p *page, s *audit.Explained) {
	p.blank()
	p.line(span{text: strings.ToUpper(kindWord(s.Subject.Kind)) + " " + s.Subject.ID()})
	p.wrap("  ", 2, s.Summary)
	for i := range s.Sections {
		t.section(p, &s.Sections[i])
	}
	t.findings(p, &audit.Report{Findings: s.Findings})
	t.related(p, s.Related)
	t.outlook(p, s.Outlook)
}

// section writes the facts of a section under its title. An object that all of
// them are from stands beside the title.
func (t *explainTable) section(p *page, s *audit.Section) {
	p.blank()
	source := commonSource(s.Facts)
	title := s.Title
	if source != "" && (t.wide || !s.List && displayWidth(clean(title+source)) <= p.width-4) {
		title += "  (" + source + ")"
	}
	p.line(span{text: title})
	facts, rest := s.Facts, 0
	if s.List && !t.wide && len(facts) > listed+1 { // "and 1 more" would take the room of the one
		facts, rest = facts[:listed], len(facts)-listed
	}
	width := 0
	for _, f := range facts {
		if w := displayWidth(clean(f.Name)); w <= widestName {
			width = max(width, w)
		}
	}
	last := ""
	for _, f := range facts {
		name := f.Name
		if name == last {
			name = ""
		}
		last = f.Name
		value := f.Value
		if t.wide && source == "" && f.Source != "" {
			value += "  [" + f.Source + "]"
		}
		if displayWidth(clean(name)) > widestName {
			p.line(span{text: "  " + name})
			name = ""
		}
		p.wrap("  "+pad(clean(name), width, false)+"  ", width+4, value)
	}
	if rest > 0 {
		p.line(span{text: fmt.Sprintf("  … and %d more (-o wide shows each)", rest)})
	}
}

// commonSource returns the object that all facts are from; empty if they are from
// several, or some are concluded.
func commonSource(facts []audit.Fact) string {
	for _, f := range facts {
		if f.Source != facts[0].Source {
			return ""
		}
	}
	return facts[0].Source
}

// related names the findings about what the subject hangs on or holds, those of
// one check and severity in one line.
func (t *explainTable) related(p *page, findings []audit.Finding) {
	if len(findings) == 0 {
		return
	}
	p.blank()
	p.line(span{text: "Findings beside it"})
	for _, g := range groups(&audit.Report{Findings: findings}) {
		f := g[0]
		severity := strings.ToUpper(f.Severity.String())
		count := ""
		text := message(f)
		if len(g) > 1 {
			ids := make([]string, len(g))
			for i := range g {
				ids[i] = g[i].Subject.ID()
			}
			n := len(ids)
			if !t.wide && n > listed+1 {
				ids = append(ids[:listed:listed], fmt.Sprintf("and %d more", n-listed))
			}
			count, text = fmt.Sprintf(" (%d)", n), strings.Join(ids, ", ")
		}
		t.severityLine(p, severity, severityStyle(f.Severity), " "+f.Check+count+"  ", text)
	}
}

// severityLine writes a coloured word, what follows it, and a text, wrapped.
func (t *explainTable) severityLine(p *page, word string, st style, after, text string) {
	const hang = 6
	lines := wrapWords(clean(text), p.width-2-displayWidth(clean(word+after)))
	if len(lines) == 0 {
		lines = []string{""}
	}
	p.line(span{text: "  "}, span{word, st}, span{text: after + lines[0]})
	for _, l := range wrapWords(strings.Join(lines[1:], " "), p.width-hang) {
		p.line(span{text: strings.Repeat(" ", hang) + l})
	}
}

// outlook says of each verdict what would change it.
func (t *explainTable) outlook(p *page, all []audit.Outlook) {
	if len(all) == 0 {
		return
	}
	p.blank()
	p.line(span{text: "What would change it"})
	width := 0
	for _, o := range all {
		width = max(width, displayWidth(clean(o.Verdict)))
	}
	for _, o := range all {
		p.wrap("  "+pad(clean(o.Verdict), width, false)+"  ", width+4, o.Change)
	}
}
