package state

import (
	"cmp"
	"math"
	"sync/atomic"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
)

// A state that another object's absence or disagreement makes has no age of its
// own. Findings go by the age of the object at hand, so that a claim in flight,
// whose other half is just being written or was read a moment earlier, is left
// alone; that one observation was made is all they say.

// A deadline is the first of the times that verdicts asked about and that the reading
// had not reached, in nanoseconds since 1970; 0 if there is none.
type deadline struct{ atomic.Int64 }

// NextDeadline returns the first time at which a verdict on the same objects may be
// another because they are older by then, as far as verdicts were asked for; zero if
// age changes none of them. Ages of host views are left out.
func (st *State) NextDeadline() time.Time {
	if at := st.deadline.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// reached reports whether the reading was made at a time or later. All verdicts that age
// alone changes ask here, for [State.NextDeadline].
func (st *State) reached(t blocks.Time) bool {
	if !t.After(st.takenAt) {
		return true
	}
	if t == math.MaxInt64 { // or beyond what it can hold: no reading gets there
		return false
	}
	for at := int64(t); ; {
		first := st.deadline.Load()
		if first != 0 && first <= at || st.deadline.CompareAndSwap(first, at) {
			return false
		}
	}
}

// Due returns when what has held since a time will have held for the grace.
func (st *State) Due(since blocks.Time) blocks.Time { return since.Add(st.Grace) }

// PastGrace is Past for the grace.
func (st *State) PastGrace(t blocks.Time) bool { return st.Past(t, st.Grace) }

// Past reports whether a time lies so long before the reading. An object without any time
// counts as settled: nothing says that it is new. One from the future does not.
func (st *State) Past(t blocks.Time, d time.Duration) bool {
	return t.IsZero() || st.takenAt.IsZero() || st.reached(t.Add(d))
}

// OldEnough reports whether an object was made and last written at least the
// grace ago.
func (st *State) OldEnough(m blocks.Meta) bool {
	return st.PastGrace(m.Created) && st.PastGrace(m.Written)
}

// Observed is the evidence for verdicts that rest on what other objects say.
const Observed = "one observation, of objects read one kind after the other"

// ClaimInFlight reports whether an affinity, or the claim of its block (nil if there is
// none), is younger than the grace: claims and releases pass through states in which
// the two disagree, and they are read one after the other. A block is written whenever
// an address of it is, which makes it no younger. A deletion that this program began
// and did not finish is none of these.
func (st *State) ClaimInFlight(a *blocks.Affinity, b *Block) bool {
	return !HalfDone(a) && (!st.OldEnough(a.Meta) || b != nil && !st.ClaimPastGrace(b))
}

// ClaimPastGrace reports whether a block was made, and claimed by whom it names, at least
// the grace ago.
func (st *State) ClaimPastGrace(b *Block) bool { return st.PastGrace(b.ClaimedAt()) }

// ClaimedAt returns when a block was made or, if that is later, claimed: it makes a claim
// in flight, which no later write to the block does.
func (b *Block) ClaimedAt() blocks.Time { return b.Created.Later(b.Claimed) }

// ownedSince returns since when a block may have had its owner: its claim or, where that is
// not recorded (Calico before v3.32), its last write, for what must be newer than the owner,
// such as a host view, proves nothing of a block that may have changed hands since.
func (b *Block) ownedSince() blocks.Time { return cmp.Or(b.Claimed, b.Written, b.Created) }

// lastTouch returns when a block was last written or claimed, which is the latest time at
// which it can have become empty, and whether its last write is known.
func (b *Block) lastTouch() (blocks.Time, bool) {
	since, known := b.LastWrite()
	return since.Later(b.Claimed), known
}

// MarkBar says why what is marked deleted must not be deleted yet (of empty blocks that have
// no mark evaluateAlone says it): the client that marked it may be
// about to. The mark is a state of the object itself, so that its age suffices. What a
// repair of this program marked it deletes within [blocks.WriteTimeout] or never.
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
		return Because(RetainUnknownAge, "it was last written in the future, at %s", phrase.Time(last))
	case st.reached(due):
		return Bar{}
	case m.ByUs:
		return Because(RetainYoung, "calico-audit marked it at %s, and that run may be about to delete it", phrase.Time(last)).Until(due)
	}
	return Because(RetainYoung, "it was written less than %s ago, at %s: the client that marked it may be about to delete it",
		phrase.Duration(st.Grace), phrase.Time(last)).Until(due)
}

// AssignedAt returns when an address was assigned, as far as is known: where the
// allocation does not say, it is not older than its block.
func AssignedAt(r AllocationRef) blocks.Time {
	at := r.Attributes().Assigned
	if !at.IsZero() {
		return at
	}
	return r.Block.Created.Later(r.Block.Claimed).Later(r.Block.Written)
}
