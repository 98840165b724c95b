package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/document"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/cmd/internal/runner"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/planner"
)

type repairCommand struct {
	env
	sources source.Flags
	hosts   source.HostFlags
	grace   graceFlag
	print   planOutputs
	carry   runner.Flags
	flags   *pflag.FlagSet

	request repair.Request
	// terminated is the value of --terminated; it may contain "all".
	terminated []string
	// ips and cidrs are the values of --ip and --block.
	ips, cidrs []string
	out        string
	apply      bool
	exit       bool // --detailed-exitcode
	// afterRestore makes one plan per stage of the repair after a restore.
	afterRestore bool
}

func newRepair(e env) *cobra.Command {
	r := &repairCommand{env: e}
	c := e.command(&cobra.Command{
		Use:   "repair --KIND...",
		Short: "Plan repairs, and apply them with --apply",
		Args:  filesByFlag,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := r.complete(); err != nil {
				return err
			}
			if r.afterRestore {
				return r.runAfterRestore(c.Context())
			}
			return r.run(c.Context())
		},
	})
	r.sources.AddTo(c)
	r.hosts.AddTo(c)
	fs := c.Flags()
	r.flags = fs
	for _, q := range repair.Requests {
		answers := " (answers " + q.Answers + ")"
		if q.Field != nil {
			fs.BoolVar(q.Field(&r.request), q.Flag, false, q.Help+answers)
			continue
		}
		fs.Func(q.Flag, q.Help+" to `BOOL`, true or false"+answers, func(value string) error {
			on, err := strconv.ParseBool(value)
			if err != nil {
				return fmt.Errorf("%q is not true or false", value)
			}
			r.request.StrictAffinity = &on
			return nil
		})
	}
	fs.BoolVar(&r.afterRestore, "after-restore", false,
		"after the datastore was restored from a backup: plan every stage, from stopping Calico's collector to starting it again, in a plan of its own; with --out plan.json, in plan-1.json to plan-5.json")
	fs.StringSliceVar(&r.request.Pools, "pool", nil, "plan only for the pool with this `NAME`; repeatable or comma-separated")
	fs.StringSliceVar(&r.request.Nodes, "node", nil, "plan only for the node with this `NAME`; repeatable or comma-separated")
	fs.StringSliceVar(&r.ips, "ip", nil, "plan only for this `ADDRESS`, its block and its handle; repeatable or comma-separated")
	fs.StringSliceVar(&r.cidrs, "block", nil, "plan only for the block with this `CIDR` and the addresses in it; repeatable or comma-separated")
	fs.IntVar(&r.request.MaxSteps, "max-steps", 0, "plan at most this `NUMBER` of steps; 0 sets no limit")
	r.grace.addFlag(c, "time that a state must last before a step acts on it")
	fs.BoolVar(&r.request.ObserveTwice, "observe-twice", false, "trust no age that objects record; use after the datastore was restored from a backup")
	fs.BoolVar(&r.request.AllowNewer, "allow-newer-calico", false, "plan steps even if the cluster's Calico is newer than this program supports")
	fs.StringSliceVar(&r.terminated, "terminated", nil,
		"consent, with "+asksHosts(nil)+": confirm that the machine of this `NODE` is off; refused for Ready nodes; \"all\" (not with --yes) confirms it for all nodes that no longer exist or are NotReady and left addresses behind, or may have left some in secondary networks; repeatable or comma-separated")
	fs.BoolVar(&r.request.LastBlocks, "last-blocks", false,
		"consent, with --empty-blocks, before Calico v3.32: release the last empty block of a node that is cordoned or runs no pod of the pod network, if another node cannot allocate")
	fs.BoolVar(&r.request.WithoutHostEvidence, "without-host-evidence", false,
		"consent, with "+asksHosts(nil)+": release addresses without a host view that proves them unused on their node, as Calico's own collector does")
	fs.BoolVar(&r.request.CordonFull, "cordon-full", false,
		"consent, with --consolidate or --rehome: cordon nodes that have no free addresses of their own, or run out of them, while pods move; --consolidate may cordon more than half of a pool's nodes; the plan has the number that remains")
	fs.BoolVar(&r.request.EvictSingletons, "evict-singletons", false,
		"consent, with --consolidate or --rehome: evict pods without a stand-in: those without a controller, and a controller's only pod if no PodDisruptionBudget covers it")
	fs.StringVar(&r.out, "out", "", "write the plan to this `FILE`, for \"repair apply\"")
	fs.BoolVar(&r.apply, "apply", false, "apply the plan after a confirmation")
	fs.BoolVar(&r.exit, "detailed-exitcode", false, "exit with 1 if the plan has steps")
	addOutputFlags(c, &r.print.outputFlags, planFormats, "")
	r.carry.AddAllTo(c)
	flags.OneOf(c, "strict-affinity", "true", "false")
	r.sources.CompleteNames(c, "pool", "pool", "secondary pool")
	r.sources.CompleteNames(c, "node", "node")
	r.sources.CompleteNames(c, "terminated", "node")
	flags.NoFiles(c, "ip", "block", "max-steps")
	c.AddCommand(newRepairShow(e), newRepairApply(e), newRepairUndo(e))
	return c
}

// complete validates the flags, before anything is read. All its errors are usage errors.
func (r *repairCommand) complete() error {
	if err := r.parseTargets(); err != nil {
		return err
	}
	asks := r.request
	if r.afterRestore {
		if err := r.checkAfterRestore(); err != nil {
			return err
		}
		asks = asks.Stage(repair.ReleaseUnused)
	}
	switch {
	case !slices.ContainsFunc(repair.Requests, func(q repair.RequestKind) bool { return q.In(&asks) }):
		return noKind()
	case r.grace.check() != nil:
		return r.grace.check()
	case r.request.MaxSteps < 0:
		return exit.Usagef("--max-steps %d is negative", r.request.MaxSteps)
	case asksHosts(&asks) == "" && (len(r.terminated) > 0 || r.request.WithoutHostEvidence):
		return exit.Usagef("--terminated and --without-host-evidence require %s: no other repair needs these consents", asksHosts(nil))
	case !r.request.EmptyBlocks && r.request.LastBlocks:
		return exit.Usagef("--last-blocks requires --empty-blocks: no other repair needs this consent")
	case r.request.CordonFull && !r.request.Consolidate && !r.request.Rehome:
		return exit.Usagef("--cordon-full requires --consolidate or --rehome: no other repair needs this consent")
	case r.request.EvictSingletons && !r.request.Consolidate && !r.request.Rehome:
		return exit.Usagef("--evict-singletons requires --consolidate or --rehome: no other repair needs this consent")
	case slices.Contains(r.terminated, ""):
		return exit.Usagef("--terminated names no node")
	case slices.Contains(r.terminated, "all") && r.carry.Yes:
		return exit.Usagef("--terminated all cannot be used with --yes, because a person must read the names of the nodes: name the nodes instead")
	case r.apply && len(r.sources.Files) > 0:
		return exit.Usagef("--apply needs a cluster, and -f reads files: save the plan with --out, and apply it on the cluster with \"%s repair apply\"", r.program)
	case !r.apply && r.carry.Set():
		return exit.Usagef("--yes, --wait, --pace and --journal require --apply: without it, nothing is written")
	}
	if r.out != "" {
		if err := document.CheckTarget(r.out); err != nil {
			return exit.Usagef("--out %s: %w", r.out, err)
		}
	}
	if err := r.print.complete(planFormats, r.out); err != nil {
		return err
	}
	if r.apply {
		if r.print.plans.page() {
			return exit.Usagef("-o html cannot be used with --apply: it shows a plan with a report of the same moment")
		}
		if err := r.carry.Complete(canAsk(r.streams)); err != nil {
			return err
		}
		_, err := r.carry.Exists()
		return err
	}
	return nil
}

// noKind returns an error that lists the kinds of repair.
func noKind() error {
	var b strings.Builder
	b.WriteString("no kind of repair selected. Select one or more of:\n")
	for _, q := range repair.Requests {
		if q.Field == nil {
			q.Flag += "=true|false"
		}
		fmt.Fprintf(&b, "  --%-27s %s\n  %-29s (answers %s)\n", q.Flag, q.Help, "", q.Answers)
	}
	return exit.Usagef("%s", strings.TrimSuffix(b.String(), "\n"))
}

// asksHosts lists the flags of repairs that may release addresses still in use on a machine: those
// of a request or, if it is nil, all.
func asksHosts(r *repair.Request) string {
	var flags []string
	for _, q := range repair.Requests {
		if planner.AsksHosts(&q) && (r == nil || q.In(r)) {
			flags = append(flags, "--"+q.Flag)
		}
	}
	all := strings.Join(flags, ", ")
	if i := strings.LastIndex(all, ", "); i >= 0 {
		all = all[:i] + " or" + all[i+1:]
	}
	return all
}

func (r *repairCommand) run(ctx context.Context) error {
	r.sources.Budgets = r.request.Evicts()
	progress := terminal.ProgressOn(r.streams)
	from, err := r.sources.OpenWith(&r.hosts, r.streams, progress.Show)
	if err != nil {
		return err
	}
	plan, state, err := r.plan(ctx, from, progress)
	progress.Clear()
	if err != nil {
		return err
	}
	c := r.print.runner(r.env, &r.sources, &r.hosts, &r.carry)
	c.PlanFile = r.out
	if r.apply {
		switch begun, err := c.FinishBegun(ctx, plan.Cluster.GUID, r.request); {
		case err != nil:
			return err
		case begun: // the finished steps changed the cluster
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
		err := document.WriteAtomically(r.out, func(w io.Writer) error { return view.WriteJSON(w, plan) })
		if err != nil {
			return exit.Usagef("writing the plan: %w", err)
		}
	}
	var errs []error
	if !state.Complete() {
		errs = append(errs, exit.Unread(incomplete("plan", state.Gaps)))
	}
	if r.exit && len(plan.Steps) > 0 {
		errs = append(errs, exit.Findings(fmt.Errorf("the plan has %d steps", len(plan.Steps))))
	}
	o := r.viewOptions(plan, report)
	if !r.apply {
		return errors.Join(append(errs, r.print.plan(r.streams, plan, o))...)
	}
	if err = r.print.show(r.streams, plan, o); err == nil {
		err = c.Apply(ctx, plan, nil)
	}
	return errors.Join(append(errs, err)...)
}

// report makes the report that accompanies the plan. Only an HTML page shows findings, so
// the checks run only for a page.
func (r *repairCommand) report(ctx context.Context, from source.Reader, state *state.State, progress *terminal.Progress) (*audit.Report, error) {
	if !r.print.plans.page() {
		return audit.NewReport(state, &audit.Result{}), nil
	}
	j, err := evaluate(ctx, &alreadyRead{from, state.Snapshot}, checks.All, r.grace, progress)
	if err != nil {
		return nil, err
	}
	rep := j.report()
	rep.Usage = audit.NewUsage(j.state, j.result)
	return rep, nil
}

// alreadyRead is a source with a snapshot that was already read.
type alreadyRead struct {
	source.Reader
	snapshot *blocks.Snapshot
}

func (a *alreadyRead) Read(context.Context) (*blocks.Snapshot, error) { return a.snapshot, nil }

// viewOptions returns the options for an output of the plan.
func (r *repairCommand) viewOptions(plan *repair.Plan, report *audit.Report) view.Options {
	o := r.env.viewOptions(&r.sources, r.hosts.Arguments(), r.hosts.Portable())
	if o.Report = report; !r.apply {
		o.Next = r.next(plan)
	}
	return o
}

// plan reads the source and builds the plan; see [repairCommand.plans].
func (r *repairCommand) plan(ctx context.Context, from source.Reader, progress *terminal.Progress) (*repair.Plan, *state.State, error) {
	plans, st, err := r.plans(ctx, from, progress)
	if err != nil {
		return nil, nil, err
	}
	return plans[0], st, nil
}

// plans reads the source and builds the plan of the request or, with --after-restore, of each
// stage. On a running cluster it reads the relevant resources a second time, and keeps only steps
// that both readings give. It returns the state that the plans were made from.
func (r *repairCommand) plans(ctx context.Context, from source.Reader, progress *terminal.Progress) ([]*repair.Plan, *state.State, error) {
	snapshot, err := from.Read(ctx)
	if err != nil {
		return nil, nil, err
	}
	opts := r.grace.options()
	progress.Show("planning")
	st := state.New(snapshot, opts)
	if err := cmp.Or(r.checkNames(st), r.checkTargets(st)); err != nil {
		return nil, nil, err
	}
	if r.request.Terminated, err = r.terminatedNodes(st); err != nil {
		return nil, nil, err
	}
	requests := []repair.Request{r.request}
	if r.afterRestore {
		requests = nil
		for s := repair.StopCollector; s <= repair.StartCollector; s++ {
			requests = append(requests, r.request.Stage(s))
		}
	}
	var plans []*repair.Plan
	again := r.afterRestore // manual work, too, relies on one reading
	for _, req := range requests {
		if snapshot.Cluster.Live {
			req.MaxSteps = 0 // --max-steps applies after the second reading
		}
		plan := planner.Build(st, req)
		plans, again = append(plans, plan), again || len(plan.Steps) > 0
	}
	if snapshot.Cluster.Live && again {
		second, err := from.Reread(ctx, snapshot, confirmedBy)
		if err != nil {
			return nil, nil, exit.Unread(fmt.Errorf("reading the cluster a second time, to confirm the plan: %w", err))
		}
		st = state.New(second, opts)
		for i := range plans {
			plans[i] = planner.Confirm(plans[i], st, requests[i])
		}
	}
	for _, plan := range plans {
		plan.Grace.Duration = r.grace.grace
		plan.Seal()
	}
	return plans, st, nil
}

// confirmedBy are the resources that are read a second time before a plan is shown. Kinds are read
// one after the other, so objects that appear or disappear in between look like damage.
var confirmedBy = []blocks.Resource{
	blocks.Blocks, blocks.Affinities, blocks.Handles, blocks.IPAMConfigs, blocks.Pools, blocks.Nodes, blocks.Namespaces, blocks.Pods,
	blocks.WhereaboutsPools, blocks.WhereaboutsReservations, blocks.NodeSlicePools, blocks.NetworkAttachments,
}

// next returns the next steps for the plan.
func (r *repairCommand) next(plan *repair.Plan) []view.NextStep {
	if len(plan.Steps) == 0 {
		return []view.NextStep{{Text: "Nothing was written. The plan has no steps to apply."}}
	}
	n := applyNext(plan, r.program+" repair apply "+phrase.Arg(r.out)+r.sources.ClusterArguments()+r.hosts.Arguments())
	switch {
	case n.Command == "":
		return []view.NextStep{n}
	case r.out == "":
		return []view.NextStep{{Text: "Nothing was written. To apply the plan, save it first:", Command: r.program + " repair " + r.arguments() + " --out plan.json"}}
	}
	if len(r.hosts.Paths) > 0 && slices.ContainsFunc(plan.Steps, func(s repair.Step) bool { return planner.KindOf(s.Kind).AsksHosts }) {
		n.Text = strings.Replace(n.Text, "Nothing was written.",
			"Nothing was written. Host views count for 10 minutes, and applying the plan reads them again: take new ones first.", 1)
	}
	return []view.NextStep{n}
}

// applyNext returns the command that applies a plan, and when to run it. It returns no command if
// the plan cannot be applied.
func applyNext(plan *repair.Plan, command string) view.NextStep {
	if why := plan.Unapplicable(); why != "" {
		return view.NextStep{Text: "Nothing was written. This plan cannot be applied: " + why + "."}
	}
	twice := 0
	for i := range plan.Steps {
		if plan.Steps[i].TwoObservations {
			twice++
		}
	}
	text := "Nothing was written. Apply it with:"
	if twice > 0 && plan.Unobserved() != "" { // without it, those steps would be skipped
		command += " --wait"
	}
	switch {
	case twice > 0 && plan.OfFiles():
		text = fmt.Sprintf("Nothing was written. %d of the %d steps need two observations, and files do not count as one: apply the plan with --wait, where the cluster can be reached:",
			twice, len(plan.Steps))
	case plan.OfFiles():
		text = "Nothing was written. Apply it where the cluster can be reached:"
	case twice > 0 && plan.Unobserved() != "":
		text = fmt.Sprintf("Nothing was written. %d of the %d steps need two observations, and %s: apply it with --wait:",
			twice, len(plan.Steps), plan.Unobserved())
	case twice > 0:
		text = fmt.Sprintf("Nothing was written. %d of the %d steps need a second observation: apply the plan after %s, or with --wait:",
			twice, len(plan.Steps), plan.Due())
	}
	return view.NextStep{Text: text, Command: command}
}

// arguments returns the arguments that make the same plan again.
func (r *repairCommand) arguments() string {
	out := flags.Arguments(r.flags, "after-restore")
	for _, q := range repair.Requests {
		if q.Field != nil {
			out += flags.Arguments(r.flags, q.Flag)
		} else if on := r.request.StrictAffinity; on != nil {
			out += " --" + q.Flag + "=" + strconv.FormatBool(*on)
		}
	}
	out += flags.Arguments(r.flags, "pool", "node", "ip", "block", "max-steps", "grace", "observe-twice", "allow-newer-calico")
	for _, n := range r.request.Terminated {
		out += " --terminated " + phrase.Arg(n)
	}
	out += flags.Arguments(r.flags, "without-host-evidence", "last-blocks", "cordon-full", "evict-singletons")
	return strings.TrimSpace(out + " " + strings.TrimSpace(r.sources.Arguments()+r.hosts.Arguments()))
}
