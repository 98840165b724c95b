package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/planner"
)

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
