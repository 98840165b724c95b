package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/calico-audit/calico-audit/cmd/internal/document"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/planner"
)

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
