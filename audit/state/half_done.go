package state

import (
	"github.com/calico-audit/calico-audit/blocks"
)

// A repair of this program writes an object in between two states, and goes on
// within seconds. What was written last by it (blocks.Meta.ByUs) and stands in
// between is a step that did not finish, or one that runs at this moment: no one has
// to wait for a grace to say so.

// HalfDone reports whether an affinity was left pending, pendingDeletion or marked
// deleted by a step of this program.
func HalfDone(a *blocks.Affinity) bool {
	return a.ByUs && (a.SoftDeleted || a.Effective() != blocks.Confirmed)
}

// Lasts reports whether an affinity's state has held for the grace, or is a step of
// this program that did not finish.
func (st *State) Lasts(a *blocks.Affinity) bool { return st.OldEnough(a.Meta) || HalfDone(a) }
