package repair

import (
	"slices"
	"strconv"

	"github.com/calico-audit/calico-audit/blocks"
)

// stepLog is what a journal tells of one step, over all runs that wrote it. A change
// is taken down before it is sent, so that by itself it does not say that it was
// carried out.
type stepLog struct {
	// changes are its writes, in the order in which they were sent.
	changes []JournalEntry
	// end is its last outcome; nil if none was taken down.
	end *JournalEntry
	// started is true if it was begun and no run has said what became of it. That a
	// later run did not come to it, or could not judge it, says nothing.
	started bool
	// unfinished is true if something of it may have been written, and no run has
	// brought it to an end: it died in it, or failed in it.
	unfinished bool
	proof      proof
	// deleted are the UIDs of the objects whose deletion was sent when the step was
	// tried last. It is sent only after the object was marked, so that whoever removed
	// the object then did so because of the mark.
	deleted map[blocks.Ref]string
	// freed is true if it was the step's own write that freed an address: it ended
	// done without a doubt, or went on to the next object. A block's sequence number
	// does not tell, for a release by its node raises it alike.
	freed bool
}

// proof is what a journal proves of whether a step was carried out.
type proof int

const (
	// unwritten: what was sent was refused, or nothing was sent.
	unwritten proof = iota
	// doubtful: some of it may have been carried out.
	doubtful
	// written: it was carried out.
	written
)

// undecided reports whether the end of a step says nothing about it: the run did not
// come to it, or could not judge it.
func (e *JournalEntry) undecided() bool {
	switch e.Code {
	case SkipUnread, SkipJournal, SkipHalfDone, SkipCode(RefusedLocked), SkipCode(RefusedVersion), SkipCode(RefusedNotRead):
		return e.Status == Skipped || e.Status == NotTried
	default:
		return e.Status == NotTried
	}
}

// log reads what the journal tells of a step.
func (f *JournalFile) log(step string) *stepLog {
	l := &stepLog{deleted: map[blocks.Ref]string{}}
	open, here, freeing := false, false, false // here: the last change is of this run
	for i := range f.Entries {
		e := &f.Entries[i]
		switch {
		case e.Event == EventResume:
			here = false
		case e.Step != step:
		case e.Event == EventStart:
			open, l.started, freeing, l.deleted = true, true, false, map[blocks.Ref]string{}
		case e.Event == EventChange:
			l.changes, l.proof, here = append(l.changes, *e), doubtful, true
			if e.Change.Resource == blocks.Blocks && e.Change.Verb == VerbPatch {
				freeing, l.freed = true, false
			} else {
				l.freed = l.freed || freeing
			}
			if e.Change.Verb == VerbDelete {
				l.deleted[e.Change.ref()] = e.Change.was().Metadata.UID
			}
		case e.Event == EventEnd:
			l.end = e
			l.freed = l.freed || freeing && e.Status == Done && e.Reason == ""
			if e.undecided() {
				continue
			}
			l.started, open = false, open && e.Status == Failed
			switch {
			case e.Status == Done && l.proof != unwritten:
				l.proof = written
			case e.Status == Skipped, e.Status == Already && here:
				// Found already so in the very run that tried: by somebody else. Found so
				// by a later run, it may be the work of the one that broke off.
				l.proof = unwritten
			}
		}
	}
	l.unfinished = open && len(l.changes) > 0
	return l
}

// first returns the first change of a resource; nil if there is none.
func (l *stepLog) first(r blocks.Resource) *Change {
	for i := range l.changes {
		if c := l.changes[i].Change; c.Resource == r {
			return c
		}
	}
	return nil
}

// deleteSent reports whether the deletion of the object of a change was sent when the
// step was tried last.
func (l *stepLog) deleteSent(c *Change) bool {
	uid, sent := l.deleted[c.ref()]
	return sent && uid == c.was().Metadata.UID
}

// ours reports whether an object was not written since the step by anybody but this
// program, as far as times tell.
func (l *stepLog) ours(m blocks.Meta) bool {
	return m.ByUs || len(l.changes) > 0 && !m.Written.After(l.changes[len(l.changes)-1].At.Add(writeTimeout+futureLeeway))
}

// Started reports whether a step was begun and broke off without an outcome.
func (f *JournalFile) Started(step string) bool { return f.log(step).started }

// Written returns the IDs of the steps that have changes, newest first, each
// where its last change stands.
func (f *JournalFile) Written() []string {
	var out []string
	for i := len(f.Entries) - 1; i >= 0; i-- {
		if e := &f.Entries[i]; e.Event == EventChange && !slices.Contains(out, e.Step) {
			out = append(out, e.Step)
		}
	}
	return out
}

// Step returns a step of the plan by ID; nil if the plan has none.
func (f *JournalFile) Step(id string) *Step {
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

// Unfinished returns the steps of the journal's plan that were begun and not brought
// to an end, in the plan's order. None are in the journal of an undo.
func (f *JournalFile) Unfinished() []Step {
	if f.Plan == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(f.Plan.Steps), func(s Step) bool { return !f.log(s.ID).unfinished })
}

// FinishedBy reports whether a request asks for all that the journal's run left
// half-done: kinds, setting, pools and nodes.
func (f *JournalFile) FinishedBy(req Request) bool {
	for _, s := range f.Unfinished() {
		kind := kindOf(s.Kind)
		switch {
		case kind == nil || !kind.asked(req) || req.beside(nil, s.Target, s.Pools, s.Nodes):
			return false
		case s.Kind == SetStrictAffinity && strconv.FormatBool(*req.StrictAffinity) != s.Guard(guardWanted):
			return false
		}
	}
	return true
}

// Mark sets blocks.Meta.ByUs of the objects of a snapshot that the journal's run
// has left half-done, and returns them.
func (f *JournalFile) Mark(s *blocks.Snapshot) map[blocks.Ref]bool {
	marked := map[blocks.Ref]bool{}
	for _, step := range f.Unfinished() {
		l := f.log(step.ID)
		for _, e := range l.changes {
			m := objectNamed(s, e.Change.Resource, e.Change.Name)
			if m == nil || e.Change.Before != nil && m.UID != e.Change.was().Metadata.UID || !l.ours(*m.Meta) {
				continue
			}
			m.ByUs = true
			marked[e.Change.ref()] = true
		}
	}
	return marked
}

// BrokeOff reports whether the run that wrote the journal did not come to its end:
// a step of its plan has no outcome, or is unfinished.
func (f *JournalFile) BrokeOff() bool {
	return f.Plan != nil && slices.ContainsFunc(f.Plan.Steps, func(s Step) bool {
		l := f.log(s.ID)
		return l.end == nil || l.unfinished
	})
}

// Of reports whether the journal is that of a plan: one of the same cluster, made at
// the same time, with the same steps.
func (f *JournalFile) Of(plan *Plan) bool {
	own := f.Plan
	return own != nil && own.Cluster.GUID == plan.Cluster.GUID && own.CreatedAt.Equal(plan.CreatedAt.Time) &&
		slices.EqualFunc(own.Steps, plan.Steps, func(a, b Step) bool { return a.ID == b.ID })
}
