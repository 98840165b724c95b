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
