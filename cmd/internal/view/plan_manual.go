package view

import (
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/repair"
)

// manual writes what only people should do, in order. What all of one order risk is
// said once.
func (t *planTable) manual(p *page, plan *repair.Plan) {
	if len(plan.Manual) == 0 {
		return
	}
	p.blank()
	p.line(span{text: fmt.Sprintf("BY HAND (%d), in this order; what has the same number, in any", len(plan.Manual))})
	for i := 0; i < len(plan.Manual); {
		n := i
		for n < len(plan.Manual) && plan.Manual[n].Order == plan.Manual[i].Order {
			n++
		}
		all := plan.Manual[i:n]
		shown := all
		if !t.wide && len(all) > planShown+1 {
			shown = all[:planShown]
		}
		risk := ""
		for j := range shown {
			writeManual(p, &shown[j], risk)
			risk = shown[j].Risk
		}
		if rest := len(all) - len(shown); rest > 0 {
			p.wrap("  … ", 4, fmt.Sprintf("and %d more of number %d (-o wide shows each)", rest, all[0].Order))
		}
		i = n
	}
}

// writeManual writes one thing to do. risk is what was said of the one before.
func writeManual(p *page, m *repair.Manual, risk string) {
	p.wrap(fmt.Sprintf("%3d. ", m.Order), 5, manualText(m))
	p.wrap("     ", 5, m.Because)
	if m.Risk != "" && m.Risk != risk {
		p.wrap("     risk: ", 11, m.Risk)
	}
	if m.Command != "" {
		p.line(span{text: "     $ " + m.Command})
	}
}

// manualText says what is to be done, and of what, if the action does not say so
// itself.
func manualText(m *repair.Manual) string {
	id := m.Target.ID()
	if id == "" || m.Target.Kind == audit.KindIP || strings.Contains(m.Action, id) {
		return m.Action
	}
	if m.Target.Kind == audit.KindNode {
		id = "node " + id
	}
	return id + ": " + m.Action
}
