package view

import (
	"fmt"
	"io"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/repair"
)

// ticketSteps is how many steps, and how many refusals for one reason, are written
// into a ticket.
const ticketSteps = 50

// writePlanMarkdown writes a plan for the change ticket.
func writePlanMarkdown(w io.Writer, plan *repair.Plan, o PlanOptions) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## calico-audit: repair plan with %s\n\n", plural(len(plan.Steps), "step", "steps"))
	planFacts(&b, plan, o)
	ticketList(&b, "Steps", len(plan.Steps), func(i int) string {
		s := &plan.Steps[i]
		text := fmt.Sprintf("%s %s: %s", mdCode(string(s.Kind)), mdCode(targetText(s.Target)), mdText(s.Because))
		if s.TwoObservations {
			text += "; " + dueTwice(plan, "not before %s, when it is seen a second time")
		}
		return text
	})
	planPoolsMarkdown(&b, plan)
	planStrictMarkdown(&b, plan.Strict)
	for n, g := range refusals(plan) {
		if n == 0 {
			fmt.Fprintf(&b, "\n### Not touched (%d)\n", len(plan.Refused))
		}
		fmt.Fprintf(&b, "\n%s\n\n", mdText(g.title()))
		for i, r := range g.all {
			if i == ticketSteps {
				fmt.Fprintf(&b, "- … and %d more\n", len(g.all)-i)
				break
			}
			fmt.Fprintf(&b, "- %s: %s\n", mdCode(targetText(r.Target)), mdText(r.Reason))
		}
	}
	planManualMarkdown(&b, plan)
	nextMarkdown(&b, o.Next)
	_, err := io.WriteString(w, b.String())
	return err
}

// dueTwice says from when on a step that must be seen twice can be carried out, in the
// words of a format for the time, or that only --wait sees it twice.
func dueTwice(plan *repair.Plan, format string) string {
	if why := plan.Unobserved(); why != "" {
		return "must be seen twice: only with --wait, for " + why
	}
	return fmt.Sprintf(format, audit.FormatTime(plan.CreatedAt.Add(plan.Grace.Duration)))
}

// planFacts says which cluster was read, when, and how completely.
func planFacts(b *strings.Builder, plan *repair.Plan, o PlanOptions) {
	var facts []string
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, name+" "+mdCode(value))
		}
	}
	add("Cluster", plan.Cluster.GUID)
	add("Calico", plan.Cluster.CalicoVersion)
	add("read from", orText(o.Source, plan.Cluster.Datastore))
	add("at", audit.FormatTime(plan.CreatedAt.Time))
	add("grace", shortGrace(plan.Grace))
	fmt.Fprintf(b, "%s\n", strings.Join(facts, ", "))
	for _, warning := range plan.Warnings {
		fmt.Fprintf(b, "\n**Note:** %s\n", mdText(warning))
	}
	if !plan.Complete {
		b.WriteString("\n**Incomplete.** Not seen:\n\n")
		for _, g := range plan.Gaps {
			fmt.Fprintf(b, "- %s\n", mdText(g))
		}
	}
}

// ticketList writes a numbered list under a heading, cut where it gets too long.
func ticketList(b *strings.Builder, title string, n int, item func(i int) string) {
	fmt.Fprintf(b, "\n### %s (%d)\n\n", title, n)
	if n == 0 {
		b.WriteString("None: there is nothing that may be done.\n")
	}
	for i := range n {
		if i == ticketSteps {
			fmt.Fprintf(b, "\n… and %d more\n", n-i)
			return
		}
		fmt.Fprintf(b, "%d. %s\n", i+1, item(i))
	}
}

func planPoolsMarkdown(b *strings.Builder, plan *repair.Plan) {
	if len(plan.Steps) == 0 || len(plan.Before) == 0 {
		return
	}
	b.WriteString("\n| pool | blocks to claim | after | available addresses | after |\n|---|--:|--:|--:|--:|\n")
	for i := range plan.Before {
		before, after := &plan.Before[i], poolNamed(plan.After, plan.Before[i].Name)
		if after == nil {
			continue
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", mdCell(mdCode(before.Name)), before.Blocks.Allocatable, after.Blocks.Allocatable,
			before.Addresses.Available, after.Addresses.Available)
	}
}

func planStrictMarkdown(b *strings.Builder, s *repair.StrictPreview) {
	if s == nil {
		return
	}
	fmt.Fprintf(b, "\n### Strict affinity: %t → %t\n\n", s.From, s.To)
	for _, line := range strictLines(s) {
		names := make([]string, 0, len(line.names))
		for i, n := range line.names {
			if i == ticketSteps {
				names = append(names, fmt.Sprintf("… %d more", len(line.names)-i))
				break
			}
			names = append(names, mdCode(n))
		}
		fmt.Fprintf(b, "- %s%s\n", mdText(line.text), strings.Join(names, ", "))
	}
}

func planManualMarkdown(b *strings.Builder, plan *repair.Plan) {
	if len(plan.Manual) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### By hand (%d), in this order\n\n", len(plan.Manual))
	risk := ""
	for i := range plan.Manual {
		m := &plan.Manual[i]
		// The order is written out: several may bear the same number, which a list of
		// Markdown's own would count on.
		fmt.Fprintf(b, "- [ ] **%d** %s: %s\n", m.Order, mdText(manualText(m)), mdText(m.Because))
		if m.Risk != "" && m.Risk != risk {
			fmt.Fprintf(b, "  - risk: %s\n", mdText(m.Risk))
		}
		risk = m.Risk
		if m.Command != "" {
			fmt.Fprintf(b, "  - %s\n", mdCode(m.Command))
		}
	}
}

func nextMarkdown(b *strings.Builder, next []NextStep) {
	for i, n := range next {
		if i == 0 {
			b.WriteString("\n### Next\n")
		}
		if n.Text != "" {
			fmt.Fprintf(b, "\n%s\n", mdText(n.Text))
		}
		if n.Command != "" {
			fmt.Fprintf(b, "\n%s\n", mdCode(n.Command))
		}
	}
}
