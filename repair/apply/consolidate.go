package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/moves"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// restoreTimeout bounds each step that removes a reservation or a cordon.
const restoreTimeout = time.Minute

// restore carries out a step that reverts a temporary change. It runs immediately, even if the run has
// been interrupted or stopped, or is interrupted now.
func (x *run) restore(ctx context.Context, do func(context.Context) repair.Outcome) repair.Outcome {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
	defer cancel()
	x.restores = true
	defer func() { x.restores = false }()
	return do(own)
}

// beyond reports whether the bound on steps excludes a step. A consolidation that has started is
// never cut, and one that the bound would cut is not started.
func (x *run) beyond(s *repair.Step) bool {
	if x.opts.MaxSteps <= 0 || s.Group() != "" && x.began[s.Group()] {
		return false
	}
	return x.wrote+max(x.sizes[s.Group()], 1) > x.opts.MaxSteps
}

// abandoned returns the outcome of a step that is not tried because its consolidation has ended. It
// returns false if the consolidation continues.
func (a *applying) abandoned(s *repair.Step) (repair.Outcome, bool) {
	why, ended := a.ended[s.Group()]
	if !ended {
		return repair.Outcome{}, false
	}
	return repair.Outcome{Status: repair.NotTried, Code: repair.SkipStopped, Reason: "an earlier step was not done: " + why}, true
}

// heed records the outcome of a step. If the step was not done, it ends the step's consolidation.
func (a *applying) heed(o repair.Outcome) {
	g := o.Step.Group()
	if k := planner.KindOf(o.Step.Kind); g == "" || !o.Open() || k == nil || k.Restores {
		return
	}
	if g == remedies.Rehoming && o.Step.Kind == repair.EvictPod && o.Status == repair.Skipped {
		return // the pod stays, but other pods can still move
	}
	if _, ended := a.ended[g]; !ended {
		a.ended[g] = fmt.Sprintf("%s: %s", o.Step.ID, o.Reason)
	}
}

// alone acquires the right to move pods if the plan moves any, and returns the function that
// releases it.
func (x *run) alone(ctx context.Context, steps []repair.Step) (release func(), err error) {
	if x.Workloads == nil || !slices.ContainsFunc(steps, func(s repair.Step) bool { return s.Group() != "" }) {
		return func() {}, nil
	}
	if x.lease, err = x.Workloads.AcquireLease(ctx, x.opts.Say); err != nil {
		return nil, err
	}
	return x.lease.Release, nil
}

// outrun returns the outcome of a pod-moving step if another run may already be moving pods. The
// step then writes and reverts nothing. It returns nil if no other run can.
func (x *run) outrun(ctx context.Context, s *repair.Step) *repair.Outcome {
	if x.lease == nil || s.Group() == "" {
		return nil
	}
	err := x.lease.Check(ctx)
	if err == nil {
		return nil
	}
	x.stop(repair.SkipStopped, fmt.Sprintf("the run stopped: %v", err))
	o := skip(repair.SkipStopped, "nothing was written: %v", err)
	return &o
}

// cordonFilled cordons the nodes that have just run out of free addresses, so that the replacement
// of the pod to evict does not start there. It reports whether there are any.
func (a *applying) cordonFilled(ctx context.Context, evict *repair.Step) bool {
	a.filling = true
	defer func() { a.filling = false }()
	cordoned := false
	for i := range a.plan.Steps {
		s := &a.plan.Steps[i]
		if !s.Conditional() || s.Group() != evict.Group() || a.seen[s.ID] {
			continue
		}
		if now, _ := planner.Derive(a.State, a.request, s.ID); now == nil || now.Conditional() {
			continue
		}
		o := a.each(ctx, s, func(ctx context.Context) repair.Outcome { return a.step(ctx, s) })
		a.filled = append(a.filled, o)
		cordoned = cordoned || o.Status == repair.Done
	}
	return cordoned
}

// untilReady waits until a step may be carried out or must not be, reading only the objects that it
// waits for. Such partial readings give no verdict.
func (a *applying) untilReady(ctx context.Context, kind *repair.StepKind, s *repair.Step) error {
	for before := a.State; ; {
		due, r := kind.Ready(a.turn, s)
		if r.Code != "" || due.IsZero() {
			return nil
		}
		a.opts.Progress(repair.Outcome{Step: *s, Reason: fmt.Sprintf("waiting until %s: %s", phrase.Time(due), r.Why)})
		if err := a.opts.Sleep(ctx, max(due.Sub(a.State.Cluster.TakenAt), time.Second)); err != nil {
			return err
		}
		if err := a.lookAtAwaited(ctx, before, s); err != nil {
			return err
		}
	}
}

// lookAtAwaited reads again the objects that show a replacement's progress. If these are unknown,
// it reads everything.
func (a *applying) lookAtAwaited(ctx context.Context, before *state.State, s *repair.Step) error {
	if _, found := moves.Awaited(before, a.State, s); !found {
		return a.reread(ctx)
	}
	return a.refreshAll(ctx, func() []blocks.Ref {
		refs, _ := moves.Awaited(before, a.State, s)
		return refs
	})
}

// evictRetries are the pauses between eviction attempts for a pod whose budget refuses: the
// budget's count follows the pods with a delay.
var evictRetries = []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 15 * time.Second, 30 * time.Second}

// await waits until the effects of a step are complete, first by reading the objects that it
// depends on, then once by reading everything. If they do not complete, the run ends: the next step
// would fail in the same way.
func (a *applying) await(ctx context.Context, kind *repair.StepKind, s *repair.Step, before *state.State) repair.Outcome {
	failed := func(format string, args ...any) repair.Outcome {
		o := repair.Outcome{Status: repair.Failed, Reason: fmt.Sprintf(format, args...)}
		a.stop(repair.SkipStopped, fmt.Sprintf("the run stopped after %s: %s", s.ID, o.Reason))
		return o
	}
	a.turn.Left(s) // the time so far counts, too
	for all := false; ; {
		look := func() error { return a.lookAtAwaited(ctx, before, s) }
		if all {
			look = func() error { return a.reread(ctx) }
		}
		if err := look(); err != nil {
			if ctx.Err() != nil {
				return failed("the pod was evicted, and the run interrupted before its replacement was ready")
			}
			return failed("the pod was evicted, and it is not known whether its replacement is ready: %v", err)
		}
		done, waits, err := kind.Settled(before, a.State, s)
		switch {
		case err != nil:
			return failed("the pod was evicted, and %v", err)
		case done && all:
			return repair.Outcome{Status: repair.Done}
		case done:
			all = true
			continue
		}
		all = false
		left := a.turn.Left(s)
		if left <= 0 {
			if w := moves.PodOf(a.State, s); w != nil && !w.Deleting.IsZero() {
				waits += fmt.Sprintf(" (its own grace period lasts until %s)", w.Deleting)
			}
			return failed("the pod was evicted, and %s, after %s (--evict-timeout)", waits, a.opts.EvictTimeout)
		}
		a.opts.Progress(repair.Outcome{Step: *s, Reason: waits})
		if a.opts.Sleep(ctx, min(moves.EvictPoll, left)) != nil {
			return failed("the pod was evicted, and the run interrupted before its replacement was ready: %s", waits)
		}
	}
}

// acted returns the outcome of a change to a pod or a node. It returns false if the change has to
// be verified like any other.
func (a *applying) acted(ctx context.Context, kind *repair.StepKind, s *repair.Step, before *state.State, err error) (repair.Outcome, bool) {
	var refused *repair.RefusedEvictionError
	switch {
	case errors.As(err, &refused):
		return skip(repair.SkipRefused, "%v", err), true
	case kind.Settled != nil && err == nil:
		return a.await(ctx, kind, s, before), true
	}
	return repair.Outcome{}, false
}
