package cli

import (
	"fmt"
	"os"
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
	fs.StringVar(&f.journal, "journal", "", "write the journal to this new `FILE` (default: calico-audit-journal-CLUSTER-TIME.jsonl in the working directory)")
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
		if _, err := os.Stat(f.journal); err == nil {
			return usagef("--journal %s exists already: a journal is never overwritten", f.journal)
		}
	}
	return nil
}

// journalPath names the journal of a run on a cluster.
func (f *carryFlags) journalPath(guid string, now time.Time) string {
	if f.journal != "" {
		return f.journal
	}
	if len(guid) > 8 {
		guid = guid[:8]
	}
	guid = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, guid)
	return fmt.Sprintf("calico-audit-journal-%s-%s.jsonl", guid, now.UTC().Format("20060102T150405.000Z"))
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
		Use:   "apply PLAN",
		Short: "Carry a plan out",
		Long: `Carry out a plan that "repair --out" wrote, after a question. "-" is standard input,
with --yes.

The cluster must be the plan's. For each step its objects are read again, the step is
derived anew from them, and it is carried out only if it comes out the same; whatever
has changed since is left alone, with the reason. Each object is written to the journal
before it is changed. Ctrl-C finishes the object in hand; what is not done then, a second
run does.

After a crash, --resume JOURNAL goes on in that run's journal: what it has done is
verified, and what it left half-done is completed.

Exit codes: 0 everything was done, or was so already; 2 the command line makes no sense,
or a file cannot be read; 3 the cluster was read only in part; 4 steps were left undone,
or the plan cannot be carried out at all: it is another cluster's, a right is missing, the
cluster cannot be read (nothing is written then); 5 a failure inside the program.`,
		Example: strings.ReplaceAll(`  PROGRAM repair apply plan.json

  # States that must be seen twice: wait for the second time
  PROGRAM repair apply plan.json --wait --yes

  # After a crash
  PROGRAM repair apply plan.json --resume calico-audit-journal-5ca1ab1e-20260203T090000.000Z.jsonl`, "PROGRAM", program),
		Args: cobra.ExactArgs(1),
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
		if args[0] == "-" && !f.yes {
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
		plan, err := readPlan(args[0], streams.In)
		if err != nil {
			return err
		}
		var before *repair.JournalFile
		if resume != "" {
			if before, err = repair.ReadJournal(resume); err != nil {
				return usageError(err)
			}
			if !samePlan(before.Plan, plan) {
				return usagef("%s is the journal of another plan", resume)
			}
			plan = before.Plan // what was begun is gone on with, whatever became of the file
		}
		x := &carrier{streams: streams, program: program, sources: &s, hosts: &h, flags: &f, print: &p, planFile: args[0], maxSteps: maxSteps}
		if !f.yes {
			if err := x.show(plan, view.PlanOptions{Options: view.Options{Program: program}}); err != nil {
				return err
			}
		}
		return x.applyPlan(c.Context(), plan, before)
	})
	return c
}

// samePlan tells whether a journal's plan is the one at hand.
func samePlan(a, b *repair.Plan) bool {
	if a == nil || a.Cluster.GUID != b.Cluster.GUID || !a.CreatedAt.Equal(b.CreatedAt.Time) || len(a.Steps) != len(b.Steps) {
		return false
	}
	for i := range a.Steps {
		if a.Steps[i].ID != b.Steps[i].ID {
			return false
		}
	}
	return true
}
