package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
)

// repairCommand is the repair command with its flags.
type repairCommand struct {
	streams genericiooptions.IOStreams
	program string
	sources sources
	hosts   hostFlags

	request repair.Request
	// terminated is the value of --terminated, which may be "all".
	terminated []string
	strict     string
	grace      time.Duration
	out        string
	print      planOutputs
	apply      bool
	exit       bool // --detailed-exitcode
	carry      carryFlags
}

// repairKinds are the kinds of repair: the flag, and what it answers.
var repairKinds = []struct {
	flag, help, answers string
	of                  func(*repair.Request) *bool
}{
	{"empty-blocks", "release empty blocks that no node has to keep", "block/empty, block/dead-node",
		func(r *repair.Request) *bool { return &r.EmptyBlocks }},
	{"orphan-affinities", "delete affinities whose block is gone or belongs to another", "affinity/no-block, affinity/not-owner, affinity/dead-node",
		func(r *repair.Request) *bool { return &r.OrphanAffinities }},
	{"missing-affinities", "give blocks the affinity of their owner back", "block/no-affinity",
		func(r *repair.Request) *bool { return &r.MissingAffinities }},
	{"leaked-ips", "free addresses that nothing owns", "ip/leaked",
		func(r *repair.Request) *bool { return &r.LeakedIPs }},
	{"leaked-handles", "delete handles that no block refers to, and put right what others count", "handle/leaked, handle/count",
		func(r *repair.Request) *bool { return &r.LeakedHandles }},
	{"soft-deleted", "finish deletions that were begun and left", "block/soft-deleted",
		func(r *repair.Request) *bool { return &r.SoftDeleted }},
}

const strictAnswers = "config/strict-affinity"

func newRepair(program string, streams genericiooptions.IOStreams) *cobra.Command {
	r := &repairCommand{program: program, streams: streams}
	c := &cobra.Command{
		Use:   "repair --KIND...",
		Short: "Plan repairs, and carry them out",
		Long: `Make a plan: what may be repaired without ever harming a live pod, step by step with
the reason for each; what must not be touched, and why; what people have to do by hand,
and in which order; and the pools' numbers before and after. Nothing is written without
--apply or "repair apply".

At least one kind of repair must be asked for; the flags name them.

An address is released only if a fresh and complete host view of its own node shows that
nothing uses it there (--host-views), or its machine is known to be off: by the taint
node.kubernetes.io/out-of-service on a node that is not Ready, or by --terminated. Views of
--agents can refuse a step, and not allow one, because nothing proves who answered.

A plan may be made from files. To be carried out it needs the cluster that it was made
for. Every step is then judged anew by what the cluster holds at that moment, so that a
plan that has grown old loses steps, and does nothing else. Some states must be seen
twice, a grace apart: the plan is the first time, carrying it out the second.

Every object is written to a journal before it is changed, whose path is said first;
"repair undo" takes back what can be taken back. After a crash, the same command again
finishes what was begun, by the journal that it finds where journals are written.

Exit codes: 0 it ran; 1 under --detailed-exitcode, the plan has steps; 2 the command line
makes no sense, or a file cannot be read; 3 the cluster could not be read, or only in
part (the plan is still printed, "complete": false); 4 under --apply, steps were left
undone, or a right is missing (nothing is written then); 5 a failure inside the program.

Under --apply the plan is shown on standard error, and what became of it is the output.`,
		Example: strings.ReplaceAll(`  # What could be released, and what happens then?
  PROGRAM repair --empty-blocks

  # Keep the plan, put it into the ticket, and carry it out later
  PROGRAM repair --empty-blocks --orphan-affinities --out plan.json -o markdown=ticket.md
  PROGRAM repair apply plan.json

  # A page with the report, and what the plan would change of it
  PROGRAM repair --empty-blocks -o html=plan.html --out plan.json

  # Free leaked addresses: ask the nodes first
  ssh n1 sudo calico-audit agent --once --node n1 > views/n1.json
  PROGRAM repair --leaked-ips --host-views views/ --out plan.json

  # What would strict affinity mean here?
  PROGRAM repair --strict-affinity=true -f dump/

  # Unattended, at most ten steps
  PROGRAM repair --empty-blocks --max-steps 10 --apply --yes`, "PROGRAM", program),
		Args: cobra.NoArgs,
	}
	r.sources.addFlags(c)
	r.hosts.addFlags(c)
	fs := c.Flags()
	for _, k := range repairKinds {
		fs.BoolVar(k.of(&r.request), k.flag, false, k.help+" (answers "+k.answers+")")
	}
	fs.StringVar(&r.strict, "strict-affinity", "", "set strict affinity to `BOOL`, true or false (answers "+strictAnswers+")")
	fs.StringSliceVar(&r.request.Pools, "pool", nil, "plan only what concerns the pool of this `NAME`; repeatable, or joined by commas")
	fs.StringSliceVar(&r.request.Nodes, "node", nil, "plan only what concerns the node of this `NAME`; repeatable, or joined by commas")
	fs.IntVar(&r.request.MaxSteps, "max-steps", 0, "plan at most this `NUMBER` of steps; 0 for no bound")
	fs.DurationVar(&r.grace, "grace", state.DefaultGrace, "how long a state must have held before it is acted on")
	fs.BoolVar(&r.request.ObserveTwice, "observe-twice", false, "trust no age that is written in an object: after a datastore was restored from a backup")
	fs.BoolVar(&r.request.AllowNewer, "allow-newer-calico", false, "plan steps although the cluster's Calico is newer than this program knows")
	fs.StringSliceVar(&r.terminated, "terminated", nil,
		"consent, with --leaked-ips: the machine of this `NODE` is known to be off; repeatable, or joined by commas; refused for one that is Ready; \"all\" for all nodes that are gone or NotReady and leave addresses behind")
	fs.BoolVar(&r.request.WithoutHostEvidence, "without-host-evidence", false,
		"consent, with --leaked-ips: release addresses although no host view proves that their node does not use them, as Calico's own collector does")
	fs.StringVar(&r.out, "out", "", "write the plan to this `FILE`, for \"repair apply\"")
	fs.BoolVar(&r.apply, "apply", false, "carry the plan out, after a question")
	fs.BoolVar(&r.exit, "detailed-exitcode", false, "exit with 1 if the plan has steps")
	r.print.addFlags(c)
	r.carry.addFlags(c)
	_ = c.RegisterFlagCompletionFunc("strict-affinity", cobra.FixedCompletions([]string{"true", "false"}, cobra.ShellCompDirectiveNoFileComp))
	for _, flag := range []string{"pool", "node", "terminated", "grace", "at", "max-steps", "pace"} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	c.RunE = run(func(c *cobra.Command, _ []string) error {
		if err := r.complete(); err != nil {
			return err
		}
		return r.run(c.Context())
	})
	c.AddCommand(newRepairShow(program, streams), newRepairApply(program, streams), newRepairUndo(program, streams))
	return c
}

// complete checks the flags. All its errors are errors of usage, found before
// anything is read.
func (r *repairCommand) complete() error {
	if r.strict != "" {
		on, err := strconv.ParseBool(r.strict)
		if err != nil {
			return usagef("--strict-affinity %q is neither true nor false", r.strict)
		}
		r.request.StrictAffinity = &on
	}
	asked := r.request.StrictAffinity != nil
	for _, k := range repairKinds {
		asked = asked || *k.of(&r.request)
	}
	switch {
	case !asked:
		return noKind()
	case r.grace < 0:
		return usagef("--grace %s is negative", r.grace)
	case r.request.MaxSteps < 0:
		return usagef("--max-steps %d is negative", r.request.MaxSteps)
	case !r.request.LeakedIPs && (len(r.terminated) > 0 || r.request.WithoutHostEvidence):
		return usagef("--terminated and --without-host-evidence go with --leaked-ips: nothing else needs these consents")
	case slices.Contains(r.terminated, ""):
		return usagef("--terminated names no node")
	case r.apply && len(r.sources.files) > 0:
		return usagef("--apply needs the cluster: a plan made from files (-f) is kept with --out, and carried out there with \"%s repair apply\"", r.program)
	case !r.apply && r.carry.set():
		return usagef("--yes, --wait, --pace and --journal go with --apply: without it nothing is written")
	}
	if r.out != "" {
		if err := checkTarget(r.out); err != nil {
			return usagef("--out %s: %w", r.out, err)
		}
	}
	if err := r.print.complete(r.out); err != nil {
		return err
	}
	if r.apply {
		if err := r.print.noPage(); err != nil {
			return err
		}
		if err := r.carry.complete(r.streams); err != nil {
			return err
		}
		_, err := r.carry.exists()
		return err
	}
	return nil
}

// noKind says which kinds of repair there are.
func noKind() error {
	var b strings.Builder
	b.WriteString("no kind of repair was asked for. Give one or several of:\n")
	for _, k := range repairKinds {
		fmt.Fprintf(&b, "  --%-27s %s\n  %-29s (answers %s)\n", k.flag, k.help, "", k.answers)
	}
	fmt.Fprintf(&b, "  --%-27s %s\n  %-29s (answers %s)", "strict-affinity=true|false", "set strict affinity", "", strictAnswers)
	return &exitError{code: ExitUsage, err: fmt.Errorf("%s", b.String())}
}

// run makes the plan, prints it, and carries it out if that was asked for.
func (r *repairCommand) run(ctx context.Context) error {
	progress := progressLine(r.streams)
	from, err := r.sources.open(r.streams, progress.Show)
	if err != nil {
		return err
	}
	if from, err = r.hosts.wrap(from, progress.Show); err != nil {
		return err
	}
	plan, state, err := r.plan(ctx, from, progress)
	progress.Clear()
	if err != nil {
		return err
	}
	c := &carrier{streams: r.streams, program: r.program, sources: &r.sources, hosts: &r.hosts, flags: &r.carry, print: &r.print, planFile: r.out}
	if r.apply {
		switch begun, err := c.finishBegun(ctx, plan.Cluster.GUID, r.request); {
		case err != nil:
			return err
		case begun: // which changed the cluster
			if plan, state, err = r.plan(ctx, from, progress); err != nil {
				progress.Clear()
				return err
			}
		}
	}
	report, err := r.report(ctx, from, state, progress)
	progress.Clear()
	if err != nil {
		return err
	}
	if r.out != "" {
		err := writeAtomically(r.out, func(w io.Writer) error { return view.WriteJSON(w, plan) })
		if err != nil {
			return usagef("writing the plan: %w", err)
		}
	}
	var errs []error
	if !state.Complete() {
		errs = append(errs, unreadError(incomplete("plan", state.Gaps)))
	}
	if r.exit && len(plan.Steps) > 0 {
		errs = append(errs, findingsError(fmt.Errorf("the plan has %d steps", len(plan.Steps))))
	}
	if r.apply {
		errs = append(errs, r.carryOut(ctx, c, plan, report))
	} else {
		errs = append(errs, r.print.plan(r.streams, plan, r.viewOptions(plan, report)))
	}
	return together(errs...)
}

// carryOut shows the plan on standard error, and carries it out; what became of it
// is the result, and goes where -o says.
func (r *repairCommand) carryOut(ctx context.Context, c *carrier, plan *repair.Plan, report *audit.Report) error {
	if err := c.show(plan, r.viewOptions(plan, report)); err != nil {
		return err
	}
	return c.applyPlan(ctx, plan, nil)
}

// report makes the report that the plan is shown with. Only a page shows more of it
// than the map, and needs what the checks find.
func (r *repairCommand) report(ctx context.Context, from reader, state *state.State, progress *view.ProgressLine) (*audit.Report, error) {
	if !r.print.plans.page() {
		return audit.NewReport(state, &audit.Result{}), nil
	}
	j, err := judge(ctx, &alreadyRead{from, state.Snapshot}, checks.All, r.grace, progress)
	if err != nil {
		return nil, err
	}
	rep := j.report()
	rep.Usage = audit.NewUsage(j.state, j.result)
	return rep, nil
}

// alreadyRead is a source of which a snapshot was taken before.
type alreadyRead struct {
	reader
	snapshot *blocks.Snapshot
}

func (a *alreadyRead) Read(context.Context) (*blocks.Snapshot, error) { return a.snapshot, nil }

// viewOptions returns what an output of the plan needs to know.
func (r *repairCommand) viewOptions(plan *repair.Plan, report *audit.Report) view.Options {
	o := view.Options{Program: r.program, Source: r.sources.describe(), ReportArgs: strings.TrimSpace(r.sources.arguments() + r.hosts.arguments()), Report: report}
	if !r.apply {
		o.Next = r.next(plan)
	}
	return o
}
