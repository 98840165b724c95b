package view

import (
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// notSeen says what could not be read, and which checks gave no verdict.
func (t *table) notSeen(p *page, r *audit.Report) {
	t.gaps(p, "NOT SEEN", "", blocks.NotHeld(r.Gaps))
	t.gaps(p, "UNREADABLE", heldMeans, held(r.Gaps))
	if len(r.SkippedChecks) == 0 {
		return
	}
	p.blank()
	p.line(span{"NOT JUDGED", styleWarning})
	for _, s := range byReason(r.SkippedChecks) {
		p.wrap("  ", 4, strings.Join(s.checks, ", ")+": "+s.reason)
	}
}

func (t *table) gaps(p *page, title, note string, gaps []blocks.Gap) {
	if len(gaps) == 0 {
		return
	}
	p.blank()
	p.line(span{title, styleWarning})
	if note != "" {
		p.wrap("  ", 2, note+":")
	}
	for _, g := range gaps {
		p.wrap("  ", 4, g.String())
	}
}

// heldMeans says what follows from gaps that are held.
const heldMeans = "the report is complete: such a pod keeps every address that is recorded for it"

// held returns the gaps that leave a report complete.
func held(gaps []blocks.Gap) []blocks.Gap {
	return slices.DeleteFunc(slices.Clone(gaps), func(g blocks.Gap) bool { return !g.Held })
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
