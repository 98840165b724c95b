package repair

import (
	"slices"
	"strconv"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// The functions of this file say what a run left half-done, by its journal.

// unfinished reports whether a step was begun, something of it may have been written,
// and no run has brought it to an end: it died in it, or failed in it. A step that
// a later run did not come to stays unfinished.
func (f *JournalFile) unfinished(step string) bool {
	open, wrote := false, false
	for i := range f.Entries {
		e := &f.Entries[i]
		if e.Step != step {
			continue
		}
		switch e.Event {
		case EventStart:
			open = true
		case EventChange:
			wrote = true
		case EventEnd:
			open = open && (e.undecided() || e.Status == Failed)
		default: // it neither begins nor ends
		}
	}
	return open && wrote
}

// Unfinished returns the steps of the journal's plan that were begun and not brought
// to an end, in the plan's order. None are in the journal of an undo.
func (f *JournalFile) Unfinished() []Step {
	var out []Step
	if f.Plan == nil {
		return nil
	}
	for i := range f.Plan.Steps {
		if s := f.Plan.Steps[i]; f.unfinished(s.ID) {
			out = append(out, s)
		}
	}
	return out
}

// FinishedBy reports whether a request asks for all that the journal's run left
// half-done: kinds, setting, pools and nodes.
func (f *JournalFile) FinishedBy(req Request) bool {
	for _, s := range f.Unfinished() {
		kind := kindOf(s.Kind)
		switch {
		case kind == nil || !kind.asked(req) || !meet(req.Pools, s.Pools) || !meet(req.Nodes, s.Nodes):
			return false
		case s.Kind == SetStrictAffinity && strconv.FormatBool(*req.StrictAffinity) != s.Guard(guardWanted):
			return false
		}
	}
	return true
}

// ours reports whether an object was not written since a step by anybody but this
// program, as far as times tell.
func (f *JournalFile) ours(step string, m blocks.Meta) bool {
	var last time.Time
	for i := range f.Entries {
		if e := &f.Entries[i]; e.Event == EventChange && e.Step == step {
			last = e.At.Time
		}
	}
	return m.ByUs || !m.Written.After(last.Add(writeTimeout+futureLeeway))
}

// Mark sets blocks.Meta.ByUs of the objects of a snapshot that the journal's run
// has left half-done, and returns them.
func (f *JournalFile) Mark(s *blocks.Snapshot) map[blocks.Ref]bool {
	marked := map[blocks.Ref]bool{}
	for _, step := range f.Unfinished() {
		for _, c := range f.Changes(step.ID) {
			m := metaOf(s, c.Resource, c.Name)
			if m == nil || c.Before != nil && m.UID != storedObject(c.Before).Metadata.UID || !f.ours(step.ID, *m) {
				continue
			}
			m.ByUs = true
			marked[blocks.Ref{Resource: c.Resource, Name: c.Name}] = true
		}
	}
	return marked
}

// metaOf returns the metadata of an object that a repair marks or changes the state
// of; nil for others, and if there is none of its name.
func metaOf(s *blocks.Snapshot, r blocks.Resource, name string) *blocks.Meta {
	switch r {
	case blocks.Blocks:
		for i := range s.Blocks {
			if s.Blocks[i].Name == name {
				return &s.Blocks[i].Meta
			}
		}
	case blocks.Affinities:
		for i := range s.Affinities {
			if s.Affinities[i].Name == name {
				return &s.Affinities[i].Meta
			}
		}
	case blocks.Handles:
		for i := range s.Handles {
			if s.Handles[i].Name == name {
				return &s.Handles[i].Meta
			}
		}
	default: // written at once
	}
	return nil
}

// BrokeOff reports whether the run that wrote the journal did not come to its end:
// a step of its plan has no outcome, or is unfinished.
func (f *JournalFile) BrokeOff() bool {
	if f.Plan == nil {
		return false
	}
	for i := range f.Plan.Steps {
		id := f.Plan.Steps[i].ID
		if _, ended := f.Outcome(id); !ended || f.unfinished(id) {
			return true
		}
	}
	return false
}

// Of reports whether the journal is that of a plan: one of the same cluster, made at
// the same time, with the same steps.
func (f *JournalFile) Of(plan *Plan) bool {
	own := f.Plan
	return own != nil && own.Cluster.GUID == plan.Cluster.GUID && own.CreatedAt.Equal(plan.CreatedAt.Time) &&
		slices.EqualFunc(own.Steps, plan.Steps, func(a, b Step) bool { return a.ID == b.ID })
}
