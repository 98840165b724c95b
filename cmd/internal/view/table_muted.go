package view

import (
	"strings"

	"github.com/calico-audit/calico-audit/audit"
)

// muted says what was muted, and by what: in the table in one line, with wide set
// finding by finding.
func (t *table) muted(p *page, r *audit.Report) {
	if len(r.Muted) == 0 {
		return
	}
	p.blank()
	if !t.wide {
		var parts []string
		for i := range r.Muted {
			if m := &r.Muted[i]; m.Count > 0 || m.Expired {
				parts = append(parts, mutedBy(m))
			}
		}
		hint := "; -o wide shows them"
		if r.Summary.Muted == 0 {
			hint = ""
		}
		if len(parts) > 0 {
			hint = ": " + strings.Join(parts, "; ") + hint
		}
		p.wrap("Muted: ", 2, plural(r.Summary.Muted, "finding", "findings")+hint)
		return
	}
	p.line(span{text: "MUTED"})
	for i := range r.Muted {
		m := &r.Muted[i]
		p.wrap("  ", 4, mutedBy(m))
		for j := range m.Findings {
			f := &m.Findings[j]
			p.wrap("    ", 6, f.Severity.String()+" "+f.Check+": "+message(f))
		}
	}
}

// mutedBy says how many findings a rule muted.
func mutedBy(m *audit.Muted) string {
	text := m.Rule
	if m.Baseline {
		text = "baseline " + text
	}
	if m.Expired {
		text += " (ended"
		if m.Until != nil {
			text += " " + audit.FormatTime(m.Until.Time)
		}
		return text + ")"
	}
	return text + " (" + plural(m.Count, "finding", "findings") + ")"
}
