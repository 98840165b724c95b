package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/cmd/internal/document"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// carryFlags are the flags of what writes to a cluster.
type carryFlags struct {
	yes, wait bool
	pace      time.Duration
	journal   string
	evict     time.Duration
}

// addFlags adds the flags but --wait to a command.
func (f *carryFlags) addFlags(c *cobra.Command, journal string) {
	fs := c.Flags()
	fs.BoolVar(&f.yes, "yes", false, "do not ask before anything is written; needed where there is no terminal")
	fs.DurationVar(&f.pace, "pace", defaultPace, "pause this long after each step that wrote something, and once after all addresses that one write released")
	fs.StringVar(&f.journal, "journal", "", journal+" (default: calico-audit-journal-CLUSTER-TIME.jsonl in the working directory)")
	flags.NoFiles(c, "pace")
}

// addAllFlags adds the flags of what carries out a plan.
func (f *carryFlags) addAllFlags(c *cobra.Command) {
	f.addFlags(c, "write the journal to this new `FILE`, or go on in it after a crash")
	c.Flags().DurationVar(&f.evict, "evict-timeout", apply.DefaultEvictTimeout, "how long an evicted pod gets to end and to be replaced by a ready one")
	flags.NoFiles(c, "evict-timeout")
	c.Flags().BoolVar(&f.wait, "wait", false, "wait for the second observation of steps that need one, instead of skipping them")
}

// defaultPace leaves the nodes time to take up what each step changes.
const defaultPace = 200 * time.Millisecond

// set reports whether any of the flags was given.
func (f *carryFlags) set() bool { return f.yes || f.wait || f.pace != defaultPace || f.journal != "" }

// complete checks the flags, before anything is read.
func (f *carryFlags) complete(streams genericiooptions.IOStreams) error {
	switch {
	case f.evict < 0:
		return exit.Usagef("--evict-timeout %s is negative", f.evict)
	case f.pace < 0:
		return exit.Usagef("--pace %s is negative", f.pace)
	case f.journal == "-":
		return exit.Usagef("--journal -: a journal must be a file, which an undo can read and which is on the disk before anything is written")
	case !f.yes && !canAsk(streams):
		return exit.Usagef("there is no terminal to ask on: give --yes to write without a question")
	}
	if f.journal != "" {
		if err := document.CheckTarget(f.journal); err != nil {
			return exit.Usagef("--journal %s: %w", f.journal, err)
		}
	}
	return nil
}

// journalPath names the journal of a run on a cluster: as --journal says, unless that
// is the journal of an earlier run.
func (f *carryFlags) journalPath(guid string, now time.Time) string {
	if _, err := os.Stat(f.journal); f.journal != "" && err != nil {
		return f.journal
	}
	return filepath.Join(f.directory(), journalPrefix(guid)+now.UTC().Format("20060102T150405.000Z")+".jsonl")
}

func newRepairApply(e env) *cobra.Command {
	x := &carrier{env: e, sources: new(source.Flags), hosts: new(source.HostFlags), flags: new(carryFlags), print: new(planOutputs)}
	var resume string
	c := e.command(&cobra.Command{
		Use:   "apply PLAN | --resume JOURNAL",
		Short: "Apply a plan",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := x.check(args, resume); err != nil {
				return err
			}
			plan, before, err := x.planOrJournal(args, resume)
			if err != nil {
				return err
			}
			if err := x.flags.complete(x.streams); err != nil {
				return err
			}
			if !x.flags.yes {
				if err := x.show(plan, view.Options{Program: x.program}); err != nil {
					return err
				}
			}
			return x.applyPlan(c.Context(), plan, before)
		},
	})
	x.sources.AddClusterTo(c)
	x.hosts.AddTo(c)
	x.print.addFlags(c, view.PlanFormats())
	x.flags.addAllFlags(c)
	c.Flags().StringVar(&resume, "resume", "", "go on where the run broke off that wrote this `JOURNAL`")
	c.Flags().IntVar(&x.maxSteps, "max-steps", 0, "apply at most this `NUMBER` of steps; 0 for no bound")
	flags.NoFiles(c, "max-steps")
	return c
}

// check checks the flags of "repair apply" that its files depend on.
func (c *carrier) check(args []string, resume string) error {
	switch {
	case len(args) == 0 && resume == "":
		return exit.Usagef("give the plan to apply, or a journal to go on with (--resume)")
	case slices.Contains(args, "-") && !c.flags.yes:
		return exit.Usagef("standard input is the plan, and cannot answer a question: give --yes")
	case c.maxSteps < 0:
		return exit.Usagef("--max-steps %d is negative", c.maxSteps)
	case resume != "" && c.flags.journal != "":
		return exit.Usagef("--resume goes on in its own journal: --journal cannot be given with it")
	}
	return c.print.complete("")
}

// planOrJournal returns the plan to carry out, and the journal to go on in; nil for a
// fresh run. What was begun is gone on with by the journal's own plan, whatever became
// of the file.
func (c *carrier) planOrJournal(args []string, resume string) (*repair.Plan, *journal.File, error) {
	var plan *repair.Plan
	var before *journal.File
	var err error
	if len(args) > 0 {
		c.planFile = args[0]
		if plan, err = readPlan(args[0], c.streams.In); err != nil {
			return nil, nil, err
		}
	}
	switch resume {
	case "":
		if before, err = c.broken(plan); err != nil {
			return nil, nil, err
		}
	default:
		if before, err = journal.Read(resume); err != nil {
			return nil, nil, exit.Usage(err)
		}
		switch {
		case before.Plan == nil:
			return nil, nil, exit.Usagef("%s is the journal of an undo: run \"%s repair undo %s\" again", resume, c.program, before.Undoes)
		case plan != nil && !before.Of(plan):
			return nil, nil, exit.Usagef("%s is the journal of another plan", resume)
		}
	}
	if before != nil {
		plan = before.Plan
	}
	return plan, before, nil
}

// show shows a plan on standard error.
func (c *carrier) show(plan *repair.Plan, o view.Options) error {
	shown, streams := c.shown()
	return shown.plan(streams, plan, o)
}

// shown is the output of what is shown before a question, which is not the result.
func (c *carrier) shown() (*planOutputs, genericiooptions.IOStreams) {
	return c.print.table(), genericiooptions.IOStreams{In: c.streams.In, Out: c.streams.ErrOut, ErrOut: c.streams.ErrOut}
}

// carrier carries out plans and undoes journals on a cluster.
type carrier struct {
	env
	sources  *source.Flags
	hosts    *source.HostFlags
	flags    *carryFlags
	print    *planOutputs
	planFile string
	maxSteps int
	finished []repair.Outcome // of steps that earlier runs left half-done
}

// applyPlan asks, checks the rights, carries the plan out and prints what became of
// it.
func (c *carrier) applyPlan(ctx context.Context, plan *repair.Plan, resume *journal.File) error {
	if len(plan.Steps) == 0 {
		return c.finish(&repair.Result{
			APIVersion: audit.APIVersion, Kind: repair.ResultKind, Cluster: plan.Cluster, StartedAt: plan.CreatedAt, Outcomes: []repair.Outcome{},
		}, nil)
	}
	if !plan.Intact() {
		say(c.streams, "warning: the plan was edited since it was made, or is of an earlier version: steps that must be seen twice count from this run's own first reading")
	}
	progress := view.ProgressOn(c.streams)
	defer progress.Clear()
	c.sources.Budgets = plan.Request.Evicts()
	target, err := openTarget(c.sources, c.hosts, plan.Cluster.APIGroup, c.streams, progress.Show)
	if err != nil {
		return err
	}
	if err := target.check(ctx, plan.Steps, false); err != nil {
		return err
	}
	progress.Clear()
	if err := c.ask(ctx, stepsText(len(plan.Steps), "applied"), plan.Cluster.GUID); err != nil {
		return err
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
		say(c.streams, "interrupted: the object in hand is finished first, which may take a minute; a second interrupt stops at once")
	})()
	res, err := apply.Run(ctx, plan, target.reader, writer, journal, apply.Options{
		Pace: c.flags.pace, MaxSteps: c.maxSteps, Wait: c.flags.wait, Resume: resume, Workloads: pods, EvictTimeout: c.flags.evict,
		Progress: c.stepProgress(progress, len(plan.Steps), false), Waiting: c.waiting(progress), Say: c.sayNow(progress),
	})
	progress.Clear()
	if err != nil {
		return notWritten(err)
	}
	return c.finish(res, c.afterApply(plan, res))
}

// stepProgress shows which step is in hand; without a terminal it logs what became of
// each that was tried.
func (c *carrier) stepProgress(line *view.ProgressLine, steps int, undo bool) func(repair.Outcome) {
	n, said := 0, ""
	return func(o repair.Outcome) {
		switch {
		case o.Status == "" && o.Reason != "": // what the step waits for
			text := fmt.Sprintf("step %d of %d: %s: %s", n, steps, o.Step.ID, o.Reason)
			line.Show(text)
			if !line.Visible() && text != said {
				say(c.streams, "%s", text)
			}
			said = text
		case o.Status == "":
			n++
			line.Show(fmt.Sprintf("step %d of %d: %s", n, steps, o.Step.ID))
		case !line.Visible() && o.Status != repair.NotTried:
			say(c.streams, "step %d of %d: %s: %s", n, steps, o.Step.ID, view.OutcomeText(&o, undo))
		}
	}
}

// waiting says that a run waits.
func (c *carrier) waiting(progress *view.ProgressLine) func(time.Time) {
	return func(until time.Time) {
		text := "waiting until %s for the second observation"
		if c.hosts != nil && len(c.hosts.Paths) > 0 {
			text += ", for which the host views are read again: take them again shortly before"
		}
		c.sayNow(progress)(fmt.Sprintf(text, phrase.Time(until)))
	}
}

// sayNow says something in place of the progress.
func (c *carrier) sayNow(progress *view.ProgressLine) func(string) {
	return func(text string) {
		progress.Clear()
		say(c.streams, "%s", text)
	}
}

// stepsText says what is about to be done.
func stepsText(n int, verb string) string {
	if n == 1 {
		return "1 step to be " + verb
	}
	return fmt.Sprintf("%d steps to be %s", n, verb)
}

// openJournal creates the journal, or goes on in one, and says where it is.
func (c *carrier) openJournal(plan *repair.Plan, resume *journal.File) (*journal.Journal, error) {
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
	return c.createJournal(journal.Header{StartedAt: now, Cluster: plan.Cluster, Plan: plan})
}

func (c *carrier) createJournal(h journal.Header) (*journal.Journal, error) {
	j, err := journal.Create(c.flags.journalPath(h.Cluster.GUID, h.StartedAt.Time), h)
	if err != nil {
		return nil, exit.Usagef("nothing was written: %w", err)
	}
	say(c.streams, "journal: %s", j.Path())
	return j, nil
}

// finish prints a result, and says how the run ends.
func (c *carrier) finish(res *repair.Result, next []view.NextStep) error {
	res.Outcomes = append(c.finished, res.Outcomes...)
	o := view.Options{Program: c.program, Next: next}
	errs := []error{c.print.result(c.streams, res, o)}
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
	return exit.Together(errs...)
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
	args := c.sources.ClusterArguments()
	from := phrase.Arg(c.planFile)
	if c.planFile == "" || c.planFile == "-" {
		from = "--resume " + phrase.Arg(res.Journal) // which holds the plan
	}
	switch again := c.program + " repair apply " + from + args + c.hosts.Arguments(); {
	case (soon || retry) && from != phrase.Arg(c.planFile) && res.Journal == "":
		out = append(out, view.NextStep{Text: "To go on, make a new plan and apply it."})
	case soon && plan.Unobserved() != "":
		out = append(out, view.NextStep{Text: fmt.Sprintf("Some steps must be seen twice, and %s:", plan.Unobserved()), Command: again + " --wait"})
	case soon:
		out = append(out, view.NextStep{Text: fmt.Sprintf("Some steps are due after %s:", phrase.Time(plan.CreatedAt.Add(plan.Grace.Duration))), Command: again})
	case retry:
		out = append(out, view.NextStep{Text: "To go on:", Command: again})
	}
	if res.Count(repair.Failed) > 0 && res.Journal != "" {
		out = append(out, view.NextStep{Text: "To finish what may be half-done:", Command: c.program + " repair apply --resume " + phrase.Arg(res.Journal) + args})
	}
	if res.Count(repair.Done) > 0 {
		out = append(out, view.NextStep{Text: "To undo what can be undone:", Command: c.program + " repair undo " + phrase.Arg(res.Journal) + args})
		if len(plan.Manual) > 0 {
			out = append(out, view.NextStep{Text: fmt.Sprintf("%d actions are left to do by hand: the plan lists them, in order.", len(plan.Manual))})
		}
	}
	return out
}

// canAsk reports whether somebody can answer a question: both what is read and where
// the question is shown must be a terminal.
func canAsk(streams genericiooptions.IOStreams) bool {
	in, ok := streams.In.(io.Writer) // a terminal is a file, which can be written to
	return ok && printers.IsTerminal(in) && printers.IsTerminal(streams.ErrOut)
}

// ask asks before anything is written, unless --yes was given. Whoever says no
// leaves the steps undone.
func (c *carrier) ask(ctx context.Context, what, guid string) error {
	if c.flags.yes {
		return nil
	}
	say(c.streams, "")
	say(c.streams, "%s on the cluster of %s (GUID %s).", what, c.sources.Describe(), guid)
	_, _ = fmt.Fprint(c.streams.ErrOut, "Type \"yes\" to go on: ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(c.streams.In).ReadString('\n')
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		say(c.streams, "")
		return exit.Unfinished(errors.New("interrupted: nothing was written"))
	case a := <-answer:
		if a != "yes" {
			return exit.Unfinished(errors.New("nothing was written: the answer was not \"yes\""))
		}
	}
	return nil
}
