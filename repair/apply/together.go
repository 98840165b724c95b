package apply

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/repair"
)

// maxTogether limits the steps carried out together: once the first has started, all of them are
// finished.
const maxTogether = 64

// takeAhead returns the outcome of a step that was settled ahead.
func (x *run) takeAhead(s *repair.Step) repair.Outcome {
	o := x.ahead[s.ID]
	delete(x.ahead, s.ID)
	if o.wrote {
		x.wroteStep()
	}
	return o.Outcome
}

// together carries out a step together with the following steps that write the same object. It
// reads the objects once, derives each step from that reading, makes one write for all, and
// verifies it with one reading. Steps that have to wait, that another client interfered with, or
// that an earlier run started are left for their own turn.
func (a *applying) together(ctx context.Context, kind *repair.StepKind, s *repair.Step) {
	steps := a.sharing(kind, s)
	if len(steps) < 2 {
		return
	}
	for {
		if a.look(ctx, a.refsOf(kind, steps)) != nil {
			return // the step itself reports the problem
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
			continue // the reading before the wait is not a second observation
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

// sharing returns the step and the steps directly after it in the plan that share an object with
// it, within the bound on steps. Steps that an earlier run started are left out.
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
		return nil // the step was started earlier, so it continues on its own
	}
	return out
}

// uncounted counts the steps settled ahead that wrote something.
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
	if err := a.journal.Unwritten(); err != nil {
		unwritten(err)
		return
	}
	var sent []*repair.Step
	var answers []error
	for i, s := range steps {
		if errors.Is(errs[i], repair.ErrChanged) { // its turn comes later; until then nothing of it is written
			_ = a.journal.End(repair.Outcome{Step: *s, Status: repair.Skipped, Code: repair.SkipChanged, Reason: errs[i].Error()})
			continue
		}
		sent, answers = append(sent, s), append(answers, errs[i])
	}
	// The write of each object may have used its whole time limit.
	reading, done := inHand(ctx)
	defer done()
	for i, o := range a.verify(reading, kind, sent, before, answers) {
		a.decide(sent[i], o, true)
	}
}
