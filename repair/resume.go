package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
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
//
// What that run had begun it had the right to begin: it judged the objects and
// pinned them. So what it left marked for deletion is deleted, if it is still the
// same object and nothing has been done with it since; and an affinity that it
// left in pendingDeletion, though the block is its host's after all, gets its
// state back.
func (a *applying) resume(ctx context.Context, kind *stepKind, s *Step) (Outcome, bool) {
	before, ended := a.opts.Resume.Outcome(s.ID)
	begun := a.opts.Resume.unfinished(s.ID)
	changes := a.opts.Resume.Changes(s.ID)
	done := ended && !begun && (before.Status == Done || before.Status == Already)
	if !done && len(changes) == 0 {
		return Outcome{}, false
	}
	// What was begun was begun for the journal's own plan. The one at hand may have
	// been made or edited otherwise since.
	own := a.opts.Resume.Step(s.ID)
	if own == nil || own.Kind != s.Kind || !sameTarget(own.Target, s.Target) {
		return skip(SkipUnknown, "the journal's own plan lacks this step, or means something else by it: apply the plan that the journal was begun with"), true
	}
	h := &halfDone{applying: a, step: own, kind: kind, changes: changes, asked: a.opts.Resume.Plan.Request}
	if err := a.look(ctx, h.refs); err != nil {
		return a.unread(ctx, err), true
	}
	if begun {
		if o, settled := h.complete(ctx); settled {
			return o, true
		}
	}
	if kind.verify(a.state, own) == nil {
		return Outcome{Status: Already, Reason: "the run that broke off had carried it out" + h.remark()}, true
	}
	return Outcome{}, false
}

// halfDone is a step that a run broke off in.
type halfDone struct {
	*applying
	step    *Step
	kind    *stepKind
	changes []Change
	asked   Request // of the journal's plan
	stays   string  // why the affinity does not get its state back
	held    string  // why what was left cannot be finished
	undo    bool    // nothing is carried out but what cannot be taken back
}

// refs are the objects of the step, and those that the run wrote.
func (h *halfDone) refs() []blocks.Ref {
	out := slices.Concat(newRefs(h.state).out, h.kind.refs(h.state, h.step))
	for _, c := range h.changes {
		out = append(out, blocks.Ref{Resource: c.Resource, Name: c.Name})
	}
	return out
}

// remark says what of a release is left all the same: the handle's count is lowered
// after the address was freed.
func (h *halfDone) remark() string {
	if h.step.Kind != ReleaseIP {
		return ""
	}
	hd := h.state.Handle(h.step.Guard(GuardHandle))
	if hd == nil {
		return ""
	}
	if wrong, _ := h.state.Miscounts(hd); len(wrong) == 0 && len(h.state.HandleRefs(hd.ID)) > 0 {
		return ""
	}
	return "; its handle counts too many, which \"repair --leaked-handles\" puts right"
}

// maxCompletions is how many writes a half-done step can need.
const maxCompletions = 4

// complete does what is left of the step, one write at a time.
func (h *halfDone) complete(ctx context.Context) (Outcome, bool) {
	wrote := false
	for range maxCompletions {
		next, what := h.next()
		if next == nil {
			if h.held != "" {
				if wrote {
					h.wroteStep(ctx)
				}
				return skip(SkipHalfDone, "it was left half-done, and is not completed now: %s", h.held), true
			}
			if !wrote && h.stays != "" {
				return skip(SkipChanged, "the affinity that was left in pendingDeletion is not put back: %s; %s", h.stays, staysText), true
			}
			if !wrote {
				return Outcome{}, false
			}
			break
		}
		if code, why := closed(h.state, h.asked, h.kind); code != "" {
			return skip(SkipCode(code), "it was left half-done, and is not completed now: %s", why), true
		}
		if ctx.Err() != nil {
			return interrupted(), true
		}
		if err := h.journal.Start(h.step.ID); err != nil {
			h.stop(SkipJournal, err.Error())
			return skip(SkipJournal, "nothing was written: %v", err), true
		}
		hand, cancel := inHand(ctx)
		err := next(hand)
		readErr := h.refreshAll(hand, h.refs)
		cancel()
		switch {
		case err != nil && !errors.Is(err, ErrChanged):
			return Outcome{Status: Failed, Reason: fmt.Sprintf("completing what was left half-done (%s): %v", what, err)}, true
		case readErr != nil:
			return h.unread(ctx, readErr), true
		}
		wrote = wrote || err == nil
		if what == putBack && err == nil {
			h.wroteStep(ctx)
			return skip(SkipChanged, "the block is in use by its host: the affinity, which was left in pendingDeletion, got its state back"), true
		}
	}
	if wrote {
		h.wroteStep(ctx)
	}
	if wrong := h.kind.verify(h.state, h.step); wrong != nil {
		return Outcome{Status: Failed, Reason: fmt.Sprintf("it was left half-done, and could not be completed: %v", wrong)}, true
	}
	return Outcome{Status: Done, Reason: "completed what the run that broke off had begun" + h.remark()}, true
}

const putBack = "giving an affinity its state back"
