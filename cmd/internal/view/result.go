package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/repair"
)

// statuses are the statuses of a step, in display order, with their labels and, if
// different, those for an undo.
var statuses = []struct {
	status     repair.Status
	text, undo string
}{
	{repair.Done, "done", "undone"},
	{repair.Planned, "to undo", ""},
	{repair.Already, "already done", ""},
	{repair.NotNeeded, "not needed", ""},
	{repair.Skipped, "skipped", "left as it is"},
	{repair.Failed, "FAILED", ""},
	{repair.NotTried, "not tried", ""},
}

// OutcomeText describes the outcome of a step. An undo may have finished it.
func OutcomeText(x *repair.Outcome, undo bool) string {
	switch {
	case undo && x.Code == repair.CodeFinished && x.Status == repair.Planned:
		return "to finish"
	case undo && x.Code == repair.CodeFinished:
		return "finished"
	}
	for _, s := range statuses {
		switch {
		case s.status != x.Status:
		case undo:
			return cmp.Or(s.undo, s.text)
		default:
			return s.text
		}
	}
	return string(x.Status)
}

func resultTotals(r *repair.Result) string {
	var out []string
	for _, s := range statuses {
		counts := map[string]int{}
		for i := range r.Outcomes {
			if x := &r.Outcomes[i]; x.Status == s.status {
				counts[OutcomeText(x, r.Undo)]++
			}
		}
		for _, text := range slices.Sorted(maps.Keys(counts)) {
			out = append(out, fmt.Sprintf("%d %s", counts[text], text))
		}
	}
	return cmp.Or(strings.Join(out, ", "), "nothing to do")
}

func outcomeIDs(r *repair.Result) (out []string) {
	for i := range r.Outcomes {
		out = append(out, r.Outcomes[i].Step.ID)
	}
	return out
}

const (
	// resultShown limits the listed successful steps.
	resultShown = 20
	// resultIndent is the column of the target after a status.
	resultIndent = 16
)

func (p *printer) result(r *repair.Result) {
	well := 0
	for _, alike := range Runs(r.Outcomes, func(a, b *repair.Outcome) bool {
		return a.Status == repair.NotTried && b.Status == a.Status && a.Reason == b.Reason
	}) {
		x := &alike[0]
		if !x.Open() && !p.wide {
			if well++; well > resultShown {
				continue
			}
		}
		text := stepText(x)
		if len(alike) > 1 {
			text = phrase.Plural(len(alike), "step")
		}
		p.wrap(pad(OutcomeText(x, r.Undo), resultIndent-2, false)+"  ", resultIndent, text)
		if x.Reason != "" {
			p.wrap(strings.Repeat(" ", resultIndent), resultIndent, x.Reason)
		}
		if len(alike) > 1 {
			some, rest := cut(alike, p.atMost(planShown))
			for i := range some {
				p.wrap(strings.Repeat(" ", resultIndent)+"- ", resultIndent+2, stepText(&some[i]))
			}
			if rest > 0 {
				p.wrap(strings.Repeat(" ", resultIndent), resultIndent, fmt.Sprintf("… and %d more (-o wide lists all)", rest))
			}
		}
	}
	if well > resultShown {
		p.wrap("", 0, fmt.Sprintf("… and %d more successful steps (-o wide lists all)", well-resultShown))
	}
	what := "No steps: "
	if n := len(r.Outcomes); n > 0 {
		p.blank()
		what = "Of " + phrase.Plural(n, "step") + ": "
	}
	p.wrap("", 0, what+resultTotals(r)+".")
	p.wrapAll("Not seen: ", 10, r.Gaps)
	if r.Journal != "" {
		p.wrap("", 0, "The journal has the writes and every object before its change: "+r.Journal)
	}
	p.next()
}

func stepText(x *repair.Outcome) string {
	if x.Step.Kind == "" {
		return x.Step.ID
	}
	return string(x.Step.Kind) + " " + TargetText(x.Step.Target)
}
