package view

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/repair"
)

// htmlPlan is a plan in the page.
type htmlPlan struct {
	Made, Grace string
	Incomplete  bool
	Gaps        []string
	Warnings    []string
	Steps       []htmlStep
	Refused     []htmlRefused
	Manual      []htmlManual
	Pools       []poolChange
	Strict      *htmlStrict
	Maps        []mapChange
	Next        []NextStep
}

type htmlStep struct {
	Kind, Target, Because, Twice string
	Subject                      string
	Evidence                     []audit.Evidence
	Guards                       []repair.Guard
}

type htmlRefused struct {
	Title string
	Items []string
	Rest  int
}

type htmlManual struct {
	Order                        int
	Text, Because, Risk, Command string
}

// poolChange is a pool's numbers before and after.
type poolChange struct{ Name, Claim, ClaimAfter, Available, AvailableAfter string }

// mapChange is a pool's picture before and after.
type mapChange struct {
	Name          string
	Before, After mapDrawing
}

type htmlStrict struct {
	From, To bool
	Lines    []string
}

// htmlListed is how many entries of a plan's lists are written out.
const htmlListed = 500

func newHTMLPlan(r *audit.Report, o HTMLOptions) *htmlPlan {
	plan := o.Plan
	h := &htmlPlan{
		Made: audit.FormatTime(plan.CreatedAt.Time), Grace: shortGrace(plan.Grace), Incomplete: !plan.Complete,
		Gaps: plan.Gaps, Warnings: plan.Warnings, Next: o.Next,
	}
	for i := range plan.Steps {
		s := &plan.Steps[i]
		x := htmlStep{Kind: string(s.Kind), Target: targetText(s.Target), Because: s.Because, Evidence: s.Evidence, Guards: s.Guards, Subject: shownSubject(s.Target)}
		if s.TwoObservations {
			x.Twice = dueTwice(plan, "must be seen twice: not before %s")
		}
		h.Steps = append(h.Steps, x)
	}
	for _, g := range refusals(plan) {
		x := htmlRefused{Title: g.title(), Rest: max(len(g.all)-htmlListed, 0)}
		for _, refused := range g.all[:min(len(g.all), htmlListed)] {
			x.Items = append(x.Items, targetText(refused.Target)+": "+refused.Reason)
		}
		h.Refused = append(h.Refused, x)
	}
	for i := range plan.Manual {
		m := &plan.Manual[i]
		h.Manual = append(h.Manual, htmlManual{m.Order, manualText(m), m.Because, m.Risk, m.Command})
	}
	for i := range plan.Before {
		before, after := &plan.Before[i], poolNamed(plan.After, plan.Before[i].Name)
		if after != nil && len(plan.Steps) > 0 {
			h.Pools = append(h.Pools, poolChange{
				before.Name, short(before.Blocks.Allocatable), short(after.Blocks.Allocatable),
				short(before.Addresses.Available), short(after.Addresses.Available),
			})
		}
	}
	if s := plan.Strict; s != nil {
		h.Strict = &htmlStrict{From: s.From, To: s.To}
		for _, line := range strictLines(s) {
			text := line.text
			for i, n := range line.names {
				switch {
				case i == htmlListed:
					text += fmt.Sprintf(", and %d more", len(line.names)-i)
				case i < htmlListed:
					if i > 0 {
						text += ", "
					}
					text += n
				}
			}
			h.Strict.Lines = append(h.Strict.Lines, text)
		}
	}
	h.maps(r, plan)
	return h
}

// maps draws the pools that the plan changes, before and after.
func (h *htmlPlan) maps(r *audit.Report, plan *repair.Plan) {
	if !drawable(r) || len(plan.Steps) == 0 {
		return
	}
	before, after := NewBlockMap(r, plan), NewBlockMap(AfterPlan(r, plan), nil)
	for i := range before.Pools {
		b := &before.Pools[i]
		changed := false
		for j := range b.Cells {
			changed = changed || b.Cells[j].Planned
		}
		if !changed || b.Sparse || b.Pool < 0 {
			continue
		}
		for j := range after.Pools {
			if a := &after.Pools[j]; a.Pool == b.Pool && !a.Sparse {
				h.Maps = append(h.Maps, mapChange{b.Name, drawingOf(b, true, nil), drawingOf(a, false, nil)})
			}
		}
	}
}
