package state

import (
	"cmp"
	"math"
	"sync/atomic"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// A missing or contradicting object has no age, so findings use the age of the existing object.
// That spares claims in flight, where the other object is being written, or was read a moment
// earlier. Findings state that they rest on one observation.

// A deadline is the earliest future time that a verdict was compared with, in nanoseconds since
// 1970; 0 if there is none.
type deadline struct{ atomic.Int64 }

// NextDeadline returns the earliest time at which age by itself may change a requested verdict;
// zero if it changes none. It ignores the ages of host views.
func (st *State) NextDeadline() time.Time {
	if at := st.deadline.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// reached reports whether the reading was made at or after a time. All verdicts on age must use it,
// so that [State.NextDeadline] is complete.
func (st *State) reached(t blocks.Time) bool {
	if !t.After(st.takenAt) {
		return true
	}
	if t == math.MaxInt64 { // or beyond the range of times: no reading reaches it
		return false
	}
	for at := int64(t); ; {
		first := st.deadline.Load()
		if first != 0 && first <= at || st.deadline.CompareAndSwap(first, at) {
			return false
		}
	}
}

// Due returns the time at which a condition that began at since has held for the grace.
func (st *State) Due(since blocks.Time) blocks.Time { return since.Add(st.Grace) }

// PastGrace is Past for the grace.
func (st *State) PastGrace(t blocks.Time) bool { return st.Past(t, st.Grace) }

// Past reports whether t is at least d before the reading. An object without a time counts as
// old, because nothing shows that it is new. A time in the future does not.
func (st *State) Past(t blocks.Time, d time.Duration) bool {
	return t.IsZero() || st.takenAt.IsZero() || st.reached(t.Add(d))
}

// OldEnough reports whether an object was created and last written at least the grace ago.
func (st *State) OldEnough(m blocks.Meta) bool {
	return st.PastGrace(m.Created) && st.PastGrace(m.Written)
}

// Observed is the evidence for verdicts that depend on other objects.
const Observed = "one observation, of objects read one kind after the other"

// ClaimInFlight reports whether an affinity, or the claim of its block (nil if there is none), is
// younger than the grace. During claims and releases the two objects disagree, and they are read
// one after the other. Assigning addresses does not make a claim younger. Unfinished deletions by
// this program are not in flight.
func (st *State) ClaimInFlight(a *blocks.Affinity, b *Block) bool {
	return !HalfDone(a) && (!st.OldEnough(a.Meta) || b != nil && !st.ClaimPastGrace(b))
}

// ClaimPastGrace reports whether a block was created, and claimed by its owner, at least the
// grace ago.
func (st *State) ClaimPastGrace(b *Block) bool { return st.PastGrace(b.ClaimedAt()) }

// ClaimedAt returns when a block was created or, if later, claimed. Later writes to the block do
// not count: they put no claim in flight.
func (b *Block) ClaimedAt() blocks.Time { return b.Created.Later(b.Claimed) }

// ownedSince returns the earliest time from which a block is known to have its owner: its claim or,
// if that is not recorded (Calico before v3.32), its last write. An older host view proves nothing,
// because the block may have had another owner.
func (b *Block) ownedSince() blocks.Time { return cmp.Or(b.Claimed, b.Written, b.Created) }

// LastTouch returns when a block was last written or claimed, and whether its last write is known.
// An empty block has been empty at least since then.
func (b *Block) LastTouch() (blocks.Time, bool) {
	since, known := b.LastWrite()
	return since.Later(b.Claimed), known
}

// MarkBar explains why an object that is marked deleted must not be deleted yet: the client that
// marked it may be about to. Its age is sufficient evidence, because the mark is part of the
// object. This program either deletes the objects that it marked within [blocks.WriteTimeout], or
// never. For empty blocks without a mark, see evaluateAlone.
func (st *State) MarkBar(m blocks.Meta) Bar {
	last, known := m.LastWrite()
	wait := st.Grace
	if m.ByUs {
		wait = min(wait, blocks.WriteTimeout)
	}
	due := last.Add(wait)
	switch {
	case !known || st.takenAt.IsZero():
		return Because(RetainUnknownAge, "nothing records when it was last written (kubectl hides managedFields unless asked with --show-managed-fields)")
	case !st.reached(last):
		return Because(RetainUnknownAge, "it was last written in the future, at %s", last)
	case st.reached(due):
		return Bar{}
	case m.ByUs:
		return Because(RetainYoung, "calico-audit marked it at %s, and that run may be about to delete it", last).Until(due)
	}
	return Because(RetainYoung, "it was written at %s, within the grace period: the client that marked it may be about to delete it", last).Until(due)
}

// AssignedAt returns when an address was assigned. If the allocation does not record it, the last
// known change of its block counts.
func AssignedAt(r AllocationRef) blocks.Time {
	at := r.Attributes().Assigned
	if !at.IsZero() {
		return at
	}
	return r.Block.Created.Later(r.Block.Claimed).Later(r.Block.Written)
}

// HalfDone reports whether a step of this program left an affinity pending, pendingDeletion or
// marked deleted. The step continues within seconds or did not finish, so no grace applies.
func HalfDone(a *blocks.Affinity) bool {
	return a.ByUs && (a.SoftDeleted || a.Effective() != blocks.Confirmed)
}

// Lasts reports whether an affinity's state has held for the grace, or is left from an unfinished
// step of this program.
func (st *State) Lasts(a *blocks.Affinity) bool { return st.OldEnough(a.Meta) || HalfDone(a) }
