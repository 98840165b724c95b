package audit

import (
	"github.com/calico-audit/calico-audit/blocks"
)

// A repair of this program writes an object in between two states, and goes on
// within seconds. What was written last by it (blocks.Meta.ByUs) and stands in
// between is a step that did not finish, or one that runs at this moment: nobody has
// to wait for a grace to say so.

// HalfDone reports whether an affinity was left pending, pendingDeletion or marked
// deleted by a step of this program.
func HalfDone(a *blocks.Affinity) bool {
	return a.ByUs && (a.SoftDeleted || a.Effective() != blocks.Confirmed)
}

// lasts reports whether an affinity's state has held for the grace, or is a step of
// this program that did not finish.
func (st *State) lasts(a *blocks.Affinity) bool { return st.OldEnough(a.Meta) || HalfDone(a) }

// begunHere says in a finding's message and evidence that a step of this program did
// not finish, if it is one.
func (f *Finding) begunHere(ours bool) {
	if ours {
		f.Message += ": a repair by calico-audit did not finish, or still runs"
		f.Evidence = append(f.Evidence, Evidence{"written last by", blocks.FieldManager})
	}
}
