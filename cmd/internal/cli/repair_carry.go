package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
)

// show shows a plan on standard error.
func (c *carrier) show(plan *repair.Plan, o view.Options) error {
	shown := c.print.table()
	return shown.plan(toStderr(c.streams), plan, o)
}

// toStderr returns the streams with standard output going to standard error: what
// is shown before a question is not the result.
func toStderr(s genericiooptions.IOStreams) genericiooptions.IOStreams {
	return genericiooptions.IOStreams{In: s.In, Out: s.ErrOut, ErrOut: s.ErrOut}
}

// carrier carries out plans and undoes journals on a cluster.
type carrier struct {
	streams  genericiooptions.IOStreams
	program  string
	sources  *sources
	hosts    *hostFlags
	flags    *carryFlags
	print    *planOutputs
	planFile string
	maxSteps int
	finished []repair.Outcome // of steps that earlier runs left half-done
}

// applyPlan asks, checks the rights, carries the plan out and prints what became of
// it.
func (c *carrier) applyPlan(ctx context.Context, plan *repair.Plan, resume *repair.JournalFile) error {
	if len(plan.Steps) == 0 {
		return c.finish(&repair.Result{
			APIVersion: audit.APIVersion, Kind: repair.ResultKind, Cluster: plan.Cluster, StartedAt: plan.CreatedAt, Outcomes: []repair.Outcome{},
		}, nil)
	}
	if !plan.Intact() {
		say(c.streams, "warning: the plan was edited since it was made, or is of an earlier version: steps that must be seen twice count from this run's own first reading")
	}
	progress := progressLine(c.streams)
	defer progress.Clear()
	target, err := openTarget(c.sources, c.hosts, plan.Cluster.APIGroup, c.streams, progress.Show)
	if err != nil {
		return err
	}
	if err := target.check(ctx, plan.Steps, false); err != nil {
		return err
	}
	progress.Clear()
	if err := c.ask(ctx, stepsText(len(plan.Steps), "carried out"), plan.Cluster.GUID); err != nil {
		return err
	}
	journal, err := c.openJournal(plan, resume)
	if err != nil {
		return err
	}
	defer func() { _ = journal.Close() }()
	writer, err := target.writer(journal)
	if err != nil {
		return c.nothingDone(err)
	}
	defer context.AfterFunc(ctx, func() {
		progress.Clear()
		say(c.streams, "interrupted: the object in hand is finished first, which may take a minute; a second interrupt stops at once")
	})()
	n := 0
	res, err := repair.Apply(ctx, plan, target.reader, writer, journal, repair.ApplyOptions{
		Pace: c.flags.pace, MaxSteps: c.maxSteps, Wait: c.flags.wait, Resume: resume,
		Progress: func(o repair.Outcome) {
			if o.Status == "" {
				n++
				progress.Show(fmt.Sprintf("step %d of %d: %s", n, len(plan.Steps), o.Step.ID))
			}
		},
		Waiting: c.waiting(progress),
	})
	progress.Clear()
	if err != nil {
		return c.nothingDone(err)
	}
	return c.finish(res, c.afterApply(plan, res))
}

// waiting says that a run waits.
func (c *carrier) waiting(progress *view.ProgressLine) func(time.Time) {
	return func(until time.Time) {
		progress.Clear()
		text := "waiting until %s for the second observation"
		if c.hosts != nil && len(c.hosts.paths) > 0 {
			text += ", for which the host views are read again: take them anew shortly before"
		}
		say(c.streams, text, state.FormatTime(until))
	}
}

// stepsText says what is about to be done.
func stepsText(n int, verb string) string {
	if n == 1 {
		return "1 step is to be " + verb
	}
	return fmt.Sprintf("%d steps are to be %s", n, verb)
}

// openJournal creates the journal, or goes on in one, and says where it is.
func (c *carrier) openJournal(plan *repair.Plan, resume *repair.JournalFile) (*repair.Journal, error) {
	now := audit.Time{Time: time.Now().UTC()}
	if resume != nil {
		j, err := repair.ResumeJournal(resume.Path, now)
		switch {
		case errors.Is(err, repair.ErrRunning):
			return nil, unfinishedError(fmt.Errorf("nothing was written: %w", err))
		case err != nil:
			return nil, usageError(err)
		}
		return j, nil
	}
	j, err := repair.CreateJournal(c.flags.journalPath(plan.Cluster.GUID, now.Time), repair.JournalHeader{StartedAt: now, Cluster: plan.Cluster, Plan: plan})
	if err != nil {
		return nil, usagef("nothing was written: %w", err)
	}
	say(c.streams, "journal: %s", j.Path())
	return j, nil
}

// nothingDone says why nothing was tried.
func (c *carrier) nothingDone(err error) error {
	if errors.Is(err, repair.ErrNoPlan) {
		return usageError(err)
	}
	return unfinishedError(fmt.Errorf("nothing was written: %w", err))
}

// finish prints a result, and says how the run ends.
func (c *carrier) finish(res *repair.Result, next []view.NextStep) error {
	res.Outcomes = append(c.finished, res.Outcomes...)
	o := view.Options{Program: c.program, Next: next}
	errs := []error{c.print.result(c.streams, res, o)}
	if n := c.left(res); n > 0 {
		verb := "carried out"
		if res.Undo {
			verb = "taken back"
		}
		errs = append(errs, unfinishedError(fmt.Errorf("%d of %d steps were not %s", n, len(res.Outcomes), verb)))
	}
	if len(res.Gaps) > 0 {
		errs = append(errs, unreadError(fmt.Errorf("the cluster was read only in part: %s", res.Gaps[0])))
	}
	return together(errs...)
}

func (c *carrier) left(res *repair.Result) int {
	n := 0
	for i := range res.Outcomes {
		if res.Outcomes[i].Open() {
			n++
		}
	}
	return n
}

// afterApply says how to go on after a plan was carried out.
func (c *carrier) afterApply(plan *repair.Plan, res *repair.Result) []view.NextStep {
	var out []view.NextStep
	var soon, retry bool
	for i := range res.Outcomes {
		switch o := &res.Outcomes[i]; o.Code {
		case repair.SkipTooSoon:
			soon = true
		case repair.SkipInterrupted, repair.SkipUnread, repair.SkipStopped, repair.SkipLimit:
			retry = true
		default: // another run would come to the same
		}
	}
	args := ""
	if a := c.sources.clusterArguments(); a != "" {
		args = " " + a
	}
	from := shellQuote(c.planFile)
	if c.planFile == "" || c.planFile == "-" {
		from = "--resume " + shellQuote(res.Journal) // which holds the plan
	}
	switch again := c.program + " repair apply " + from + args + c.hosts.arguments(); {
	case (soon || retry) && from != shellQuote(c.planFile) && res.Journal == "":
		out = append(out, view.NextStep{Text: "To go on, make a new plan and apply it."})
	case soon && plan.Unobserved() != "":
		out = append(out, view.NextStep{Text: fmt.Sprintf("Some steps must be seen twice, and %s:", plan.Unobserved()), Command: again + " --wait"})
	case soon:
		out = append(out, view.NextStep{Text: fmt.Sprintf("Some steps are due after %s:", state.FormatTime(plan.CreatedAt.Add(plan.Grace.Duration))), Command: again})
	case retry:
		out = append(out, view.NextStep{Text: "To go on:", Command: again})
	}
	if res.Count(repair.Failed) > 0 && res.Journal != "" {
		out = append(out, view.NextStep{Text: "To finish what may be half-done:", Command: c.program + " repair apply --resume " + shellQuote(res.Journal) + args})
	}
	if res.Count(repair.Done) > 0 {
		out = append(out, view.NextStep{Text: "To take back what can be taken back:", Command: c.program + " repair undo " + shellQuote(res.Journal) + args})
		if len(plan.Manual) > 0 {
			out = append(out, view.NextStep{Text: fmt.Sprintf("%d things are left to do by hand: the plan lists them, in order.", len(plan.Manual))})
		}
	}
	return out
}
