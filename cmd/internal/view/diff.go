package view

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
)

// DiffFormats returns the formats of a comparison, in the order in which they are
// shown.
func DiffFormats() []Format {
	return []Format{
		{Name: "table", Help: "what changed, for people; what did not is only counted"},
		{Name: "json", Help: "the whole comparison as JSON"},
		{Name: "yaml", Help: "the whole comparison as YAML"},
		{Name: "name", Help: "the names of what new findings, and those that became worse, are about, one a line"},
		{Name: "markdown", Help: "for tickets"},
	}
}

// DiffFormatNames returns the names of the formats, joined for messages.
func DiffFormatNames() string {
	var names []string
	for _, f := range DiffFormats() {
		names = append(names, f.usage())
	}
	return strings.Join(names, ", ")
}

// DiffOutput is one value of diff's -o: a format, and where its output goes.
type DiffOutput struct {
	Format string
	// File is the path of the file to write; empty for standard output.
	File string
}

// ParseDiffOutput reads a value of -o: FORMAT or FORMAT=FILE.
func ParseDiffOutput(value string) (DiffOutput, error) {
	name, file, given := strings.Cut(value, "=")
	if !slices.ContainsFunc(DiffFormats(), func(f Format) bool { return f.Name == name }) {
		return DiffOutput{}, fmt.Errorf("unknown output format %q: want one of %s", name, DiffFormatNames())
	}
	switch {
	case given && file == "":
		return DiffOutput{}, fmt.Errorf("output %q names no file after the \"=\"", value)
	case file == "-":
		file = ""
	}
	return DiffOutput{name, file}, nil
}

// Write writes a comparison.
func (x DiffOutput) Write(w io.Writer, d *audit.Diff, o Options) error {
	switch x.Format {
	case "json":
		return WriteJSON(w, d)
	case "yaml":
		return WriteYAML(w, d)
	case "name":
		return writeDiffNames(w, d)
	case "markdown":
		return writeDiffMarkdown(w, d)
	}
	return writeDiffTable(w, d, o.defaults())
}

// writeDiffNames writes the subjects of what is new or worse, each once, in order.
func writeDiffNames(w io.Writer, d *audit.Diff) error {
	var names []string
	for i := range d.Findings {
		if f := &d.Findings[i]; f.Change == audit.Added || f.Rose() {
			names = append(names, clean(f.Subject.ResourceName())+"\n")
		}
	}
	slices.Sort(names)
	_, err := io.WriteString(w, strings.Join(slices.Compact(names), ""))
	return err
}

// changeTitles head the parts of a comparison.
var changeTitles = map[audit.Change]string{
	audit.Added: "NEW", audit.Changed: "SEVERITY CHANGED", audit.Fixed: "FIXED", audit.NotJudged: "NOT JUDGED",
	audit.Unchanged: "UNCHANGED", audit.MutedNow: "MUTED",
}

// diffGroup is the findings of one change.
type diffGroup []*audit.DiffFinding

// diffGroups returns the findings of a comparison by what became of them, without
// empty groups.
func diffGroups(d *audit.Diff) []diffGroup {
	var out []diffGroup
	for i := range d.Findings {
		f := &d.Findings[i]
		if n := len(out); n > 0 && out[n-1][0].Change == f.Change {
			out[n-1] = append(out[n-1], f)
			continue
		}
		out = append(out, diffGroup{f})
	}
	return out
}

// alike returns the findings of a group by check and severity.
func (g diffGroup) alike() []diffGroup {
	var out []diffGroup
	for _, f := range g {
		if n := len(out); n > 0 && out[n-1][0].Check == f.Check && out[n-1][0].Severity == f.Severity {
			out[n-1] = append(out[n-1], f)
			continue
		}
		out = append(out, diffGroup{f})
	}
	return out
}

// diffShown is how many alike findings are written out.
const diffShown = 20

// cut returns the findings to write out, and what to say of the rest; "" if there
// is none.
func (g diffGroup) cut() (shown diffGroup, rest string) {
	if len(g) <= diffShown+1 {
		return g, ""
	}
	return g[:diffShown], fmt.Sprintf("… and %d more of %s (-o json has each)", len(g)-diffShown, g[0].Check)
}

// counts says how many findings of which severity a group has.
func (g diffGroup) counts() string {
	var s audit.Summary
	for _, f := range g {
		switch f.Severity {
		case audit.Critical:
			s.Critical++
		case audit.Error:
			s.Error++
		case audit.Warning:
			s.Warning++
		case audit.Info:
			s.Info++
		}
	}
	return severities(s)
}

// writeDiffTable writes what changed, and counts what did not.
func writeDiffTable(w io.Writer, d *audit.Diff, o Options) error {
	p := newPage(o)
	for _, side := range []struct {
		name string
		*audit.DiffSide
	}{{"OLD", &d.Old}, {"NEW", &d.New}} {
		spans := []span{{text: side.name}, {text: side.Source}, {text: orText(audit.FormatTime(side.Cluster.TakenAt.Time), "time not known")}}
		if side.Complete {
			spans = append(spans, span{text: "complete"})
		} else {
			spans = append(spans, span{"INCOMPLETE", styleWarning})
		}
		p.flow(append(spans, span{text: orText(severities(side.Summary), "no findings")})...)
	}
	for _, g := range diffGroups(d) {
		p.blank()
		title := fmt.Sprintf("%s (%d)", changeTitles[g[0].Change], len(g))
		if g[0].Change == audit.Unchanged {
			p.line(span{text: title + ": " + g.counts()})
			continue
		}
		p.line(span{text: title})
		for _, alike := range g.alike() {
			shown, rest := alike.cut()
			for _, f := range shown {
				diffLine(p, f)
			}
			if rest != "" {
				p.wrap("    ", 6, rest)
			}
		}
	}
	p.blank()
	p.wrap("", 0, diffTotals(d.Summary))
	return p.writeTo(w)
}

func diffLine(p *page, f *audit.DiffFinding) {
	spans := []span{{text: "  "}}
	if f.OldSeverity != nil {
		spans = append(spans, span{strings.ToUpper(f.OldSeverity.String()), severityStyle(*f.OldSeverity)}, span{text: " -> "})
	}
	style := severityStyle(f.Severity)
	if f.Change == audit.Fixed {
		style = plain
	}
	p.line(append(spans, span{strings.ToUpper(f.Severity.String()), style}, span{text: " " + f.Check})...)
	p.wrap("    ", 6, message(&f.Finding))
	if f.Reason != "" {
		p.wrap("      ", 8, "("+f.Reason+")")
	}
}

// diffTotals counts the findings by what became of them.
func diffTotals(s audit.DiffSummary) string {
	var out []string
	for _, c := range []struct {
		n    int
		text string
	}{{s.New, "new"}, {s.Changed, "of another severity"}, {s.Fixed, "fixed"}, {s.NotJudged, "not judged"}, {s.Unchanged, "unchanged"}, {s.Muted, "muted"}} {
		if c.n > 0 {
			out = append(out, fmt.Sprintf("%d %s", c.n, c.text))
		}
	}
	if len(out) == 0 {
		return "No findings in either."
	}
	return strings.Join(out, ", ")
}

// diffItem writes a finding as an entry of a list in Markdown.
func diffItem(f *audit.DiffFinding) string {
	severity := strings.ToUpper(f.Severity.String())
	if f.OldSeverity != nil {
		severity = strings.ToUpper(f.OldSeverity.String()) + " → " + severity
	}
	text := fmt.Sprintf("- **%s** %s: %s", severity, mdCode(f.Check), mdText(message(&f.Finding)))
	if f.Reason != "" {
		text += " (" + mdText(f.Reason) + ")"
	}
	return text + "\n"
}

// writeDiffMarkdown writes what changed for a ticket.
func writeDiffMarkdown(w io.Writer, d *audit.Diff) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## calico-audit: %s\n\n| | | taken at | | findings |\n|---|---|---|---|---|\n", diffTotals(d.Summary))
	for _, side := range []struct {
		name string
		*audit.DiffSide
	}{{"old", &d.Old}, {"new", &d.New}} {
		complete := "complete"
		if !side.Complete {
			complete = "**incomplete**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", side.name, mdCell(mdCode(side.Source)),
			orText(audit.FormatTime(side.Cluster.TakenAt.Time), "not known"), complete, orText(severities(side.Summary), "none"))
	}
	for _, g := range diffGroups(d) {
		title := changeTitles[g[0].Change]
		fmt.Fprintf(&b, "\n### %s (%d)\n\n", title[:1]+strings.ToLower(title[1:]), len(g))
		if g[0].Change == audit.Unchanged {
			fmt.Fprintf(&b, "%s\n", g.counts())
			continue
		}
		for _, alike := range g.alike() {
			shown, rest := alike.cut()
			for _, f := range shown {
				b.WriteString(diffItem(f))
			}
			if rest != "" {
				fmt.Fprintf(&b, "- %s\n", mdText(rest))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
