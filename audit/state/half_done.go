package state

import (
	"github.com/calico-audit/calico-audit/blocks"
)

// HalfDone reports whether an affinity was left pending, pendingDeletion or marked
// deleted by a step of this program, which goes on within seconds or did not finish: no
// grace is waited for.
func HalfDone(a *blocks.Affinity) bool {
	return a.ByUs && (a.SoftDeleted || a.Effective() != blocks.Confirmed)
}

// Lasts reports whether an affinity's state has held for the grace, or is a step of
// this program that did not finish.
func (st *State) Lasts(a *blocks.Affinity) bool { return st.OldEnough(a.Meta) || HalfDone(a) }
