package repair

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// applying carries out the steps of one plan.
type applying struct {
	*run
	plan    *Plan
	request Request
	seen    map[string]bool
	// derived is when this run derived a step first, for plans that are no observation.
	derived map[string]time.Time
	// ended are the consolidations of which a step was not done, with what it was.
	ended map[string]string
	// waits is since when the eviction of a step waits for other pods to be ready.
	waits map[string]time.Time
}

// maxDerivations is how often a step is derived again because somebody wrote one of
// its objects at the last moment.
const maxDerivations = 3

func (a *applying) step(ctx context.Context, s *Step) Outcome {
	if a.seen[s.ID] {
		return skip(SkipDuplicate, "the plan has this step twice")
	}
	a.seen[s.ID] = true
	kind := kindOf(s.Kind)
	if kind == nil {
		return skip(SkipUnknown, "this version knows no steps of kind %q", s.Kind)
	}
	if o, abandoned := a.abandoned(s); abandoned && !kind.restores {
		return o
	}
	if a.file != nil {
		if o, settled := a.resume(ctx, s); settled {
			return o
		}
	}
	for try := 0; ; try++ {
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
			continue // what was seen before the wait is no second observation
		}
		if kind.ready != nil {
			due, r := kind.ready(a, derived)
			switch {
			case r.code != "":
				return skip(SkipCode(r.code), "%s", r.why)
			case !due.IsZero():
				a.opts.Progress(Outcome{Step: *s, Reason: fmt.Sprintf("waiting until %s: %s", phrase.Time(due), r.why)})
				if err := a.sleepUntil(ctx, due); err != nil {
					return a.unread(ctx, err)
				}
				continue
			}
		}
		o, err := a.write(ctx, kind, derived)
		if !errors.Is(err, ErrChanged) || try+1 >= maxDerivations {
			return o
		}
	}
}

func skip(code SkipCode, format string, args ...any) Outcome {
	return Outcome{Status: Skipped, Code: code, Reason: fmt.Sprintf(format, args...)}
}

// observe reads the objects of a step again and derives it from them. It returns
// the step as it is now, or nil and the outcome.
func (a *applying) observe(ctx context.Context, kind *stepKind, s *Step) (*Step, Outcome) {
	switch err := kind.reading(a.run, s)(ctx, func() []blocks.Ref { return kind.refsOf(a.state, s) }); {
	case errors.Is(err, errRestless):
		return nil, skip(SkipChanged, "%v", err)
	case err != nil:
		return nil, a.unread(ctx, err)
	}
	derived, refusal := Derive(a.state, a.request, s.ID)
	if derived == nil {
		return nil, a.notDerived(kind, s, refusal)
	}
	if derived.Kind != s.Kind || !sameTarget(derived.Target, s.Target) {
		return nil, skip(SkipUnknown, "the plan's step and its ID contradict each other: %s is about %s", s.ID, derived.Target.ResourceName())
	}
	if o := changed(kind, a.state, s, derived); o != nil {
		return nil, *o
	}
	if ctx.Err() != nil {
		return nil, interrupted()
	}
	return derived, Outcome{}
}

// sameTarget compares what steps are about, as far as the plan says it. The node
// of an address may change without another address being meant.
func sameTarget(now, planned state.Subject) bool {
	return now.Kind == planned.Kind && now.CIDR == planned.CIDR && now.IP == planned.IP && now.Name == planned.Name &&
		(now.Node == planned.Node || now.Kind == state.KindIP)
}

func (a *applying) notDerived(kind *stepKind, s *Step, refusal *Refusal) Outcome {
	wrong := kind.verify(a.state, s)
	if wrong == nil {
		o := Outcome{Status: Already, Reason: "it is so already"}
		if refusal != nil {
			o.Reason = "what the plan is about is gone; what stands in its place is left alone: " + refusal.Reason
		}
		return o
	}
	var behind *LeftBehindError
	switch {
	case refusal != nil:
		return skip(SkipCode(refusal.Code), "%s", refusal.Reason)
	case errors.As(wrong, &behind):
		o := skip(SkipNotDerived, "what the step is about is done already, but %v: make a new plan for it", wrong)
		if gone(a.state, s.Target) {
			o.Code = SkipGone
		}
		return o
	case gone(a.state, s.Target):
		return skip(SkipGone, "%s does not exist any more", s.Target.ResourceName())
	}
	return skip(SkipNotDerived, "what the cluster holds now gives no reason for this step")
}

// changed compares the guards; nil if they hold.
func changed(kind *stepKind, st *state.State, planned, now *Step) *Outcome {
	for _, name := range kind.exact {
		was, is := planned.Guard(name), now.Guard(name)
		if was == is {
			continue
		}
		o := skip(SkipChanged, "its %s was %s in the plan and is %s now", name, orNotThere(was), orNotThere(is))
		return &o
	}
	for _, name := range slices.Sorted(maps.Keys(kind.loose)) {
		if !kind.loose[name](st, planned, now) {
			o := skip(SkipChanged, "its %s was %s in the plan, which does not hold any more", name, orNotThere(planned.Guard(name)))
			return &o
		}
	}
	return nil
}

func orNotThere(s string) string {
	if s == "" {
		return "not there"
	}
	return s
}

// second tells when the second observation of a step is due, if that is later
// than now, and the outcome for those who do not wait.
func (a *applying) second(planned, now *Step) (Outcome, *time.Time) {
	if !now.TwoObservations && !planned.TwoObservations {
		return Outcome{}, nil
	}
	apart := max(a.grace, now.Apart.Duration)
	due := a.firstSeen(planned.ID).Add(apart)
	if !a.state.Cluster.TakenAt.Before(due) {
		return Outcome{}, nil
	}
	if why := a.plan.Unobserved(); why != "" {
		return skip(SkipTooSoon, "it must be seen twice, %s apart, and %s: apply it with --wait, by which it would be due at %s, or make a new plan of the cluster", apart, why, phrase.Time(due)), &due
	}
	return skip(SkipTooSoon, "it must be seen twice, %s apart: apply the plan again after %s", apart, phrase.Time(due)), &due
}

// firstSeen is when the plan's steps were observed first. The time of a plan made
// of files is the newest that the files name, or what somebody said, and may lie
// hours before they were read, and that of a plan that was edited may be anything:
// of such plans each step counts from when this run derived it first.
func (a *applying) firstSeen(id string) time.Time {
	if a.plan.Unobserved() == "" {
		return a.plan.CreatedAt.Time
	}
	if _, seen := a.derived[id]; !seen {
		a.derived[id] = a.state.Cluster.TakenAt
	}
	return a.derived[id]
}

// observeAll derives each step of a plan that is no observation from the run's first
// reading, which so becomes the first of two.
func (a *applying) observeAll() {
	if a.plan.Unobserved() == "" {
		return
	}
	for i := range a.plan.Steps {
		s := &a.plan.Steps[i]
		kind := kindOf(s.Kind)
		if derived, _ := Derive(a.state, a.request, s.ID); derived != nil && kind != nil && changed(kind, a.state, s, derived) == nil {
			a.derived[s.ID] = a.first
		}
	}
}

// write carries out a step that was derived just now, and verifies it by reading.
// It finishes what it has begun, whatever becomes of the context.
func (a *applying) write(ctx context.Context, kind *stepKind, s *Step) (Outcome, error) {
	if err := a.journal.Start(s.ID); err != nil {
		a.stop(SkipJournal, err.Error())
		return skip(SkipJournal, "nothing was written: %v", err), nil
	}
	hand, cancel := inHand(ctx)
	defer cancel()
	before := a.state
	a.began[s.group()] = true
	err := a.carryOut(hand, kind, before, s)
	if broken := a.journal.Err(); broken != nil && err != nil && a.journal.untouched() {
		a.stop(SkipJournal, broken.Error())
		return skip(SkipJournal, "nothing was written: %v", broken), nil
	}
	if errors.Is(err, ErrChanged) {
		return skip(SkipChanged, "%v", err), err
	}
	if o, settled := a.acted(ctx, kind, s, before, err); settled {
		if o.Status != Skipped {
			a.wroteStep(ctx)
		}
		return o, nil
	}
	defer a.wroteStep(ctx)
	return a.verify(hand, kind, s, before, err), nil
}

func (a *applying) carryOut(ctx context.Context, kind *stepKind, st *state.State, s *Step) error {
	if kind.act == nil {
		return kind.do(ctx, a.writer, st, s)
	}
	if a.opts.Workloads == nil {
		return errors.New("nothing was written: this run cannot change pods and nodes")
	}
	return kind.act(ctx, a.opts.Workloads, st, s)
}

// verify reads the objects of a step after it was written, and says what became of
// it: it is done if its whole outcome was read, whatever became of the writer's
// answer, and not if anything of it is left, whatever else is right.
func (a *applying) verify(ctx context.Context, kind *stepKind, s *Step, before *state.State, written error) Outcome {
	if err := a.journal.Err(); err != nil {
		a.stop(SkipJournal, err.Error())
	}
	remark, wrong, err := a.outcome(ctx, kind, s, before)
	if err != nil {
		a.stop(SkipUnread, fmt.Sprintf("the run stopped because the API server could not be read: %v", err))
		if written != nil {
			err = written
		}
		return Outcome{Status: Failed, Reason: fmt.Sprintf("it is not known whether it was carried out: %v", err)}
	}
	var behind *LeftBehindError
	switch {
	case errors.As(written, &behind):
		return Outcome{Status: Failed, Reason: written.Error()}
	case wrong == nil && written == nil:
		return Outcome{Status: Done, Reason: remark}
	case wrong == nil:
		return Outcome{Status: Done, Reason: fmt.Sprintf("reading again shows it done, though the answer was lost (%v)", written)}
	case errors.As(wrong, &behind) && written != nil:
		return Outcome{Status: Failed, Reason: fmt.Sprintf("%v; and %v", written, wrong)}
	case errors.As(wrong, &behind):
		return Outcome{Status: Failed, Reason: fmt.Sprintf("it was written, and not to the end: %v", wrong)}
	case written != nil:
		return Outcome{Status: Failed, Reason: written.Error()}
	}
	return Outcome{Status: Failed, Reason: fmt.Sprintf("it was written, but reading again does not show it: %v", wrong)}
}

// propagationDelay is how long the objects of a step get until they agree: whoever writes them
// at the same moment writes one after the other, too.
const propagationDelay = time.Second

// outcome reads the objects of a step until they show its outcome or, a moment later,
// still do not. wrong is what is not as it should be, err that they cannot be read.
func (a *applying) outcome(ctx context.Context, kind *stepKind, s *Step, before *state.State) (remark string, wrong, err error) {
	var behind *LeftBehindError
	for try := 0; ; try++ {
		if err := a.refreshAll(ctx, func() []blocks.Ref { return kind.refsOf(a.state, s) }); err != nil {
			return "", nil, err
		}
		if remark, wrong = evaluateOutcome(kind, before, a.state, s); !errors.As(wrong, &behind) || try > 0 {
			return remark, wrong, nil
		}
		if err := a.opts.Sleep(ctx, propagationDelay); err != nil {
			return "", nil, err
		}
	}
}

// evaluateOutcome is what a state shows of a step that was derived from an earlier one:
// nil, with a remark perhaps, if it is done.
func evaluateOutcome(kind *stepKind, before, now *state.State, s *Step) (remark string, wrong error) {
	wrong = kind.verify(now, s)
	var behind *LeftBehindError
	if errors.As(wrong, &behind) && kind.asBefore != nil && kind.asBefore(before, now, s) {
		return fmt.Sprintf("%v, as it was before: see --leaked-handles and --soft-deleted", wrong), nil
	}
	return "", wrong
}
