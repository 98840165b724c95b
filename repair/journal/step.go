package journal

import (
	"bytes"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// undecided reports whether the end of a step leaves the step open, because the run did
// not reach it or could not evaluate it.
func (e *Entry) undecided() bool {
	switch e.Code {
	case repair.SkipUnread, repair.SkipJournal, repair.SkipHalfDone, repair.SkipCode(repair.RefusedLocked), repair.SkipCode(repair.RefusedVersion), repair.SkipCode(repair.RefusedNotRead):
		return e.Status == repair.Skipped || e.Status == repair.NotTried
	default:
		return e.Status == repair.NotTried
	}
}

// Log evaluates the journal's entries of a step.
func (f *File) Log(step string) *repair.StepLog {
	l := &repair.StepLog{Unwritten: true, Deleted: map[blocks.Ref]string{}}
	open, here, freeing := false, false, false // here: the last change was made by this run
	returned := false                          // the pod had the address again, and may have released it since
	for i := range f.Entries {
		e := &f.Entries[i]
		switch {
		case e.Event == EventResume:
			here = false
		case e.Step != step:
		case e.Event == EventStart:
			open, l.Started, freeing, l.Deleted = true, true, false, map[blocks.Ref]string{}
		case e.Event == EventChange:
			l.Changes, l.Unwritten, here = append(l.Changes, repair.Sent{Change: e.Change, At: e.At}), false, true
			if (e.Change.Resource == blocks.Blocks || e.Change.Resource == blocks.WhereaboutsPools) && e.Change.Verb == repair.VerbPatch {
				freeing, l.Freed, l.Freeing = true, f.wentThrough(i), &l.Changes[len(l.Changes)-1]
			} else {
				l.Freed = l.Freed || freeing
			}
			if e.Change.Resource == blocks.WhereaboutsReservations {
				freeing, returned = freeing || e.Change.Verb == repair.VerbDelete, returned || e.Change.Verb == repair.VerbCreate
			}
			if was := e.Change.Was(); e.Change.Verb == repair.VerbDelete && (was.Marked() || f.wentThrough(i)) {
				l.Deleted[e.Change.Ref()] = e.Change.UID()
			}
		case e.Event == EventEnd:
			l.Ended = e.Status
			l.Freed = l.Freed || freeing && e.Status == repair.Done && e.Reason == ""
			if e.undecided() {
				continue
			}
			l.Started, open = false, open && e.Status == repair.Failed
			// If the run that sent the changes finds the state already as intended, another client
			// did it. If a later run finds it so, the interrupted run may have done it.
			l.Unwritten = l.Unwritten || e.Status == repair.Skipped || e.Status == repair.Already && here
		}
	}
	if returned {
		l.Freed, l.Freeing = false, nil
	}
	l.Unfinished = open && len(l.Changes) > 0
	return l
}

// wentThrough reports whether the next entry proves that the i-th entry's write succeeded. Only
// after a successful write does the writer continue with another object, or end a step without a
// reason. If one write belongs to several steps, each step records it first.
func (f *File) wentThrough(i int) bool {
	mine, shares := f.Entries[i].Change, map[string]bool{}
	same := func(e *Entry) bool {
		return e.Event == EventChange && e.Change.Verb == mine.Verb && e.Change.Ref() == mine.Ref() && bytes.Equal(e.Change.Before, mine.Before)
	}
	for ; i > 0 && same(&f.Entries[i-1]); i-- {
	}
	for ; i < len(f.Entries) && same(&f.Entries[i]); i++ {
		shares[f.Entries[i].Step] = true
	}
	if i == len(f.Entries) || !shares[f.Entries[i].Step] {
		return false
	}
	next := &f.Entries[i]
	return next.Event == EventChange && next.Change.Ref() != mine.Ref() || next.Event == EventEnd && next.Status == repair.Done && next.Reason == ""
}

// Started reports whether a step was started and has no outcome.
func (f *File) Started(step string) bool { return f.Log(step).Started }

// Written returns the IDs of the steps with changes, newest first by their last change.
func (f *File) Written() []string {
	var out []string
	for i := len(f.Entries) - 1; i >= 0; i-- {
		if e := &f.Entries[i]; e.Event == EventChange && !slices.Contains(out, e.Step) {
			out = append(out, e.Step)
		}
	}
	return out
}

// Step returns a step of the plan by ID, or nil.
func (f *File) Step(id string) *repair.Step {
	if f.Plan == nil {
		return nil
	}
	for i := range f.Plan.Steps {
		if f.Plan.Steps[i].ID == id {
			return &f.Plan.Steps[i]
		}
	}
	return nil
}

// Unfinished returns the steps of the journal's plan that were started but not completed,
// in the plan's order. It returns none for the journal of an undo.
func (f *File) Unfinished() []repair.Step {
	if f.Plan == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(f.Plan.Steps), func(s repair.Step) bool { return !f.Log(s.ID).Unfinished })
}

// FinishedBy reports whether a request includes all half-done steps of the journal's run or,
// if there are none, all steps without an outcome: their kinds, the setting, and the same
// filters or the objects that they select.
func (f *File) FinishedBy(req repair.Request) bool {
	left := f.Unfinished()
	if len(left) == 0 {
		left = f.broken()
	}
	return !slices.ContainsFunc(left, func(s repair.Step) bool { return !planner.Finishes(&req, &s, &f.Plan.Request) })
}

// Mark adds the journal's run to the known runs of a snapshot, with its marks, and sets
// blocks.Meta.ByUs of the objects that the run left half-done.
func (f *File) Mark(s *blocks.Snapshot) {
	known := blocks.KnownRun{Journal: f.Path}
	for _, part := range f.Parts() {
		if part.Plan == nil {
			continue
		}
		for i := range part.Plan.Steps {
			if g := part.Plan.Steps[i].Group(); g != "" && !slices.Contains(known.Marks, g) {
				known.Marks = append(known.Marks, g)
			}
		}
		for _, step := range part.Unfinished() {
			known.Objects = append(known.Objects, part.Log(step.ID).Mark(s)...)
			for _, id := range []string{step.Guard(repair.GuardHandle), step.Guard(repair.GuardReplaces)} { // a killed step has not lowered its count
				if id != "" {
					known.Objects = append(known.Objects, blocks.Ref{Resource: blocks.Handles, Name: strings.ToLower(id)}, blocks.Ref{Resource: blocks.Handles, Name: id})
				}
			}
		}
	}
	s.KnownRuns = append(s.KnownRuns, known)
}

// BrokeOff reports whether the journal's run was interrupted: a step of its plan has no
// outcome or is unfinished.
func (f *File) BrokeOff() bool { return len(f.broken()) > 0 }

// broken returns the steps of the journal's plan that have no outcome or are unfinished.
func (f *File) broken() []repair.Step {
	if f.Plan == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(f.Plan.Steps), func(s repair.Step) bool {
		l := f.Log(s.ID)
		return l.Ended != "" && !l.Unfinished
	})
}

// Of reports whether the journal belongs to a plan: same cluster, same time, same steps.
func (f *File) Of(plan *repair.Plan) bool {
	own := f.Plan
	return own != nil && own.Cluster.GUID == plan.Cluster.GUID && own.CreatedAt.Equal(plan.CreatedAt.Time) &&
		slices.EqualFunc(own.Steps, plan.Steps, func(a, b repair.Step) bool { return a.ID == b.ID })
}
