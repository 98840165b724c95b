package apply

import (
	"context"
	"errors"
	"fmt"

	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/journal"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// Finish completes the steps that a journal's run left half-done, and no other step of its plan. j
// must be that journal, opened with [journal.Resume]. See [Run].
func Finish(ctx context.Context, f *journal.File, r repair.Reader, w repair.Writer, j *journal.Journal, opts Options) (*repair.Result, error) {
	if f.Plan == nil {
		return nil, fmt.Errorf("%w: this is the journal of an undo", ErrNoPlan)
	}
	opts.Resume, opts.finish = f, true
	return Run(ctx, f.Plan, r, w, j, opts)
}

// begun is a step in a journal, with the run that continues or undoes it.
type begun struct {
	*run
	*repair.Begun
}

// begunStep returns a step of the journal's plan with its recorded changes.
func (x *run) begunStep(f *journal.File, id string, undo bool) *begun {
	s := f.Step(id)
	if s == nil {
		s = &repair.Step{ID: id}
	}
	return &begun{x, &repair.Begun{Site: x.Site, Log: f.Log(id), Step: s, Kind: planner.KindOf(s.Kind), Undo: undo, Request: x.asked(f.Plan)}}
}

// asked returns the plan's request with the consents that apply.
func (x *run) asked(plan *repair.Plan) repair.Request {
	request := plan.Request
	if x.opts.Consents != nil {
		request = request.ConsentedBy(x.opts.Consents)
	}
	request.ObserveTwice = request.ObserveTwice || x.State.Cluster.Ageless
	return request
}

// resume handles a step that, according to the journal, an earlier run has completed or started. It
// returns false if the step was never started or wrote nothing, so that it is carried out like any
// other.
func (a *applying) resume(ctx context.Context, s *repair.Step) (repair.Outcome, bool) {
	b := a.begunStep(a.file, s.ID, false)
	done := !b.Log.Unfinished && (b.Log.Ended == repair.Done || b.Log.Ended == repair.Already)
	if !done && len(b.Log.Changes) == 0 {
		return repair.Outcome{}, false
	}
	// A started step was started for the journal's own plan. The present plan may differ from it.
	if !b.Step.SameTarget(s) {
		return skip(repair.SkipUnknown, "the journal's plan lacks this step, or has another step of this ID: apply the plan that the journal was started with"), true
	}
	if err := a.look(ctx, b.Refs); err != nil {
		return a.unread(ctx, err), true
	}
	if o, settled := b.finish(ctx); settled {
		return o, true
	}
	if b.Kind.Verify(a.State, b.Step) == nil {
		return repair.Outcome{Status: repair.Already, Reason: "the interrupted run did it"}, true
	}
	return repair.Outcome{}, false
}

// maxCompletions is the maximum number of writes that a half-done step needs.
const maxCompletions = 4

// finish completes the step, one write at a time. It returns false if the step has to be carried
// out like any other.
func (b *begun) finish(ctx context.Context) (repair.Outcome, bool) {
	wrote := false
	for range maxCompletions {
		m := b.Completion()
		if m.Do == nil && m.Status != "" {
			if wrote {
				b.wroteStep()
			}
			return m.Outcome(), true
		}
		if m.Do == nil {
			if !wrote {
				return repair.Outcome{}, false
			}
			break
		}
		stopped, unread, err := b.send(ctx, m)
		switch {
		case stopped != nil:
			return *stopped, true
		case err != nil && !errors.Is(err, repair.ErrChanged):
			return repair.Outcome{Status: repair.Failed, Reason: fmt.Sprintf("finishing the half-done step (%s): %v", m.What, err)}, true
		case unread != nil:
			return b.unread(ctx, unread), true
		}
		wrote = wrote || err == nil
		if m.Back && err == nil {
			b.wroteStep()
			return skip(repair.SkipChanged, "the block is in use by its host: the affinity, which was left in pendingDeletion, has its former state again"), true
		}
	}
	if wrote {
		b.wroteStep()
	}
	if wrong := b.Kind.Verify(b.run.State, b.Step); wrong != nil {
		return repair.Outcome{Status: repair.Failed, Reason: fmt.Sprintf("it is half-done, and could not be finished: %v", wrong)}, true
	}
	return repair.Outcome{Status: repair.Done, Reason: "finished the step of the interrupted run"}, true
}

// send carries out a write. It records the write in the journal first, completes it even if ctx
// ends, and reads the step's objects again afterwards. If it sent nothing, it returns the outcome
// in stopped.
func (b *begun) send(ctx context.Context, m repair.Move) (stopped *repair.Outcome, unread, err error) {
	if ctx.Err() != nil {
		o := interrupted()
		return &o, nil, nil
	}
	hand, cancel := inHand(ctx)
	defer cancel()
	if o := b.outrun(hand, b.Step); o != nil {
		return o, nil, nil
	}
	if err := b.journal.Start(b.Step.ID); err != nil {
		b.stop(repair.SkipJournal, err.Error())
		o := skip(repair.SkipJournal, "nothing was written: %v", err)
		return &o, nil, nil
	}
	err = m.Do(hand)
	return nil, b.refreshAll(hand, b.Refs), err
}
