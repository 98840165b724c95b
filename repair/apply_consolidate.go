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

// restoreTimeout bounds each step that takes a reservation or a cordon back.
const restoreTimeout = time.Minute

// restore carries out a step that takes back what was made for a while: whatever has
// interrupted or stopped the run, or does so now, and at once.
func (x *run) restore(ctx context.Context, do func(context.Context) Outcome) Outcome {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
	defer cancel()
	x.restores = true
	defer func() { x.restores = false }()
	return do(own)
}

// stands reports whether a step takes back what is there by a state.
func (s *Step) stands(st *state.State) bool {
	k := kindOf(s.Kind)
	return k != nil && k.restores && k.verify(st, s) != nil
}

// beyond reports whether the bound on steps leaves a step out. What a consolidation has
// begun is not cut, and none is begun that the bound would cut.
func (x *run) beyond(s *Step) bool {
	if x.opts.MaxSteps <= 0 || s.group() != "" && x.began[s.group()] {
		return false
	}
	return x.wrote+max(x.sizes[s.group()], 1) > x.opts.MaxSteps
}

// evictTimeout is how long a pod gets to end and to be replaced.
func (o *ApplyOptions) evictTimeout() time.Duration {
	if o.EvictTimeout <= 0 {
		return DefaultEvictTimeout
	}
	return o.EvictTimeout
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
	limit := a.opts.evictTimeout()
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
