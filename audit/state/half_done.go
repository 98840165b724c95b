package state

import (
	"github.com/calico-audit/calico-audit/blocks"
)

// HalfDone reports whether a step of this program left an affinity pending, pendingDeletion or
// marked deleted. The step continues within seconds or did not finish, so no grace applies.
func HalfDone(a *blocks.Affinity) bool {
	return a.ByUs && (a.SoftDeleted || a.Effective() != blocks.Confirmed)
}

// Lasts reports whether an affinity's state has held for the grace, or is left from an unfinished
// step of this program.
func (st *State) Lasts(a *blocks.Affinity) bool { return st.OldEnough(a.Meta) || HalfDone(a) }
