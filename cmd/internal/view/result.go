package view

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/repair"
)

// statusTexts say what became of a step, of a plan and of an undo.
var statusTexts = map[repair.Status]string{
	repair.Done: "done", repair.Already: "so already", repair.Skipped: "skipped", repair.Failed: "FAILED",
	repair.NotTried: "not tried", repair.Planned: "to take back", repair.NotNeeded: "no need",
}

func statusText(s repair.Status, undo bool) string {
	switch {
	case undo && s == repair.Done:
		return "taken back"
	case undo && s == repair.Skipped:
		return "left as it is"
	}
	if t := statusTexts[s]; t != "" {
		return t
	}
	return string(s)
}

// outcomeText says what became of a step; an undo may have finished it.
func outcomeText(x *repair.Outcome, undo bool) string {
	switch {
	case undo && x.Code == repair.CodeFinished && x.Status == repair.Planned:
		return "to finish"
	case undo && x.Code == repair.CodeFinished:
		return "finished"
	}
	return statusText(x.Status, undo)
}

// resultOrder lists the statuses in the order in which they are counted.
var resultOrder = []repair.Status{
	repair.Done, repair.Planned, repair.Already, repair.NotNeeded, repair.Skipped, repair.Failed, repair.NotTried,
}

// resultTotals counts the steps by what became of them.
func resultTotals(r *repair.Result) string {
	var out []string
	for _, s := range resultOrder {
		counts := map[string]int{}
		for i := range r.Outcomes {
			if x := &r.Outcomes[i]; x.Status == s {
				counts[outcomeText(x, r.Undo)]++
			}
		}
		for _, text := range slices.Sorted(maps.Keys(counts)) {
			out = append(out, fmt.Sprintf("%d %s", counts[text], text))
		}
	}
	if len(out) == 0 {
		return "nothing to do"
	}
	return strings.Join(out, ", ")
}

// resultShown is how many steps of one kind that all went well are written out.
const resultShown = 20

// writeResultTable writes what became of each step.
func writeResultTable(w io.Writer, r *repair.Result, o PlanOptions, wide bool) error {
	p := newPage(o.Options)
	well := 0
	for i := range r.Outcomes {
		x := &r.Outcomes[i]
		if !x.Open() && !wide {
			if well++; well > resultShown {
				continue
			}
		}
		writeOutcome(p, x, r.Undo)
	}
	if well > resultShown {
		p.wrap("", 0, fmt.Sprintf("… and %d more that went well (-o wide shows each)", well-resultShown))
	}
	if len(r.Outcomes) > 0 {
		p.blank()
	}
	what := "Of " + plural(len(r.Outcomes), "step", "steps") + ": "
	if len(r.Outcomes) == 0 {
		what = "No steps: "
	}
	p.wrap("", 0, what+resultTotals(r)+".")
	for _, g := range r.Gaps {
		p.wrap("Not seen: ", 10, g)
	}
	if r.Journal != "" {
		p.wrap("", 0, "What was written, and every object as it was before, is in "+r.Journal)
	}
	writeNext(p, o.Next)
	return p.writeTo(w)
}

// resultIndent is the column that what a status is about begins at.
const resultIndent = 16

func writeOutcome(p *page, x *repair.Outcome, undo bool) {
	lead, text := pad(outcomeText(x, undo), resultIndent-2, false)+"  ", string(x.Step.Kind)+" "+targetText(x.Step.Target)
	if x.Step.Kind == "" {
		text = x.Step.ID
	}
	p.wrap(lead, resultIndent, text)
	if x.Reason != "" {
		p.wrap(strings.Repeat(" ", resultIndent), resultIndent, x.Reason)
	}
}

// writeResultMarkdown writes what became of each step for the change ticket.
func writeResultMarkdown(w io.Writer, r *repair.Result, o PlanOptions) error {
	var b strings.Builder
	title := "repair"
	if r.Undo {
		title = "undo"
	}
	fmt.Fprintf(&b, "## calico-audit: %s: %s\n\n", title, resultTotals(r))
	fmt.Fprintf(&b, "Cluster %s, begun at %s", mdCode(r.Cluster.GUID), mdCode(audit.FormatTime(r.StartedAt.Time)))
	if r.Journal != "" {
		fmt.Fprintf(&b, ", journal %s", mdCode(r.Journal))
	}
	b.WriteString("\n\n| | step | about | |\n|---|---|---|---|\n")
	for i := range r.Outcomes {
		if i == ticketSteps*4 {
			fmt.Fprintf(&b, "\n… and %d more\n", len(r.Outcomes)-i)
			break
		}
		x := &r.Outcomes[i]
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", mdText(outcomeText(x, r.Undo)), mdCell(mdCode(string(x.Step.Kind))),
			mdCell(mdCode(targetText(x.Step.Target))), mdText(x.Reason))
	}
	for _, g := range r.Gaps {
		fmt.Fprintf(&b, "\nNot seen: %s\n", mdText(g))
	}
	nextMarkdown(&b, o.Next)
	_, err := io.WriteString(w, b.String())
	return err
}
