package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
)

// carryFlags are the flags of what writes to a cluster.
type carryFlags struct {
	yes, wait bool
	pace      time.Duration
	journal   string
}

func (f *carryFlags) addFlags(c *cobra.Command) {
	fs := c.Flags()
	fs.BoolVar(&f.yes, "yes", false, "do not ask before anything is written; needed where there is no terminal")
	fs.BoolVar(&f.wait, "wait", false, "wait for the second observation of steps that need one, instead of skipping them")
	fs.DurationVar(&f.pace, "pace", defaultPace, "pause this long after each step that wrote something")
	fs.StringVar(&f.journal, "journal", "", "write the journal to this new `FILE`, or go on in it after a crash (default: calico-audit-journal-CLUSTER-TIME.jsonl in the working directory)")
}

// defaultPace leaves the nodes time to take up what each step changes.
const defaultPace = 200 * time.Millisecond

// set tells whether any of the flags was given.
func (f *carryFlags) set() bool { return f.yes || f.wait || f.pace != defaultPace || f.journal != "" }

// complete checks the flags, before anything is read.
func (f *carryFlags) complete(streams genericiooptions.IOStreams) error {
	switch {
	case f.pace < 0:
		return usagef("--pace %s is negative", f.pace)
	case f.journal == "-":
		return usagef("--journal -: a journal must be a file, which an undo can read and which is on the disk before anything is written")
	case !f.yes && !canAsk(streams):
		return usagef("there is no terminal to ask on: give --yes to write without a question")
	}
	if f.journal != "" {
		if err := checkTarget(f.journal); err != nil {
			return usagef("--journal %s: %w", f.journal, err)
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

func newRepairApply(program string, streams genericiooptions.IOStreams) *cobra.Command {
	var (
		s        sources
		h        hostFlags
		p        planOutputs
		f        carryFlags
		resume   string
		maxSteps int
	)
	c := &cobra.Command{
		Use:   "apply PLAN | --resume JOURNAL",
		Short: "Carry a plan out",
		Long: `Carry out a plan that "repair --out" wrote, after a question. "-" is standard input,
with --yes.

The cluster must be the plan's. For each step its objects are read again, the step is
derived anew from them, and it is carried out only if it comes out the same; whatever
has changed since is left alone, with the reason. Each object is written to the journal
before it is changed. Ctrl-C finishes the object in hand; what is not done then, a second
run does.

The journal's path is said before anything is written. After a crash, the same command
again finds the journal where journals are written (the working directory, or where
--journal says), goes on in it, and completes what was left half-done. So does
--resume JOURNAL, which needs no plan: the journal holds it.

Exit codes: 0 everything was done, or was so already; 2 the command line makes no sense,
or a file cannot be read; 3 the cluster was read only in part; 4 steps were left undone,
or the plan cannot be carried out at all: it is another cluster's, a right is missing, the
cluster cannot be read (nothing is written then); 5 a failure inside the program.`,
		Example: strings.ReplaceAll(`  PROGRAM repair apply plan.json

  # States that must be seen twice: wait for the second time
  PROGRAM repair apply plan.json --wait --yes

  # After a crash, where the plan is lost
  PROGRAM repair apply --resume calico-audit-journal-5ca1ab1e-20260203T090000.000Z.jsonl`, "PROGRAM", program),
		Args: cobra.MaximumNArgs(1),
	}
	s.addClusterFlags(c)
	h.addFlags(c)
	p.addFlags(c)
	f.addFlags(c)
	c.Flags().StringVar(&resume, "resume", "", "go on where the run broke off that wrote this `JOURNAL`")
	c.Flags().IntVar(&maxSteps, "max-steps", 0, "carry out at most this `NUMBER` of steps; 0 for no bound")
	for _, flag := range []string{"pace", "max-steps"} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	c.RunE = run(func(c *cobra.Command, args []string) error {
		if len(args) == 0 && resume == "" {
			return usagef("give the plan to carry out, or a journal to go on with (--resume)")
		}
		if slices.Contains(args, "-") && !f.yes {
			return usagef("standard input is the plan, and cannot answer a question: give --yes")
		}
		if maxSteps < 0 {
			return usagef("--max-steps %d is negative", maxSteps)
		}
		if resume != "" && f.journal != "" {
			return usagef("--resume goes on in its own journal: --journal makes no sense with it")
		}
		if err := together(p.complete(""), p.noPage(), f.complete(streams)); err != nil {
			return err
		}
		x := &carrier{streams: streams, program: program, sources: &s, hosts: &h, flags: &f, print: &p, maxSteps: maxSteps}
		plan, before, err := x.planOrJournal(args, resume)
		if err != nil {
			return err
		}
		if !f.yes {
			if err := x.show(plan, view.Options{Program: program}); err != nil {
				return err
			}
		}
		return x.applyPlan(c.Context(), plan, before)
	})
	return c
}

// planOrJournal returns the plan to carry out, and the journal to go on in; nil for a
// fresh run. What was begun is gone on with by the journal's own plan, whatever became
// of the file.
func (c *carrier) planOrJournal(args []string, resume string) (*repair.Plan, *repair.JournalFile, error) {
	var plan *repair.Plan
	var before *repair.JournalFile
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
		if before, err = repair.ReadJournal(resume); err != nil {
			return nil, nil, usageError(err)
		}
		switch {
		case before.Plan == nil:
			return nil, nil, usagef("%s is the journal of an undo: run \"%s repair undo %s\" again", resume, c.program, before.Undoes)
		case plan != nil && !before.Of(plan):
			return nil, nil, usagef("%s is the journal of another plan", resume)
		}
	}
	if before != nil {
		plan = before.Plan
	}
	return plan, before, nil
}
