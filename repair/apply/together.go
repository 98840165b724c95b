package apply

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/repair"
)

// maxTogether is how many steps are carried out together at most: all of them are
// finished once the first was begun.
const maxTogether = 64

// settled is what became of a step before its turn.
type settled struct {
	repair.Outcome
	wrote bool
}

// takeAhead returns what became of a step that was settled ahead.
func (x *run) takeAhead(s *repair.Step) repair.Outcome {
	o := x.ahead[s.ID]
	delete(x.ahead, s.ID)
	if o.wrote {
		x.wroteStep()
	}
	return o.Outcome
}

// together carries a step out with those after it that write the same object: what they
// rest on is read once, each is derived from that, one write is made for all, and one
// reading shows what became of it. What cannot be settled so is left to each step's turn:
// what has to wait, what somebody else wrote meanwhile, and what an earlier run began.
func (a *applying) together(ctx context.Context, kind *repair.StepKind, s *repair.Step) {
	steps := a.sharing(kind, s)
	if len(steps) < 2 {
		return
	}
	for {
		if a.look(ctx, a.refsOf(kind, steps)) != nil {
			return // the step by itself says what is the matter
		}
		var ready []*repair.Step
		var wait time.Time
		outcomes := map[*repair.Step]repair.Outcome{}
		for _, s := range steps {
			derived, o := a.derive(ctx, kind, s)
			if derived == nil {
				outcomes[s] = o
				continue
			}
			switch o, due := a.second(s, derived); {
			case due == nil:
				ready = append(ready, derived)
			case !a.opts.Wait:
				outcomes[s] = o
			case due.After(wait):
				wait = *due
			}
		}
		if !wait.IsZero() && a.waitUntil(ctx, wait) == nil {
			continue // what was seen before the wait is no second observation
		}
		if !wait.IsZero() || ctx.Err() != nil {
			return
		}
		for s, o := range outcomes {
			a.decide(s, o, false)
		}
		if len(ready) > 0 {
			a.writeTogether(ctx, kind, ready)
		}
		return
	}
}

// sharing returns the step and those right after it of the plan that share an object with
// it, as far as the bound on steps goes; but for those that an earlier run has begun.
func (a *applying) sharing(kind *repair.StepKind, s *repair.Step) (out []*repair.Step) {
	if kind.Shares == nil {
		return nil
	}
	most, object := maxTogether, kind.Shares(s)
	if a.opts.MaxSteps > 0 {
		most = min(most, a.opts.MaxSteps-a.wrote-a.uncounted())
	}
	from := slices.IndexFunc(a.plan.Steps, func(x repair.Step) bool { return x.ID == s.ID })
	for i := from; object != "" && i < len(a.plan.Steps) && len(out) < most; i++ {
		x := &a.plan.Steps[i]
		if x.Kind != s.Kind || kind.Shares(x) != object {
			break
		}
		again := x.ID != s.ID && a.seen[x.ID] || slices.ContainsFunc(out, func(o *repair.Step) bool { return o.ID == x.ID })
		if !again && (a.file == nil || a.file.Log(x.ID).Ended == "" && len(a.file.Log(x.ID).Changes) == 0) {
			out = append(out, x)
		}
	}
	if len(out) > 0 && out[0].ID != s.ID {
		return nil // it was begun, and is gone on with by itself
	}
	return out
}

// uncounted is how many of the steps that were settled ahead wrote something.
func (a *applying) uncounted() (n int) {
	for _, o := range a.ahead {
		if o.wrote {
			n++
		}
	}
	return n
}

func (a *applying) decide(s *repair.Step, o repair.Outcome, wrote bool) {
	a.seen[s.ID], a.ahead[s.ID] = true, &settled{o, wrote}
}

// writeTogether is write for steps that share an object.
func (a *applying) writeTogether(ctx context.Context, kind *repair.StepKind, steps []*repair.Step) {
	unwritten := func(err error) {
		a.stop(repair.SkipJournal, err.Error())
		for _, s := range steps {
			a.decide(s, skip(repair.SkipJournal, "nothing was written: %v", err), false)
		}
	}
	for _, s := range steps {
		if err := a.journal.Start(s.ID); err != nil {
			unwritten(err)
			return
		}
	}
	hand, cancel := inHand(ctx)
	defer cancel()
	before := a.State
	errs := kind.Together(hand, a.Writer, a.State, steps)
	if err := a.journal.Err(); err != nil && a.journal.Untouched() {
		unwritten(err)
		return
	}
	var sent []*repair.Step
	var answers []error
	for i, s := range steps {
		if errors.Is(errs[i], repair.ErrChanged) { // its turn comes; until then nothing of it is written
			_ = a.journal.End(repair.Outcome{Step: *s, Status: repair.Skipped, Code: repair.SkipChanged, Reason: errs[i].Error()})
			continue
		}
		sent, answers = append(sent, s), append(answers, errs[i])
	}
	// Writing may have taken as long as its own bounds allow, one object after the other.
	reading, done := inHand(ctx)
	defer done()
	for i, o := range a.verify(reading, kind, sent, before, answers) {
		a.decide(sent[i], o, true)
	}
}
