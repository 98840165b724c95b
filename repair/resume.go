package repair

import (
	"context"
	"errors"
	"fmt"
)

// Finish carries out what a journal's run left half-done, and nothing else of its
// plan. j must be that journal, opened with [ResumeJournal]. See [Apply].
func Finish(ctx context.Context, f *JournalFile, r Reader, w Writer, j *Journal, opts ApplyOptions) (*Result, error) {
	if f.Plan == nil {
		return nil, fmt.Errorf("%w: this is the journal of an undo", ErrNoPlan)
	}
	opts.Resume, opts.finish = f, true
	return Apply(ctx, f.Plan, r, w, j, opts)
}

// resume settles a step that an earlier run has done or begun, as its journal
// tells. It returns false if the step is to be carried out like any other: it was
// never begun, or nothing of it was written.
func (a *applying) resume(ctx context.Context, s *Step) (Outcome, bool) {
	b := a.begunStep(a.file, s.ID, false)
	done := b.log.end != nil && !b.log.unfinished && (b.log.end.Status == Done || b.log.end.Status == Already)
	if !done && len(b.log.changes) == 0 {
		return Outcome{}, false
	}
	// What was begun was begun for the journal's own plan. The one at hand may have
	// been made or edited otherwise since.
	if b.step.Kind != s.Kind || !sameTarget(b.step.Target, s.Target) {
		return skip(SkipUnknown, "the journal's own plan lacks this step, or means something else by it: apply the plan that the journal was begun with"), true
	}
	if err := a.look(ctx, b.refs); err != nil {
		return a.unread(ctx, err), true
	}
	if o, settled := b.finish(ctx); settled {
		return o, true
	}
	if b.kind.verify(a.state, b.step) == nil {
		return Outcome{Status: Already, Reason: "the run that broke off had carried it out"}, true
	}
	return Outcome{}, false
}

// maxCompletions is how many writes a half-done step can need.
const maxCompletions = 4

// finish does what is left of the step, one write at a time. It returns false if it is
// to be carried out like any other.
func (b *begun) finish(ctx context.Context) (Outcome, bool) {
	wrote := false
	for range maxCompletions {
		m := b.next()
		if m.do == nil && m.status != "" {
			if wrote {
				b.wroteStep(ctx)
			}
			return m.outcome(), true
		}
		if m.do == nil {
			if !wrote {
				return Outcome{}, false
			}
			break
		}
		if r := b.closed(); r.code != "" {
			return b.held(SkipCode(r.code), r.why).outcome(), true
		}
		stopped, unread, err := b.send(ctx, m)
		switch {
		case stopped != nil:
			return *stopped, true
		case err != nil && !errors.Is(err, ErrChanged):
			return Outcome{Status: Failed, Reason: fmt.Sprintf("completing what was left half-done (%s): %v", m.what, err)}, true
		case unread != nil:
			return b.unread(ctx, unread), true
		}
		wrote = wrote || err == nil
		if m.back && err == nil {
			b.wroteStep(ctx)
			return skip(SkipChanged, "the block is in use by its host: the affinity, which was left in pendingDeletion, got its state back"), true
		}
	}
	if wrote {
		b.wroteStep(ctx)
	}
	if wrong := b.kind.verify(b.state, b.step); wrong != nil {
		return Outcome{Status: Failed, Reason: fmt.Sprintf("it was left half-done, and could not be completed: %v", wrong)}, true
	}
	return Outcome{Status: Done, Reason: "completed what the run that broke off had begun"}, true
}

// send carries a write out: it is in the journal before, is finished whatever becomes of
// ctx, and the step's objects are read again after it. stopped is the outcome if nothing
// was sent.
func (b *begun) send(ctx context.Context, m move) (stopped *Outcome, unread, err error) {
	if ctx.Err() != nil {
		o := interrupted()
		return &o, nil, nil
	}
	if err := b.journal.Start(b.step.ID); err != nil {
		b.stop(SkipJournal, err.Error())
		o := skip(SkipJournal, "nothing was written: %v", err)
		return &o, nil, nil
	}
	hand, cancel := inHand(ctx)
	defer cancel()
	err = m.do(hand)
	return nil, b.refreshAll(hand, b.refs), err
}
