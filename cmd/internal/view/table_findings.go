package view

import (
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
)

// shown is how many alike findings the table writes out before it counts the
// rest.
const shown = 3

// group is the findings of one check and severity.
type group []*audit.Finding

// groups collects findings that follow each other with the same check and
// severity; a report is sorted so that all alike ones do.
func groups(r *audit.Report) []group {
	var out []group
	for i := range r.Findings {
		f := &r.Findings[i]
		if n := len(out); n > 0 && out[n-1][0].Check == f.Check && out[n-1][0].Severity == f.Severity {
			out[n-1] = append(out[n-1], f)
			continue
		}
		out = append(out, group{f})
	}
	return out
}

// findings writes the findings, worst first.
func (t *table) findings(p *page, r *audit.Report) {
	explained := map[string]bool{}
	for _, g := range groups(r) {
		why := ""
		if check := g[0].Check; !explained[check] {
			why, explained[check] = t.Why(check), true
		}
		if t.wide {
			t.each(p, g, why)
			continue
		}
		t.group(p, g, why)
	}
}

// heading writes severity, check and, for several findings, their number.
func heading(p *page, g group, note string) {
	f := g[0]
	p.blank()
	title := " " + f.Check
	if len(g) > 1 {
		title += fmt.Sprintf(" (%d)", len(g))
	}
	p.line(span{strings.ToUpper(f.Severity.String()), severityStyle(f.Severity)}, span{text: title + note})
}

// group writes alike findings as one.
func (t *table) group(p *page, g group, why string) {
	heading(p, g, "")
	n := len(g)
	if n > shown+1 { // "and 1 more" would take the room of the one
		n = shown
	}
	for _, f := range g[:n] {
		p.wrap("  ", 4, message(f))
	}
	if rest := len(g) - n; rest > 0 {
		p.wrap("  ", 4, fmt.Sprintf("… and %d more: %s", rest, restIDs(g[n:], p.width)))
	}
	label(p, "why", why)
	t.next(p, g)
}

// message returns what a finding says, and of what, if it does not say so
// itself.
func message(f *audit.Finding) string {
	if id := f.Subject.ID(); id != "" && !strings.Contains(f.Message, id) {
		if f.Subject.Kind != audit.KindConfig && f.Subject.Kind != audit.KindCluster {
			return id + ": " + f.Message
		}
	}
	return f.Message
}

// restIDs names the subjects that are not written out, as many as fit on a line,
// and says how to see them.
func restIDs(g group, width int) string {
	const hint = "-o wide shows each"
	room := width - len(hint) - 30
	var ids []string
	for _, f := range g {
		id := f.Subject.ID()
		if room -= displayWidth(clean(id)) + 2; room < 0 || id == "" {
			ids = append(ids, "…")
			break
		}
		ids = append(ids, id)
	}
	return strings.Join(ids, ", ") + " (" + hint + ")"
}

// label writes a text under a word, wrapped.
func label(p *page, word, text string) {
	if text != "" {
		p.wrap("    "+pad(word, 6, false), 10, text)
	}
}

// next writes what to do about the findings of a group.
func (t *table) next(p *page, g group) {
	seen := map[string]bool{}
	var distinct []*audit.Finding
	for _, f := range g {
		if f.Fix.Command != "" && !seen[f.Fix.Command] {
			seen[f.Fix.Command] = true
			distinct = append(distinct, f)
		}
	}
	if len(distinct) == 0 {
		return
	}
	t.fix(p, distinct[0])
	if len(distinct) > 1 {
		label(p, "", "and likewise for the others (-o wide shows each)")
	}
}

// fix writes a finding's next step. Commands stay on one line, so that they can
// be copied; instructions are wrapped.
func (t *table) fix(p *page, f *audit.Finding) {
	if f.Fix.Kind == "manual" {
		label(p, "next", f.Fix.Command)
		return
	}
	p.line(span{text: "    next  " + t.command(f.Fix.Command)})
}

// command writes a command of ours as it was called, and one that reads so that it
// reads the same source. One that applies names its cluster itself.
func (t *table) command(c string) string {
	rest, ours := strings.CutPrefix(c, "calico-audit ")
	if !ours {
		return c
	}
	for _, reading := range []string{"report", "explain", "repair"} {
		if args, is := strings.CutPrefix(rest, reading+" "); is && t.ReportArgs != "" && !strings.HasPrefix(args, "apply ") {
			rest = reading + " " + t.ReportArgs + " " + args
		}
	}
	return t.Program + " " + rest
}
