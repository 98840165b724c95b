package view

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/repair"
)

// StagePlan is the plan of a stage after a restore, with the command that applies it.
type StagePlan struct {
	*repair.Plan
	Apply string
}

// WriteStages writes the stages of a repair after a restore: what each does, and its commands in
// order, each on a line that begins with "$". again is the command that makes the plans again.
func WriteStages(w io.Writer, stages []StagePlan, again string, o Options) error {
	p := newPrinter(o, false)
	head := *stages[0].Plan
	head.Request.AfterRestore = 0
	p.planHead(&head)
	p.blank()
	p.wrap("", 0, fmt.Sprintf("After a restore, follow these %d stages in order. Each \"repair apply\" refuses to run until the stages before it are done. "+
		"Start no rollout before stage %d is done: Calico may give a new pod an address that is in use.", len(stages), repair.RecordRunning))
	for i := range stages {
		x := &stages[i]
		s := x.Request.AfterRestore
		p.section(fmt.Sprintf("%d. %s: %s", s, strings.ToUpper(s.String()[:1])+s.String()[1:], stageText(x.Plan)))
		if s == repair.StartCollector {
			p.run(x.Apply)
			p.byHand(x)
			continue
		}
		p.byHand(x)
		p.stageSteps(x)
		p.run(x.Apply)
		if s == repair.ResolveDuplicates && len(x.Manual)+len(x.Refused) > 0 {
			p.wrap("   ", 3, "Then plan again, because the restarted pods leave old records:")
			p.run(again)
			p.run(stages[repair.RecordRunning-1].Apply)
		}
	}
	return p.writeTo(w)
}

// stageSteps writes the steps and refusals of a stage, in short.
func (p *printer) stageSteps(x *StagePlan) {
	twice := false
	for _, alike := range Runs(x.Steps, func(a, b *repair.Step) bool { return a.Kind == b.Kind }) {
		twice = twice || alike[0].TwoObservations
		p.wrap("   ", 5, fmt.Sprintf("%d × %s, such as %s: %s", len(alike), alike[0].Kind, TargetText(alike[0].Target), alike[0].Because))
	}
	for _, g := range refusals(x.Plan) {
		if g[0].Code != repair.RefusedNothing {
			p.wrap("   not touched: ", 5, refusalTitle(g)+", such as "+TargetText(g[0].Target)+": "+g[0].Reason)
		}
	}
	if twice {
		p.wrap("   ", 3, dueTwice(x.Plan, "Needs a second observation, not before %s; --wait waits for it."))
	}
}

// byHand writes the manual actions of a stage. kubectl commands name the run's cluster.
func (p *printer) byHand(x *StagePlan) {
	risk := "none"
	for i := range x.Manual {
		m := &x.Manual[i]
		p.wrap("   by hand: ", 5, manualText(m)+": "+m.Because)
		if m.Risk != risk {
			risk = m.Risk
			p.wrap("   risk: ", 5, risk)
		}
		for _, c := range append([]string{m.Command}, m.Then...) {
			if c != "" {
				p.run(c + p.ClusterArgs)
			}
		}
	}
}

func (p *printer) run(command string) { p.say("   $ " + command) }

// stageText counts what a stage has to do.
func stageText(plan *repair.Plan) string {
	var out []string
	if n := len(plan.Steps); n > 0 {
		out = append(out, phrase.Plural(n, "step"))
	}
	if n := len(plan.Manual); n > 0 {
		out = append(out, fmt.Sprintf("%d by hand", n))
	}
	if plan.Request.AfterRestore == repair.StopCollector && len(out) == 0 {
		return "no pod of calico-kube-controllers runs"
	}
	return cmp.Or(strings.Join(out, ", "), "nothing to do")
}
