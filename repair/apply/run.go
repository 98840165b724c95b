package apply

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/journal"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// Run carries out a plan, step by step in the plan's order, and returns the outcome of each step.
// From the plan it takes only the steps and their guards: it derives each step again from the
// present cluster. Every change is first recorded in the journal, which is the writer's
// [repair.Recorder].
//
// An error means that nothing was written and no step was tried: the plan is invalid or for another
// cluster, the cluster cannot be read, or the plan moves pods while another run does
// ([repair.ErrOtherRun]). When the context ends, Run finishes the current object and does not try
// the rest.
func Run(ctx context.Context, plan *repair.Plan, r repair.Reader, w repair.Writer, j *journal.Journal, opts Options) (*repair.Result, error) {
	x := newRun(r, w, j, plan.TrustedGrace(), opts)
	if err := x.begin(ctx, plan); err != nil {
		return nil, err
	}
	release, err := x.alone(ctx, plan.Steps)
	if err != nil {
		return nil, err
	}
	defer release()
	a := &applying{
		run: x, plan: plan, request: x.asked(plan), seen: map[string]bool{}, derived: map[string]time.Time{}, ended: map[string]string{},
		turn: &repair.Turn{Site: x.Site, Plan: plan, Waits: map[string]time.Time{}, EvictTimeout: x.opts.EvictTimeout, Stands: opts.stands},
	}
	for i := range plan.Steps {
		s := &plan.Steps[i]
		k, g := planner.KindOf(s.Kind), s.Group()
		switch {
		case g == "" || k == nil:
		case k.Restores:
			x.began[g] = x.began[g] || planner.Stands(s, x.State)
		case x.sizes[g] == 0 && g != remedies.Rehoming:
			a.request.Chosen = cmp.Or(a.request.Chosen, g)
			fallthrough
		default:
			x.sizes[g]++
		}
	}
	// The plan's filters must not make a step disappear now.
	a.request.Pools, a.request.Nodes, a.request.IPs, a.request.Blocks, a.request.MaxSteps = nil, nil, nil, nil, 0
	a.observeAll()
	res := x.result()
	// Half-done steps come first, because steps that ended before them look wrong until they are
	// finished.
	for _, unfinished := range []bool{true, false} {
		for i := range plan.Steps {
			step := &plan.Steps[i]
			if unfinished != (x.file != nil && x.file.Log(step.ID).Unfinished) || opts.finish && !unfinished {
				continue
			}
			if a.seen[step.ID] && step.Conditional() {
				continue
			}
			o := x.each(ctx, step, func(ctx context.Context) repair.Outcome { return a.step(ctx, step) })
			a.heed(o)
			res.Outcomes, a.filled = append(append(res.Outcomes, a.filled...), o), nil
		}
	}
	if j.Exists() {
		res.Journal = j.Path()
	}
	return res, nil
}

func (x *run) begin(ctx context.Context, plan *repair.Plan) error {
	switch {
	case plan.APIVersion != audit.APIVersion || plan.Kind != repair.PlanKind:
		return fmt.Errorf("%w: it is a %q of %q", ErrNoPlan, plan.Kind, plan.APIVersion)
	case plan.CreatedAt.IsZero():
		return fmt.Errorf("%w: it does not state when it was made, which is the time of the first of two observations", ErrNoPlan)
	case plan.Grace.Duration < 0:
		return fmt.Errorf("%w: its grace is %s", ErrNoPlan, plan.Grace)
	}
	if err := x.open(ctx, plan.Cluster.GUID); err != nil {
		return err
	}
	if own := blocks.DatastoreEtcd; !plan.OfFiles() && (plan.Cluster.Datastore == own) != (x.State.Cluster.Datastore == own) {
		return fmt.Errorf("%w: the plan is for a Calico with its own etcd and the cluster is not, or the reverse: make a new plan", ErrNoPlan)
	}
	now := x.State.Cluster.TakenAt
	if now.IsZero() {
		return fmt.Errorf("%w: the API server's answers have no time", ErrUnread)
	}
	if plan.CreatedAt.After(now.Add(blocks.ClockSkew)) {
		return fmt.Errorf("%w: it was made at %s, and by the API server's clock it is %s now: make a new one",
			ErrNoPlan, plan.CreatedAt.String(), phrase.Time(now))
	}
	return x.inTime(ctx, plan)
}

// inTime returns an error if a stage before the plan's is not done. Only work that two readings
// show counts: kinds are read one after the other, so an object created in between may look like
// damage.
func (x *run) inTime(ctx context.Context, plan *repair.Plan) error {
	first := planner.Blockers(x.State, plan.Request)
	if len(first) == 0 {
		return nil
	}
	if err := x.read(ctx); err != nil {
		return err
	}
	both := slices.DeleteFunc(planner.Blockers(x.State, plan.Request), func(b planner.Blocker) bool {
		return !slices.ContainsFunc(first, func(f planner.Blocker) bool { return f.Stage == b.Stage && f.ID == b.ID })
	})
	if len(both) > 0 {
		return fmt.Errorf("%w: %s", ErrStage, planner.BlockersText(both))
	}
	return nil
}

// open reads the cluster, which must be the expected one and not locked.
func (x *run) open(ctx context.Context, made string) error {
	if err := x.read(ctx); err != nil {
		return err
	}
	if err := x.sameCluster(made); err != nil {
		return err
	}
	x.guid, x.first = made, x.State.Cluster.TakenAt
	if x.State.Info.Locked {
		return fmt.Errorf("%w: \"calicoctl datastore migrate lock\" was run, and IPAM must not change until the datastore is unlocked", ErrLocked)
	}
	return nil
}

// each carries out one step with do, unless the run has ended or the step was settled ahead, and
// records the outcome.
func (x *run) each(ctx context.Context, step *repair.Step, do func(context.Context) repair.Outcome) repair.Outcome {
	var o repair.Outcome
	kind := planner.KindOf(step.Kind)
	switch {
	case kind != nil && kind.Restores && (x.began[step.Group()] || planner.Stands(step, x.State)):
		x.opts.Progress(repair.Outcome{Step: *step})
		o = x.restore(ctx, do)
	case x.ahead[step.ID] != nil:
		x.opts.Progress(repair.Outcome{Step: *step})
		o = x.takeAhead(step)
	case x.stopped != nil:
		o = *x.stopped
	case ctx.Err() != nil:
		o = interrupted()
	case x.beyond(step):
		o = repair.Outcome{Status: repair.NotTried, Code: repair.SkipLimit, Reason: fmt.Sprintf("the limit of %d steps (--max-steps) is reached", x.opts.MaxSteps)}
		if x.wrote < x.opts.MaxSteps {
			o.Reason = fmt.Sprintf("%d steps belong together, and the limit is %d (--max-steps)", x.sizes[step.Group()], x.opts.MaxSteps)
		}
	default:
		x.opts.Progress(repair.Outcome{Step: *step})
		o = do(ctx)
	}
	o.Step, o.At = *step, audit.Time{Time: x.State.Cluster.TakenAt}
	x.count(o)
	if err := x.journal.End(o); err != nil {
		x.stop(repair.SkipJournal, err.Error())
	}
	x.opts.Progress(o)
	x.pace(ctx)
	return o
}
