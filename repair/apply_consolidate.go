package repair

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
)

// DefaultEvictTimeout is how long a pod gets to end and to be replaced.
const DefaultEvictTimeout = 5 * time.Minute

// evictPoll is how often the cluster is read while a replacement is waited for.
const evictPoll = 2 * time.Second

// restoreTimeout bounds what is done to take back reservation and cordons when a run was
// interrupted, or cannot go on.
const restoreTimeout = time.Minute

// restoring returns the context in which what was made for a while is taken back: one of
// its own where the run has been interrupted or stopped.
func (x *run) restoring(ctx context.Context) context.Context {
	if ctx.Err() == nil && x.stopped == nil {
		return ctx
	}
	if x.lastly == nil {
		x.lastly, x.endLastly = context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
	}
	return x.lastly
}

// abandoned is the outcome of a step whose consolidation has ended before it; false if it
// has not.
func (a *applying) abandoned(s *Step) (Outcome, bool) {
	why, ended := a.ended[s.group()]
	if !ended || s.group() == "" {
		return Outcome{}, false
	}
	return Outcome{Status: NotTried, Code: SkipStopped, Reason: "what comes before it was not done: " + why}, true
}

// heed records the end of a step: the rest of its consolidation is not tried unless
// it was done.
func (a *applying) heed(o Outcome) {
	g := o.Step.group()
	if k := kindOf(o.Step.Kind); g == "" || !o.Open() || k == nil || k.restores {
		return
	}
	if _, ended := a.ended[g]; !ended {
		a.ended[g] = fmt.Sprintf("%s: %s", o.Step.ID, o.Reason)
	}
}

// await waits until what a step has set off has come to its end. It reads everything each
// time, and ends the run where it does not come to that: the next step would do the same.
func (a *applying) await(ctx context.Context, kind *stepKind, s *Step, before *state.State) Outcome {
	failed := func(format string, args ...any) Outcome {
		o := Outcome{Status: Failed, Reason: fmt.Sprintf(format, args...)}
		a.stop(SkipStopped, fmt.Sprintf("the run stopped after %s: %s", s.ID, o.Reason))
		return o
	}
	limit := a.opts.EvictTimeout
	if limit <= 0 {
		limit = DefaultEvictTimeout
	}
	deadline := a.state.Cluster.TakenAt.Add(limit)
	for {
		if err := a.reread(ctx); err != nil {
			if ctx.Err() != nil {
				return failed("the pod was evicted, and the run interrupted before its replacement was ready")
			}
			return failed("the pod was evicted, and it is not known whether its replacement is ready: %v", err)
		}
		done, waits, err := kind.settled(before, a.state, s)
		switch {
		case err != nil:
			return failed("the pod was evicted, and %v", err)
		case done:
			return Outcome{Status: Done}
		}
		if w := podOf(a.state, s); w != nil && w.Deleting.Add(limit).After(deadline) {
			deadline = w.Deleting.Add(limit) // it has that much time to end by itself
		}
		if a.state.Cluster.TakenAt.After(deadline) {
			return failed("the pod was evicted, and %s, after %s", waits, limit)
		}
		a.opts.Progress(Outcome{Step: *s, Reason: waits})
		if a.opts.Sleep(ctx, evictPoll) != nil {
			return failed("the pod was evicted, and the run interrupted before its replacement was ready: %s", waits)
		}
	}
}

// acted is what became of a change to a pod or a node; false if it is to be verified as
// any other.
func (a *applying) acted(ctx context.Context, kind *stepKind, s *Step, before *state.State, err error) (Outcome, bool) {
	var refused *RefusedEvictionError
	switch {
	case errors.As(err, &refused):
		return skip(SkipRefused, "%v", err), true
	case kind.settled != nil && err == nil:
		return a.await(ctx, kind, s, before), true
	}
	return Outcome{}, false
}
