package apply

import (
	"context"
	"errors"

	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// maxDerivations limits how often a step is derived again because another client wrote one of its
// objects at the last moment.
const maxDerivations = 3

func (a *applying) step(ctx context.Context, s *repair.Step) repair.Outcome {
	if a.seen[s.ID] {
		return skip(repair.SkipDuplicate, "the plan has this step twice")
	}
	a.seen[s.ID] = true
	kind := planner.KindOf(s.Kind)
	if kind == nil {
		return skip(repair.SkipUnknown, "this version does not support steps of kind %q", s.Kind)
	}
	if o, abandoned := a.abandoned(s); abandoned && !kind.Restores {
		return o
	}
	if a.file != nil {
		if o, settled := a.resume(ctx, s); settled {
			return o
		}
	}
	if s.Conditional() && !a.filling {
		return repair.Outcome{Status: repair.Already, Reason: "the node kept free addresses of its own"}
	}
	if a.together(ctx, kind, s); a.ahead[s.ID] != nil {
		return a.takeAhead(s)
	}
	for try, refusals := 0, 0; ; try++ {
		derived, o := a.observe(ctx, kind, s)
		if derived == nil {
			return o
		}
		if o, due := a.second(s, derived); due != nil {
			if !a.opts.Wait {
				return o
			}
			if err := a.waitUntil(ctx, *due); err != nil {
				return a.unread(ctx, err)
			}
			continue // the reading before the wait is not a second observation
		}
		switch due, no := kind.Ready(a.turn, derived); {
		case no.Code == repair.RefusedNowhere && a.cordonFilled(ctx, s):
			try--
			continue
		case no.Code != "":
			return skip(repair.SkipCode(no.Code), "%s", no.Why)
		case !due.IsZero():
			if err := a.untilReady(ctx, kind, derived); err != nil {
				return a.unread(ctx, err)
			}
			continue
		}
		o, err := a.write(ctx, kind, derived)
		var refused *repair.RefusedEvictionError
		if errors.As(err, &refused) && refused.ForNow && refusals < len(evictRetries) && a.turn.Left(s) > 0 {
			a.opts.Progress(repair.Outcome{Step: *s, Reason: err.Error()})
			if a.opts.Sleep(ctx, min(evictRetries[refusals], a.turn.Left(s))) != nil {
				return o
			}
			try, refusals = try-1, refusals+1
			continue
		}
		if !errors.Is(err, repair.ErrChanged) || try+1 >= maxDerivations {
			return o
		}
	}
}

// observeAll derives each step of such a plan from the run's first reading, which then counts as
// the first of two observations.
func (a *applying) observeAll() {
	if a.plan.Unobserved() == "" {
		return
	}
	for i := range a.plan.Steps {
		s := &a.plan.Steps[i]
		kind := planner.KindOf(s.Kind)
		if derived, _ := planner.Derive(a.State, a.request, s.ID); derived != nil && kind != nil && kind.Changed(a.State, s, derived) == "" {
			a.derived[s.ID] = a.first
		}
	}
}
