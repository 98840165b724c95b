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

// WriteStages writes the way through the stages after a restore: what each does, its commands in
// order, each on a line that begins with "$", and the work that is refused. again is the command
// that makes the plans again.
func WriteStages(w io.Writer, stages []StagePlan, again string, o Options) error {
	p := newPrinter(o, false)
	p.stages(stages, again)
	return p.writeTo(w)
}

func (p *printer) stages(stages []StagePlan, again string) {
	head := *stages[0].Plan
	head.Request.AfterRestore = 0
	p.planHead(&head)
	p.blank()
	p.wrap("", 0, fmt.Sprintf("After a restore, follow these %d stages in order. Each \"repair apply\" refuses while a stage before it is not done. "+
		"Start no rollout before stage %d is done: Calico may give a new pod an address that is in use.", len(stages), repair.RecordRunning))
	for i := range stages {
		x := &stages[i]
		s := x.Request.AfterRestore
		p.section(fmt.Sprintf("%d. %s: %s", s, strings.ToUpper(s.String()[:1])+s.String()[1:], stageText(x.Plan)))
		if s != repair.StopCollector { // that of the first stage is the head's
			p.wrapAll("   Note: ", 9, x.Warnings)
		}
		if s == repair.StartCollector {
			p.run(x.Apply)
		}
		p.byHand(x.Manual)
		for _, r := range x.Refused {
			if s == repair.ResolveDuplicates {
				p.wrap("   refused: ", 5, TargetText(r.Target)+": "+r.Reason)
			}
		}
		if s == repair.StartCollector {
			continue
		}
		if p.stepsOf(x); s == repair.ResolveDuplicates && len(x.Manual)+len(x.Refused) > 0 {
			p.wrap("   ", 3, "Then plan again, because the restarted pods' old records are released, too:")
			p.run(again)
			p.run(stages[repair.RecordRunning-1].Apply)
		}
	}
}

// stepsOf writes the counts of a stage's steps and refusals, and the command that applies it.
func (p *printer) stepsOf(x *StagePlan) {
	for _, alike := range Runs(x.Steps, func(a, b *repair.Step) bool { return a.Kind == b.Kind }) {
		some, more := cut(alike, refusedShown)
		for i := range some {
			p.wrap("   ", 5, string(some[i].Kind)+" "+TargetText(some[i].Target)+": "+some[i].Because)
		}
		if more > 0 {
			p.wrap("   ", 5, fmt.Sprintf("… and %d more of %s", more, alike[0].Kind))
		}
	}
	if !x.Request.AfterRestore.ByHand() {
		for _, g := range refusals(x.Plan) {
			if g[0].Code != repair.RefusedNothing {
				p.wrap("   not touched: ", 5, refusalTitle(g)+", such as "+TargetText(g[0].Target)+": "+g[0].Reason)
			}
		}
	}
	for i := range x.Steps {
		if x.Steps[i].TwoObservations {
			p.wrap("   ", 3, dueTwice(x.Plan, "Needs a second observation, not before %s; --wait waits for it."))
			break
		}
	}
	p.run(x.Apply)
}

// byHand writes what people do, each command on its own line.
func (p *printer) byHand(manual []repair.Manual) {
	some, more := cut(manual, planShown)
	risk := ""
	for i := range some {
		m := &some[i]
		p.wrap("   by hand: ", 5, manualText(m)+": "+m.Because)
		if m.Risk != risk && m.Risk != "none" {
			p.wrap("   risk: ", 9, m.Risk)
		}
		risk = m.Risk
		for _, c := range append([]string{m.Command}, m.Then...) {
			p.run(c)
		}
	}
	if more > 0 {
		p.wrap("   ", 3, fmt.Sprintf("… and %d more by hand: \"repair show\" of this stage's plan lists all", more))
	}
}

// run writes a command. Those of kubectl get the cluster of the run.
func (p *printer) run(command string) {
	if command == "" {
		return
	}
	if strings.HasPrefix(command, "kubectl ") {
		command += p.ClusterArgs
	}
	p.say("   $ " + command)
}

// stageText counts what a stage has to do.
func stageText(plan *repair.Plan) string {
	var out []string
	if n := len(plan.Steps); n > 0 {
		out = append(out, phrase.Plural(n, "step"))
	}
	if n := len(plan.Manual); n > 0 && plan.Request.AfterRestore == repair.ResolveDuplicates {
		out = append(out, fmt.Sprintf("%d by hand", n))
	}
	if n := len(plan.Refused); n > 0 && plan.Request.AfterRestore == repair.ResolveDuplicates {
		out = append(out, fmt.Sprintf("%d refused", n))
	}
	if plan.Request.AfterRestore == repair.StopCollector && len(plan.Manual) > 0 || plan.Request.AfterRestore == repair.StartCollector {
		out = append(out, "by hand")
	}
	if plan.Request.AfterRestore == repair.StopCollector && len(out) == 0 {
		return "no pod of calico-kube-controllers runs"
	}
	return cmp.Or(strings.Join(out, ", "), "nothing to do")
}
