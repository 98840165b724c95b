package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/planner"
)

type applying struct {
	*run
	plan    *repair.Plan
	request repair.Request
	seen    map[string]bool
	// derived is when this run first derived a step, for plans that do not count as an observation.
	derived map[string]time.Time
	// ended holds the consolidations with a step that was not done, and that step's reason.
	ended map[string]string
	turn  *repair.Turn
	// filled holds the outcomes of cordons that became due before the current step. filling is true
	// while such a cordon is carried out.
	filled  []repair.Outcome
	filling bool
}

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

func skip(code repair.SkipCode, format string, args ...any) repair.Outcome {
	return repair.Outcome{Status: repair.Skipped, Code: code, Reason: fmt.Sprintf(format, args...)}
}

// observe reads the objects of a step again and derives the step from them. It returns the step as
// derived now, or nil and the outcome.
func (a *applying) observe(ctx context.Context, kind *repair.StepKind, s *repair.Step) (*repair.Step, repair.Outcome) {
	switch err := a.reading(kind, s)(ctx, func() []blocks.Ref { return kind.Refs(a.State, s) }); {
	case errors.Is(err, errRestless):
		return nil, skip(repair.SkipChanged, "%v", err)
	case err != nil:
		return nil, a.unread(ctx, err)
	}
	return a.derive(ctx, kind, s)
}

// derive is observe without reading.
func (a *applying) derive(ctx context.Context, kind *repair.StepKind, s *repair.Step) (*repair.Step, repair.Outcome) {
	derived, refusal := planner.Derive(a.State, a.request, s.ID)
	if derived == nil || kind.Restores && !planner.Stands(s, a.State) { // or the object was never created
		return nil, a.notDerived(kind, s, refusal)
	}
	if !derived.SameTarget(s) {
		return nil, skip(repair.SkipUnknown, "the plan's step and its ID contradict each other: %s is about %s", s.ID, derived.Target.ResourceName())
	}
	if why := kind.Changed(a.State, s, derived); why != "" {
		return nil, skip(repair.SkipChanged, "%s", why)
	}
	if ctx.Err() != nil {
		return nil, interrupted()
	}
	return derived, repair.Outcome{}
}

func (a *applying) notDerived(kind *repair.StepKind, s *repair.Step, refusal *repair.Refusal) repair.Outcome {
	wrong := kind.Verify(a.State, s)
	if wrong == nil {
		o := repair.Outcome{Status: repair.Already, Reason: "nothing is left to do"}
		if refusal != nil {
			o.Reason = "the object of the plan is gone; the object in its place is not changed: " + refusal.Reason
		}
		return o
	}
	var behind *repair.LeftBehindError
	switch {
	case refusal != nil:
		return skip(repair.SkipCode(refusal.Code), "%s", refusal.Reason)
	case errors.As(wrong, &behind):
		o := skip(repair.SkipNotDerived, "the step's change is already there, but %v: make a new plan for it", wrong)
		if s.TargetMissing(a.State) {
			o.Code = repair.SkipDeleted
		}
		return o
	case s.TargetMissing(a.State):
		return skip(repair.SkipDeleted, "%s does not exist any more", s.Target.ResourceName())
	}
	return skip(repair.SkipNotDerived, "the cluster no longer needs this step")
}

// second returns when the second observation of a step is due, if that is in the future, and the
// outcome if the run does not wait.
func (a *applying) second(planned, now *repair.Step) (repair.Outcome, *time.Time) {
	if !now.TwoObservations && !planned.TwoObservations {
		return repair.Outcome{}, nil
	}
	apart := max(a.grace, now.Apart.Duration)
	due := a.firstSeen(planned.ID).Add(apart)
	if !a.State.Cluster.TakenAt.Before(due) {
		return repair.Outcome{}, nil
	}
	if why := a.plan.Unobserved(); why != "" {
		return skip(repair.SkipTooSoon, "it needs two observations, %s apart, and %s: apply it with --wait (due at %s), or make a new plan from the cluster", apart, why, phrase.Time(due)), &due
	}
	return skip(repair.SkipTooSoon, "it needs two observations, %s apart: apply the plan again after %s", apart, phrase.Time(due)), &due
}

// firstSeen is when the plan's step was first observed. The time of a plan made from files is the
// newest time in the files, or one that the user gave; it may be hours before the files were read.
// The time of an edited plan may be anything. For such plans, a step counts from when this run
// first derived it.
func (a *applying) firstSeen(id string) time.Time {
	if a.plan.Unobserved() == "" {
		return a.plan.CreatedAt.Time
	}
	if _, seen := a.derived[id]; !seen {
		a.derived[id] = a.State.Cluster.TakenAt
	}
	return a.derived[id]
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

// write carries out a step that was just derived, and verifies it by reading. It finishes what it
// has started, even if the context ends.
func (a *applying) write(ctx context.Context, kind *repair.StepKind, s *repair.Step) (repair.Outcome, error) {
	hand, cancel := inHand(ctx)
	defer cancel()
	if o := a.outrun(hand, s); o != nil {
		return *o, nil
	}
	if err := a.journal.Start(s.ID); err != nil {
		a.stop(repair.SkipJournal, err.Error())
		return skip(repair.SkipJournal, "nothing was written: %v", err), nil
	}
	before := a.State
	a.began[s.Group()] = true
	err := kind.CarryOut(hand, a.Site, s)
	if broken := a.journal.Unwritten(); broken != nil {
		a.stop(repair.SkipJournal, broken.Error())
		return skip(repair.SkipJournal, "nothing was written: %v", broken), nil
	}
	if errors.Is(err, repair.ErrChanged) {
		return skip(repair.SkipChanged, "%v", err), err
	}
	if o, settled := a.acted(ctx, kind, s, before, err); settled {
		if o.Status != repair.Skipped {
			a.wroteStep()
		}
		return o, err
	}
	defer a.wroteStep()
	return a.verify(hand, kind, []*repair.Step{s}, before, []error{err})[0], nil
}

// verify reads the objects of written steps until they show the outcome, or for a moment longer,
// and returns each step's outcome. A step is done if its complete result was read, even if the
// writer returned an error. It is not done if any part of its protocol is left over.
func (a *applying) verify(ctx context.Context, kind *repair.StepKind, steps []*repair.Step, before *state.State, written []error) []repair.Outcome {
	if err := a.journal.Err(); err != nil {
		a.stop(repair.SkipJournal, err.Error())
	}
	out := make([]repair.Outcome, len(steps))
	for try := 0; ; try++ {
		err := a.refreshAll(ctx, a.refsOf(kind, steps))
		if err != nil {
			a.stop(repair.SkipUnread, fmt.Sprintf("the run stopped because the API server could not be read: %v", err))
		}
		left := false
		for i, s := range steps {
			var behind *repair.LeftBehindError
			switch remark, wrong := kind.VerifySince(before, a.State, s); {
			case err == nil:
				out[i], left = became(remark, wrong, written[i]), left || errors.As(wrong, &behind)
			case try == 0:
				out[i] = repair.Outcome{Status: repair.Failed, Reason: fmt.Sprintf("it is not known whether it was written: %v", cmp.Or(written[i], err))}
			}
		}
		if err != nil || !left || try > 0 || a.opts.Sleep(ctx, propagationDelay) != nil {
			return out
		}
	}
}

// refsOf returns the objects that steps depend on, according to the last reading.
func (a *applying) refsOf(kind *repair.StepKind, steps []*repair.Step) func() []blocks.Ref {
	return func() (out []blocks.Ref) {
		for _, s := range steps {
			out = append(out, kind.Refs(a.State, s)...)
		}
		return out
	}
}

// became returns the outcome of a step from the reading after it and from the writer's result.
func became(remark string, wrong, written error) repair.Outcome {
	var behind *repair.LeftBehindError
	var kept *repair.KeptCordonError
	switch {
	case errors.As(written, &behind):
		return repair.Outcome{Status: repair.Failed, Reason: written.Error()}
	case wrong == nil && errors.As(written, &kept):
		return repair.Outcome{Status: repair.Done, Reason: kept.Error()}
	case wrong == nil && written == nil:
		return repair.Outcome{Status: repair.Done, Reason: remark}
	case wrong == nil:
		return repair.Outcome{Status: repair.Done, Reason: fmt.Sprintf("the answer was lost (%v), but a second read shows that it is done", written)}
	case errors.As(wrong, &behind) && written != nil:
		return repair.Outcome{Status: repair.Failed, Reason: fmt.Sprintf("%v; and %v", written, wrong)}
	case errors.As(wrong, &behind):
		return repair.Outcome{Status: repair.Failed, Reason: fmt.Sprintf("it was written only in part: %v", wrong)}
	case written != nil:
		return repair.Outcome{Status: repair.Failed, Reason: written.Error()}
	}
	return repair.Outcome{Status: repair.Failed, Reason: fmt.Sprintf("it was written, but reading again does not show it: %v", wrong)}
}

// propagationDelay is how long the objects of a step may take to agree. Another client that changes
// them at the same moment also writes one object after the other.
const propagationDelay = time.Second
