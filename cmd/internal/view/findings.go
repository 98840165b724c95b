package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
)

// shown limits the listed findings of one check and severity in the table.
const shown = 3

// Groups splits findings by check and severity. A report is sorted so that these are
// adjacent.
func Groups(findings []audit.Finding) [][]audit.Finding {
	return Runs(findings, func(a, b *audit.Finding) bool { return a.Check == b.Check && a.Severity == b.Severity })
}

// Message returns a finding's message, after the name of its subject, unless the message names the
// subject.
func Message(f *audit.Finding) string {
	if id := f.Subject.ID(); id != "" && !strings.Contains(f.Message, id) {
		if f.Subject.Kind != state.KindConfig && f.Subject.Kind != state.KindCluster {
			return id + ": " + f.Message
		}
	}
	return f.Message
}

// findings writes findings, the most severe first. It collapses alike findings; with wide
// set it lists each with its evidence. For findings of a diagnosis it omits the reason and
// the next step.
func (p *printer) findings(findings []audit.Finding, diagnoses []audit.Diagnosis) {
	whyOnce, explained := p.whyOnce(), Explained(diagnoses...)
	for _, g := range Groups(findings) {
		alone := slices.DeleteFunc(slices.Clone(g), func(f audit.Finding) bool { return explained[f.Fingerprint] })
		why := ""
		if p.wide || len(alone) > 0 {
			why = whyOnce(g[0].Check)
		}
		if !p.wide {
			p.group(g, alone, why)
			continue
		}
		for i := range g {
			f := &g[i]
			p.heading(g[i:i+1], of(i, len(g)))
			p.wrap("  ", 4, Message(f))
			p.evidence(f.Evidence)
			if i == 0 {
				p.label("why", why)
			}
			if !explained[f.Fingerprint] {
				p.fix(f)
			}
		}
	}
}

func (p *printer) evidence(evidence []state.Evidence) {
	width := widest(evidence, func(e *state.Evidence) string { return e.Name })
	for _, e := range evidence {
		p.wrap("    "+pad(Clean(e.Name), width, false)+"  ", width+6, e.Value)
	}
}

// of counts a finding among alike ones: " (2 of 4)".
func of(i, n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" (%d of %d)", i+1, n)
}

func (p *printer) heading(g []audit.Finding, note string) {
	if len(g) > 1 {
		note += fmt.Sprintf(" (%d)", len(g))
	}
	p.blank()
	p.line(severitySpan(g[0].Severity), span{text: " " + g[0].Check + note})
}

// group writes alike findings as one, with the next step for the first of those without a
// diagnosis.
func (p *printer) group(g, alone []audit.Finding, why string) {
	p.heading(g, "")
	some, rest := cut(g, shown)
	for i := range some {
		p.wrap("  ", 4, Message(&some[i]))
	}
	if rest > 0 {
		p.wrap("  ", 4, fmt.Sprintf("… and %d more%s", rest, restIDs(g[shown:], p.Width)))
	}
	p.label("why", why)
	var first *audit.Finding
	for i := range alone {
		switch f := &alone[i]; {
		case f.Fix.Command == "":
		case first == nil:
			first = f
			p.fix(f)
		case f.Fix.Command != first.Fix.Command:
			p.label("", "the others are similar (-o wide lists all)")
			return
		}
	}
}

// restIDs lists the remaining subjects, as many as fit on a line, and then a hint on how to see
// all.
func restIDs(g []audit.Finding, width int) string {
	const hint = "-o wide lists all"
	room := width - len(hint) - 30
	var ids []string
	for i := range g {
		id := g[i].Subject.ID()
		if room -= displayWidth(Clean(id)) + 2; room < 0 || id == "" {
			if i == 0 {
				return " (" + hint + ")"
			}
			ids = append(ids, "…")
			break
		}
		ids = append(ids, id)
	}
	return ": " + strings.Join(ids, ", ") + " (" + hint + ")"
}

// fix writes a finding's next step. Commands stay on one line for copying; instructions are
// wrapped.
func (p *printer) fix(f *audit.Finding) {
	if f.Fix.Kind == "manual" {
		p.label("next", f.Fix.Command)
		p.commands("          ", f.Fix.Commands)
		return
	}
	p.say("    next  " + p.Command(f.Fix.Command))
}
