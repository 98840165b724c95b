package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Site is the cluster that steps are carried out on: as it was read last, and what
// writes to it.
type Site struct {
	State     *state.State
	Writer    Writer
	Workloads Workloads // nil where no pods and nodes can be changed
}

// Begun is a step that a journal tells of, in the cluster as it is now: what it came to,
// and what is to be done next to bring it to an end, or to take it back.
type Begun struct {
	*Site
	Log  *StepLog
	Step *Step
	Kind *StepKind // nil for one that this version does not know
	// Undo: nothing of the step is carried out but what cannot be taken back.
	Undo bool
	// Request is what the journal's plan was asked for.
	Request Request
}

// Move is what is to be done next about a step: a write, or nothing. The zero value is
// nothing, without a word.
type Move struct {
	Do func(context.Context) error
	// What says what the write does or, without one, why there is none.
	What   string
	Status Status
	// Code is why there is no write, or [CodeFinished] for one by which an undo finishes
	// the step.
	Code SkipCode
	// Back is true for a write that takes the step back instead of completing it.
	Back bool
	// HalfDone is true if there is no write though the step is half-done.
	HalfDone bool
}

// None reports whether there is neither a write nor a reason for there being none.
func (m Move) None() bool { return m.Do == nil && m.Status == "" }

// Outcome is that of a step about which nothing more is done.
func (m Move) Outcome() Outcome {
	if m.Do != nil {
		return Outcome{Status: Planned, Code: m.Code, Reason: m.What}
	}
	return Outcome{Status: m.Status, Code: m.Code, Reason: m.What}
}

// Open reports whether the step is still to be done with it.
func (m Move) Open() bool { o := m.Outcome(); return o.Open() }

// ToWrite is the move that a write makes, which the text describes.
func ToWrite(do func(context.Context) error, format string, args ...any) Move {
	return Move{Do: do, What: fmt.Sprintf(format, args...)}
}

// Nothing is the move of a step at which nothing is to be done, and why.
func Nothing(s Status, why string) Move { return Move{Status: s, What: why} }

// Cannot is the move of a step that must be left as it is, and why.
func Cannot(code SkipCode, format string, args ...any) Move {
	return Move{Status: Skipped, Code: code, What: fmt.Sprintf(format, args...)}
}

// held is the move of a step that is left as it is for now.
func (b *Begun) held(code SkipCode, why string) Move {
	if b.Undo {
		return Cannot(code, "it is not finished: %s", why)
	}
	return Cannot(code, "it was left half-done, and is not completed now: %s", why)
}

// Refs are the objects of the step: what its kind rests on, those that were written,
// with their blocks; and what says whether anything may be written at all.
func (b *Begun) Refs() []blocks.Ref {
	r := NewRefs(b.State)
	if b.Kind != nil {
		b.Kind.AddRefs(r, b.Step)
	}
	for _, e := range b.Log.Changes {
		if strings.Contains(e.Name, "/") {
			r.Namespaced(e.Resource, e.Name)
			continue
		}
		r.One(e.Resource, e.Name)
		if was := e.Was(); e.Resource == blocks.Affinities && was.Spec.CIDR != "" { // its block, and who else claims that
			r.Claim(PrefixOf(state.Subject{CIDR: was.Spec.CIDR}), was.Spec.Node)
		}
	}
	return r.All
}

// next returns the next write that a half-done step needs, or why it has to wait.
//
// What the run that broke off had begun it had the right to begin: it evaluated the
// objects and pinned them. So what it left marked for deletion is deleted, if it is
// still the same object and nothing has been done with it since; and an affinity that
// it left in pendingDeletion, though the block is its host's after all, gets its state
// back. No one takes a mark of deletion away.
func (b *Begun) next() Move {
	if b.Kind == nil || b.Kind.Complete == nil || !b.Log.Unfinished {
		return Move{}
	}
	if g := b.State.FirstMissing(b.Kind.Requires); g != nil {
		return b.held(SkipHalfDone, fmt.Sprintf("a read that this needs is missing: %s", g))
	}
	m := b.Kind.Complete(b)
	if b.Undo && m.Do != nil && m.Code == "" {
		m.What, m.Code = "finish the step, which was left half-done: "+m.What, CodeFinished
	}
	return m
}

// Completion returns the next write by which a run that goes on brings the step to its
// end, if one may be sent now.
func (b *Begun) Completion() Move {
	m := b.next()
	if r := b.closed(); m.Do != nil && r.Code != "" {
		return b.held(SkipCode(r.Code), r.Why)
	}
	return m
}

// Action returns what an undo does next about the step.
func (b *Begun) Action() Move {
	m := b.evaluate()
	if m.Do != nil {
		if r := b.closed(); r.Code != "" {
			m = Cannot(SkipCode(r.Code), "%s", r.Why)
		}
	}
	if m.Do != nil {
		return m
	}
	// What is left half-done all the same makes the step open, whatever else is said.
	switch left := b.leftover(); {
	case left == "":
		return m
	case m.Open():
		m.What += "; " + left
	default:
		m = Cannot(SkipHalfDone, "%s", left)
	}
	m.HalfDone = true
	return m
}

func (b *Begun) evaluate() Move {
	for _, e := range b.Log.Changes {
		if g, missing := b.State.Missing(e.Resource); missing {
			return Cannot(SkipCode(RefusedNotRead), "not evaluated: %s", g)
		}
		for _, g := range b.State.Unreadable(e.Resource) {
			if g.Name == e.Name {
				return Cannot(SkipCode(RefusedNotRead), "not evaluated: %s", g)
			}
		}
	}
	if m := b.next(); !m.None() {
		return m
	}
	if b.Log.Unwritten {
		// It wrote nothing, or took it back; what is missing now, others have taken away.
		if a := b.Affinity(); a != nil && b.mustStay(a) == "" {
			return b.PutBack(a)
		}
		return Nothing(NotNeeded, "nothing was written: the step was skipped")
	}
	if b.Kind == nil {
		return Cannot(SkipUnknown, "this version knows no steps of kind %q, or the journal's plan lacks the step", b.Step.Kind)
	}
	return b.Kind.Undo(b)
}

// closed says why nothing of the step may be written now, by the same refusals that a plan
// goes through; an empty code if it may.
func (b *Begun) closed() Reason {
	g, missing := b.State.Missing(blocks.ClusterInfos)
	if unread := b.State.Unreadable(blocks.ClusterInfos); !missing && len(unread) > 0 {
		g, missing = unread[0], true
	}
	if missing {
		return Because(RefusedNotRead, "whether the datastore is locked is not known: %s", g)
	}
	return (&Proposals{State: b.State, Request: b.Request, Kind: cmp.Or(b.Kind, &StepKind{})}).barred()
}

// leftover names what the step has left half-done; "" if nothing.
func (b *Begun) leftover() string {
	for _, r := range []blocks.Resource{blocks.Blocks, blocks.Affinities, blocks.Handles} {
		c := b.Log.First(r)
		if c == nil {
			continue
		}
		o := ObjectNamed(b.State.Snapshot, r, c.Name)
		if o == nil || c.Before != nil && o.UID() != c.UID() || !b.Log.Ours(*o.Meta) {
			continue
		}
		if o.marked {
			return fmt.Sprintf("%s %s is left marked deleted: \"repair --soft-deleted\" removes it, or Calico when it reads it by name", o.Word, o.Name)
		}
		if a := AffinityNamed(b.State, o.Name); r == blocks.Affinities && a.Effective() != blocks.Confirmed && string(a.State) != c.Was().Spec.State {
			return fmt.Sprintf("affinity %s is left %s", a.Name, a.State)
		}
	}
	var behind *LeftBehindError
	if b.Kind != nil && b.Log.Unfinished && errors.As(b.Kind.Verify(b.State, b.Step), &behind) {
		return behind.Error()
	}
	return ""
}

// Affinity returns the affinity that the step wrote; nil if it is gone.
func (b *Begun) Affinity() *blocks.Affinity {
	if c := b.Log.First(blocks.Affinities); c != nil {
		return AffinityNamed(b.State, c.Name)
	}
	return nil
}

// SameAffinity is Affinity, if it is still the same object.
func (b *Begun) SameAffinity() *blocks.Affinity {
	if a := b.Affinity(); a != nil && a.UID() == b.Log.First(blocks.Affinities).UID() {
		return a
	}
	return nil
}

// LeftAffinity is SameAffinity, if it is what the step is about, and still as it was left.
func (b *Begun) LeftAffinity() *blocks.Affinity {
	a := b.SameAffinity()
	if a == nil || !b.Mine(a) || a.State != blocks.PendingDeletion && !a.SoftDeleted {
		return nil
	}
	return a
}

// Mine reports whether an affinity is of the block and the owner that the step is about.
func (b *Begun) Mine(a *blocks.Affinity) bool {
	if a.CIDR != PrefixOf(b.Step.Target) {
		return false
	}
	if b.Step.Target.Kind == state.KindBlock {
		return OwnerGuard(a.Owner) == b.Step.Guard(GuardOwner)
	}
	return a.Owner.Node() == b.Step.Target.Node
}

// EndAffinity completes the deletion of the affinity that was left, or takes it back
// where the block is its host's.
func (b *Begun) EndAffinity() Move {
	a := b.LeftAffinity()
	if a == nil {
		return Move{}
	}
	switch block := BlockAt(b.State, a.CIDR.String()); {
	case block != nil && block.Owner == a.Owner && (b.Undo || a.SoftDeleted):
		return Move{}
	case block != nil && block.Owner == a.Owner:
		return b.PutBack(a)
	case block == nil:
		if r := b.State.NoBlockBar(a.CIDR); r.Code != "" {
			return b.held(SkipHalfDone, r.Reason)
		}
	}
	if a.SoftDeleted {
		return b.EndMark(blocks.Affinities, a.Meta)
	}
	return b.DeleteAffinity(a, "deleting the affinity")
}

// DeleteAffinity deletes an affinity as it was read.
func (b *Begun) DeleteAffinity(a *blocks.Affinity, what string) Move {
	ref := Pin(blocks.Affinities, a.Meta)
	return ToWrite(func(ctx context.Context) error { return b.Writer.DeleteAffinity(ctx, ref) }, "%s", what)
}

// EndMark deletes an object that was marked.
func (b *Begun) EndMark(r blocks.Resource, m blocks.Meta) Move {
	ref, word := Pin(r, m), ObjectNamed(b.State.Snapshot, r, m.Name).Word
	return ToWrite(func(ctx context.Context) error { return b.Writer.FinishDelete(ctx, ref) }, "deleting the %s that was marked", word)
}

// PutBack gives the affinity that was left in pendingDeletion the state that it had.
func (b *Begun) PutBack(a *blocks.Affinity) Move {
	was := blocks.AffinityState(b.Log.First(blocks.Affinities).Was().Spec.State)
	if b.Undo && a.State == was && !a.SoftDeleted {
		return Nothing(Already, "the affinity is as it was")
	}
	if a.SoftDeleted {
		return Cannot(SkipChanged, "the affinity was written since, and is marked deleted")
	}
	if a.State != blocks.PendingDeletion {
		return Cannot(SkipChanged, "the affinity was written since: its state is %q", a.State)
	}
	if why := b.mustStay(a); why != "" {
		return Cannot(SkipChanged, "the affinity does not get its state %q back: %s; it stays pendingDeletion, and its node confirms it when it next takes an address from the block", was, why)
	}
	m := b.SetAffinity(a, was, "give the affinity %s its state %q back", a.Name, was)
	m.Back = true
	return m
}

// SetAffinity gives an affinity, as it was read, another state.
func (b *Begun) SetAffinity(a *blocks.Affinity, state blocks.AffinityState, format string, args ...any) Move {
	ref := Pin(blocks.Affinities, a.Meta)
	return ToWrite(func(ctx context.Context) error { return b.Writer.PutAffinityState(ctx, ref, state) }, format, args...)
}

// mustStay says why the affinity that the step has left in pendingDeletion must not get
// its state back; "" if it may. Somebody else may be releasing the block at this
// moment and, if they find the affinity in that state already, do not write it:
// confirmed under them, it would outlive the block. Left alone, it does no harm.
func (b *Begun) mustStay(a *blocks.Affinity) string {
	c := b.Log.First(blocks.Affinities)
	var last Sent
	for _, e := range b.Log.Changes {
		if e.Resource == blocks.Affinities && e.Name == a.Name {
			last = e
		}
	}
	block := BlockAt(b.State, a.CIDR.String())
	switch {
	case c == nil || c.Before == nil || a.UID() != c.UID():
		return "it is another object than the one that was written"
	case a.SoftDeleted:
		return "it is marked deleted"
	case a.State != blocks.PendingDeletion || StoredObject(last.After).Spec.State != string(blocks.PendingDeletion):
		return fmt.Sprintf("its state is %q, which is not what the journal says was written last", a.State)
	case a.Written.Std().After(last.At.Add(blocks.WriteTimeout + blocks.ClockSkew)):
		return fmt.Sprintf("somebody else wrote it since, at %s, and may be releasing it", phrase.Time(a.Written))
	case block == nil:
		return "its block does not exist"
	case block.SoftDeleted:
		return "its block is marked deleted: somebody is releasing it"
	case block.Owner != a.Owner:
		return fmt.Sprintf("its block belongs to %s", OwnerText(block.Owner))
	}
	return ""
}
