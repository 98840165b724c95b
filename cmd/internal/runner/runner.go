// Package runner applies plans to a cluster and undoes journals. It checks the rights
// first, keeps the journal, finishes half-done steps of earlier runs, and reports how the
// run ended and how to continue.
package runner

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// Runner applies plans to a cluster and undoes journals.
type Runner struct {
	Streams genericiooptions.IOStreams
	Program string // as typed by the user
	Sources *source.Flags
	Hosts   *source.HostFlags // may be nil
	Flags   *Flags
	// PlanFile is the plan's file; "" if there is none. MaxSteps limits the number of applied
	// steps; 0 means no limit.
	PlanFile string
	MaxSteps int
	// Print prints a result in the format of -o. Show prints one for people, before the
	// confirmation.
	Print, Show func(*repair.Result, view.Options) error
	// Ask asks a question, and returns an error unless the answer is yes.
	Ask func(ctx context.Context, what string) error

	finished  []repair.Outcome // of half-done steps of earlier runs
	continues []string         // journals of the interrupted runs that this run continues
}

// Apply checks the rights, asks for confirmation, applies the plan and prints the result.
func (c *Runner) Apply(ctx context.Context, plan *repair.Plan, resume *journal.File) error {
	stage := plan.Request.AfterRestore
	if len(plan.Steps) == 0 && stage == 0 {
		return c.finish(&repair.Result{
			APIVersion: audit.APIVersion, Kind: repair.ResultKind, Cluster: plan.Cluster, StartedAt: plan.CreatedAt, Outcomes: []repair.Outcome{},
		}, nil)
	}
	if !plan.Intact() {
		c.say("warning: the plan was edited or comes from an earlier version: for steps that need two observations, this run is the first")
	}
	progress := terminal.ProgressOn(c.Streams)
	defer progress.Clear()
	c.Sources.Budgets = plan.Request.Evicts()
	target, err := openTarget(ctx, c.Sources, c.Hosts, plan.Cluster.APIGroup, c.Streams, progress.Show)
	if err != nil {
		return err
	}
	defer target.close()
	if err := target.check(ctx, plan.Steps, false); err != nil {
		return err
	}
	progress.Clear()
	if len(plan.Steps) > 0 {
		if err := c.ask(ctx, stepsText(len(plan.Steps), "applied"), plan.Cluster.GUID); err != nil {
			return err
		}
	}
	journal, err := c.openJournal(plan, resume)
	if err != nil {
		return err
	}
	defer func() { _ = journal.Close() }()
	writer, pods, err := target.open(journal)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		progress.Clear()
		c.say("interrupted: finishing the current object, which may take a minute; interrupt again to stop at once")
	})()
	res, err := apply.Run(ctx, plan, target.reader, writer, journal, apply.Options{
		Pace: c.Flags.pace, MaxSteps: c.MaxSteps, Wait: c.Flags.wait, Resume: resume, Workloads: pods, EvictTimeout: c.Flags.evict,
		Progress: c.stepProgress(progress, len(plan.Steps), false), Waiting: c.waiting(progress), Say: c.sayNow(progress),
	})
	progress.Clear()
	if err != nil {
		return notWritten(err)
	}
	return errors.Join(target.end(ctx, res), c.finish(res, c.afterApply(plan, res)))
}

func (c *Runner) say(format string, args ...any) {
	_, _ = fmt.Fprintf(c.Streams.ErrOut, format+"\n", args...) // an error has nowhere to go
}

func (c *Runner) ask(ctx context.Context, what, guid string) error {
	if c.Flags.Yes {
		return nil
	}
	return c.Ask(ctx, fmt.Sprintf("%s on the cluster of %s (GUID %s).", what, c.Sources.Describe(), guid))
}

// stepProgress shows the current step. Without a terminal it logs the outcome of each step
// that was tried.
func (c *Runner) stepProgress(line *terminal.Progress, steps int, undo bool) func(repair.Outcome) {
	n, said := 0, ""
	return func(o repair.Outcome) {
		switch {
		case o.Status == "" && o.Reason != "": // a reason without a status: the step waits
			text := fmt.Sprintf("step %d of %d: %s: %s", n, steps, o.Step.ID, o.Reason)
			line.Show(text)
			if !line.Visible() && text != said {
				c.say("%s", text)
			}
			said = text
		case o.Status == "":
			n++
			line.Show(fmt.Sprintf("step %d of %d: %s", n, steps, o.Step.ID))
		case !line.Visible() && o.Status != repair.NotTried:
			c.say("step %d of %d: %s: %s", n, steps, o.Step.ID, view.OutcomeText(&o, undo))
		}
	}
}

// waiting returns a function that announces a wait.
func (c *Runner) waiting(progress *terminal.Progress) func(time.Time) {
	return func(until time.Time) {
		text := "waiting until %s for the second observation"
		if c.Hosts != nil && len(c.Hosts.Paths) > 0 {
			text += "; it reads the host views again: take new ones shortly before"
		}
		c.sayNow(progress)(fmt.Sprintf(text, phrase.Time(until)))
	}
}

// sayNow returns a function that replaces the progress line by a message.
func (c *Runner) sayNow(progress *terminal.Progress) func(string) {
	return func(text string) {
		progress.Clear()
		c.say("%s", text)
	}
}

// stepsText describes the number of steps and the action on them.
func stepsText(n int, verb string) string { return phrase.Plural(n, "step") + " to be " + verb }

// openJournal creates the journal, or continues one, and prints its path.
func (c *Runner) openJournal(plan *repair.Plan, resume *journal.File) (*journal.Journal, error) {
	now := audit.Time{Time: time.Now().UTC()}
	if resume != nil {
		j, err := journal.Resume(resume.Path, now)
		switch {
		case errors.Is(err, journal.ErrRunning):
			return nil, notWritten(err)
		case err != nil:
			return nil, exit.Usage(err)
		}
		return j, nil
	}
	return c.createJournal(journal.Header{StartedAt: now, Cluster: plan.Cluster, Plan: plan, Continues: c.continues})
}

func (c *Runner) createJournal(h journal.Header) (*journal.Journal, error) {
	j, err := journal.Create(c.Flags.journalPath(h.Cluster.GUID, h.StartedAt.Time), h)
	if err != nil {
		return nil, exit.Usagef("nothing was written: %w", err)
	}
	if h.Plan == nil || len(h.Plan.Steps) > 0 {
		c.say("journal: %s", j.Path())
	}
	return j, nil
}

func (c *Runner) finish(res *repair.Result, next []view.NextStep) error {
	res.Outcomes = append(c.finished, res.Outcomes...)
	o := view.Options{Program: c.Program, Next: next}
	errs := []error{c.Print(res, o)}
	n := 0
	for i := range res.Outcomes {
		if res.Outcomes[i].Open() {
			n++
		}
	}
	if n > 0 {
		verb := "applied"
		if res.Undo {
			verb = "undone"
		}
		errs = append(errs, exit.Unfinished(fmt.Errorf("%d of %d steps were not %s", n, len(res.Outcomes), verb)))
	}
	if len(res.Gaps) > 0 {
		errs = append(errs, exit.Unread(fmt.Errorf("the cluster was read only in part: %s", res.Gaps[0])))
	}
	return errors.Join(errs...)
}

// afterApply returns the next steps after a plan was applied.
func (c *Runner) afterApply(plan *repair.Plan, res *repair.Result) []view.NextStep {
	out := c.afterStage(plan, res)
	var soon, retry bool
	for i := range res.Outcomes {
		switch o := &res.Outcomes[i]; o.Code {
		case repair.SkipTooSoon:
			soon = true
		case repair.SkipInterrupted, repair.SkipUnread, repair.SkipStopped, repair.SkipLimit:
			retry = true
		default: // another run would have the same outcome
		}
	}
	args := c.Sources.ClusterArguments()
	from := phrase.Arg(c.PlanFile)
	if c.PlanFile == "" || c.PlanFile == "-" {
		from = "--resume " + phrase.Arg(res.Journal) // the journal contains the plan
	}
	switch again := c.Program + " repair apply " + from + args + c.Hosts.Arguments(); {
	case (soon || retry) && from != phrase.Arg(c.PlanFile) && res.Journal == "":
		out = append(out, view.NextStep{Text: "To continue, make a new plan and apply it."})
	case soon && plan.Unobserved() != "":
		out = append(out, view.NextStep{Text: fmt.Sprintf("Some steps need two observations, and %s:", plan.Unobserved()), Command: again + " --wait"})
	case soon:
		out = append(out, view.NextStep{Text: fmt.Sprintf("Some steps are due after %s. Apply the plan again then:", plan.Due()), Command: again})
	case retry:
		out = append(out, view.NextStep{Text: "To continue:", Command: again})
	}
	if res.Count(repair.Failed) > 0 && res.Journal != "" {
		out = append(out, view.NextStep{Text: "To finish steps that may be half-done:", Command: c.Program + " repair apply --resume " + phrase.Arg(res.Journal) + args})
	}
	if res.Count(repair.Done) > 0 {
		out = append(out, view.NextStep{Text: "To undo the steps that can be undone:", Command: c.Program + " repair undo " + phrase.Arg(res.Journal) + args})
		if len(plan.Manual) > 0 {
			out = append(out, view.NextStep{Text: fmt.Sprintf("%d manual actions remain: the plan lists them in order.", len(plan.Manual))})
		}
	}
	return out
}

// afterStage returns the next step after a stage of a repair after a restore, if the stage is done.
func (c *Runner) afterStage(plan *repair.Plan, res *repair.Result) []view.NextStep {
	stage := plan.Request.AfterRestore
	if stage == 0 || slices.ContainsFunc(res.Outcomes, func(o repair.Outcome) bool { return o.Open() }) {
		return nil
	}
	if stage == repair.StartCollector {
		out := []view.NextStep{{Text: "All stages before are done: Calico's collector may run. To start it:"}}
		for _, m := range plan.Manual {
			for _, command := range append([]string{m.Command}, m.Then...) {
				out = append(out, view.NextStep{Command: command + c.Sources.ClusterArguments()})
			}
		}
		return out
	}
	n := view.NextStep{Text: fmt.Sprintf("Stage %d (%s) is done. Stage %d is next: %s.", stage, stage, stage+1, stage+1)}
	ext := filepath.Ext(c.PlanFile)
	if name, is := strings.CutSuffix(strings.TrimSuffix(c.PlanFile, ext), fmt.Sprintf("-%d", stage)); is {
		n.Command = c.Program + " repair show " + phrase.Arg(fmt.Sprintf("%s-%d%s", name, stage+1, ext))
	}
	return []view.NextStep{n}
}
