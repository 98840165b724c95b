package view

import (
	"strings"

	"github.com/calico-audit/calico-audit/audit"
)

// notSeen says what could not be read, and which checks gave no verdict.
func (t *table) notSeen(p *page, r *audit.Report) {
	if len(r.Gaps) > 0 {
		p.blank()
		p.line(span{"NOT SEEN", styleWarning})
		for _, g := range r.Gaps {
			p.wrap("  ", 4, g.String())
		}
	}
	if len(r.SkippedChecks) == 0 {
		return
	}
	p.blank()
	p.line(span{"NOT JUDGED", styleWarning})
	for _, s := range byReason(r.SkippedChecks) {
		p.wrap("  ", 4, strings.Join(s.checks, ", ")+": "+s.reason)
	}
}

type skippedFor struct {
	reason string
	checks []string
}

// byReason joins the checks that were skipped for the same reason.
func byReason(skipped []audit.Skipped) []skippedFor {
	var out []skippedFor
	at := map[string]int{}
	for _, s := range skipped {
		i, ok := at[s.Reason]
		if !ok {
			i = len(out)
			at[s.Reason] = i
			out = append(out, skippedFor{reason: s.Reason})
		}
		out[i].checks = append(out[i].checks, s.Check)
	}
	return out
}
