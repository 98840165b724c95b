package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Site is the cluster on which steps run: its state as last read, and the writers.
type Site struct {
	State     *state.State
	Writer    Writer
	Workloads Workloads // nil if pods and nodes cannot be changed
}

// Begun is a step in a journal, viewed in the current state of the cluster. It decides
// the next write that completes or undoes the step.
type Begun struct {
	*Site
	Log  *StepLog
	Step *Step
	Kind *StepKind // nil if this version does not know the kind
	// Undo means that the step is being undone. Then only parts that cannot be undone are
	// completed.
	Undo bool
	// Request is the request of the journal's plan.
	Request Request
}

// Move is the next action of a step: a write, or none. The zero value means no write and
// no reason.
type Move struct {
	Do func(context.Context) error
	// What describes the write or, without one, explains why there is none.
	What   string
	Status Status
	// Code is the reason for not writing, or [CodeFinished] for a write with which an
	// undo finishes the step.
	Code SkipCode
	// Back is true for a write that undoes the step instead of completing it.
	Back bool
	// HalfDone is true if the step is half-done and the move has no write.
	HalfDone bool
}

// None reports whether the move has neither a write nor a reason.
func (m Move) None() bool { return m.Do == nil && m.Status == "" }

// Outcome returns the outcome of the step if it ends with this move.
func (m Move) Outcome() Outcome {
	if m.Do != nil {
		return Outcome{Status: Planned, Code: m.Code, Reason: m.What}
	}
	return Outcome{Status: m.Status, Code: m.Code, Reason: m.What, HalfDone: m.HalfDone || m.Code == SkipHalfDone}
}

// Open reports whether the step is still to be done after this move.
func (m Move) Open() bool { o := m.Outcome(); return o.Open() }

// ToWrite returns a move with a write and its description.
func ToWrite(do func(context.Context) error, format string, args ...any) Move {
	return Move{Do: do, What: fmt.Sprintf(format, args...)}
}

// Nothing returns a move without a write, with the status of the step and the reason.
func Nothing(s Status, why string) Move { return Move{Status: s, What: why} }

// Cannot returns a move that leaves the step as it is, with the reason.
func Cannot(code SkipCode, format string, args ...any) Move {
	return Move{Status: Skipped, Code: code, What: fmt.Sprintf(format, args...)}
}

// held returns a move that leaves the step half-done for now.
func (b *Begun) held(code SkipCode, why string) Move {
	m := Cannot(code, "it is half-done, and this run does not finish it: %s", why)
	if b.Undo {
		m = Cannot(code, "it is not finished: %s", why)
	}
	m.HalfDone = true
	return m
}

// Refs returns the objects to read again for the step: those that its kind depends on, those that
// were written, with their blocks, and those that decide whether any write is allowed.
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
		if was := e.Was(); e.Resource == blocks.Affinities { // its block and the competing affinities
			r.Claim(PrefixOf(state.Subject{CIDR: was.Spec.CIDR}), was.Spec.Node)
		}
	}
	return r.All
}

// next returns the next write that a half-done step requires, or the reason to wait.
//
// The interrupted run had evaluated and pinned the objects, so it was allowed to start the step.
// Therefore next deletes an object that the run marked deleted if it is still the same object and
// no one has written it since. If the run left an affinity in pendingDeletion but the block belongs
// to its host after all, next restores the affinity's state. It never removes a mark of deletion.
func (b *Begun) next() Move {
	if b.Kind == nil || b.Kind.Complete == nil || !b.Log.Unfinished {
		return Move{}
	}
	if g := b.State.FirstMissing(b.Kind.Requires); g != nil {
		return b.held(SkipHalfDone, fmt.Sprintf("a read that this needs is missing: %s", g))
	}
	m := b.Kind.Complete(b)
	if b.Undo && m.Do != nil && m.Code == "" {
		m.What, m.Code = "finish the half-done step: "+m.What, CodeFinished
	}
	return m
}

// Completion returns the next write with which a continued run completes the step, unless
// such a write is not allowed now.
func (b *Begun) Completion() Move {
	m := b.next()
	if r := b.closed(); m.Do != nil && r.Code != "" {
		return b.held(SkipCode(r.Code), r.Why)
	}
	return m
}

// Action returns the next action with which an undo handles the step.
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
	// Half-done remains keep the step open, even if the move by itself would close it.
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
	// An undo reverts a half-done step if it can, and finishes it otherwise.
	if b.Undo && b.Kind != nil && b.Log.Unfinished && !b.Log.Unwritten {
		if m := b.Kind.Undo(b); m.Do != nil {
			return m
		}
	}
	if m := b.next(); !m.None() {
		return m
	}
	if b.Log.Unwritten && !b.stands() {
		// The step wrote nothing or reverted its writes. If objects are missing now,
		// other clients deleted them.
		if a := b.Affinity(); a != nil && b.mustStay(a) == "" {
			return b.PutBack(a)
		}
		return Nothing(NotNeeded, "nothing was written: the step was skipped")
	}
	if b.Kind == nil {
		return Cannot(SkipUnknown, "this version does not support steps of kind %q, or the journal's plan lacks the step", b.Step.Kind)
	}
	return b.Kind.Undo(b)
}

// stands reports whether the step removes a reservation or a cordon that still exists,
// whichever part of its run made it.
func (b *Begun) stands() bool {
	return b.Kind != nil && b.Kind.Restores && b.Kind.Verify(b.State, b.Step) != nil
}

// Prove sets Log.Freed if the object in the cluster proves that the step released the
// address: calico-audit wrote the object last, soon after the journal's line, and its sequence
// number is the one that the step sets. Later writes destroy this proof, so an undo calls
// Prove before its first write.
func (b *Begun) Prove() {
	c := b.Log.Freeing
	if b.Log.Freed || c == nil {
		return
	}
	m := &blocks.Meta{}
	switch c.Resource {
	case blocks.Blocks:
		want := StoredObject(c.After).Spec.SequenceNumber
		x := Find(b.State.Blocks, func(x *blocks.Block) bool { return x.Name == c.Name })
		if x == nil || want == nil || x.Sequence != *want {
			return
		}
		m = &x.Meta
	case blocks.WhereaboutsPools:
		if p := SecondaryPoolNamed(b.State, c.Name); p != nil {
			m = &p.Meta
		}
	default: // the object was deleted and proves nothing
	}
	by := m.Written.Std()
	b.Log.Freed = m.ByUs && m.UID() == c.UID() && !by.Before(c.At.Add(-blocks.ClockSkew)) && !by.After(c.At.Add(blocks.WriteTimeout+blocks.ClockSkew))
}

// closed returns the reason why no write of the step is allowed now, by the same rules as
// for a plan. The code is empty if writes are allowed.
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

// leftover describes the half-done rest of the step, or returns "" if there is none.
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

// Affinity returns the affinity that the step wrote, or nil if it does not exist.
func (b *Begun) Affinity() *blocks.Affinity {
	if c := b.Log.First(blocks.Affinities); c != nil {
		return AffinityNamed(b.State, c.Name)
	}
	return nil
}

// SameAffinity returns Affinity if its UID is unchanged, or nil.
func (b *Begun) SameAffinity() *blocks.Affinity {
	if a := b.Affinity(); a != nil && a.UID() == b.Log.First(blocks.Affinities).UID() {
		return a
	}
	return nil
}

// LeftAffinity returns SameAffinity if it is the affinity of the step's target and its
// state is still as the step left it. Otherwise it returns nil.
func (b *Begun) LeftAffinity() *blocks.Affinity {
	a := b.SameAffinity()
	if a == nil || !b.Mine(a) || a.State != blocks.PendingDeletion && !a.SoftDeleted {
		return nil
	}
	return a
}

// Mine reports whether an affinity has the block and the owner of the step's target.
func (b *Begun) Mine(a *blocks.Affinity) bool {
	if a.CIDR != PrefixOf(b.Step.Target) {
		return false
	}
	if b.Step.Target.Kind == state.KindBlock {
		return OwnerGuard(a.Owner) == b.Step.Guard(GuardOwner)
	}
	return a.Owner.Node() == b.Step.Target.Node
}

// EndAffinity completes the deletion of the affinity that the step left, or restores its
// state if the block belongs to its host.
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

// DeleteAffinity deletes an affinity, pinned to the version that was read.
func (b *Begun) DeleteAffinity(a *blocks.Affinity, what string) Move {
	ref := Pin(blocks.Affinities, a.Meta)
	return ToWrite(func(ctx context.Context) error { return b.Writer.DeleteAffinity(ctx, ref) }, "%s", what)
}

// EndMark deletes an object that is marked deleted.
func (b *Begun) EndMark(r blocks.Resource, m blocks.Meta) Move {
	ref, word := Pin(r, m), ObjectNamed(b.State.Snapshot, r, m.Name).Word
	return ToWrite(func(ctx context.Context) error { return b.Writer.FinishDelete(ctx, ref) }, "deleting the %s that was marked", word)
}

// PutBack restores the state of the affinity that the step left in pendingDeletion.
func (b *Begun) PutBack(a *blocks.Affinity) Move {
	was := blocks.AffinityState(b.Log.First(blocks.Affinities).Was().Spec.State)
	if b.Undo && a.State == was && !a.SoftDeleted {
		return Nothing(Already, "the affinity is unchanged")
	}
	if a.SoftDeleted {
		return Cannot(SkipChanged, "the affinity was written since, and is marked deleted")
	}
	if a.State != blocks.PendingDeletion {
		return Cannot(SkipChanged, "the affinity was written since: its state is %q", a.State)
	}
	if why := b.mustStay(a); why != "" {
		return Cannot(SkipChanged, "the affinity's state is not restored to %q: %s; it stays pendingDeletion, and its node confirms it when it next takes an address from the block", was, why)
	}
	m := b.SetAffinity(a, was, "restore the affinity %s to its state %q", a.Name, was)
	m.Back = true
	return m
}

// SetAffinity sets the state of an affinity, pinned to the version that was read.
func (b *Begun) SetAffinity(a *blocks.Affinity, state blocks.AffinityState, format string, args ...any) Move {
	ref := Pin(blocks.Affinities, a.Meta)
	return ToWrite(func(ctx context.Context) error { return b.Writer.PutAffinityState(ctx, ref, state) }, format, args...)
}

// mustStay explains why an affinity that the step left in pendingDeletion must not get its state
// back, or returns "" if it may. Another client may be releasing the block at this moment. If that
// client found the affinity in pendingDeletion, it does not write the affinity. A confirmed
// affinity would then outlive the block. In pendingDeletion it does no harm.
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
		return "it is not the object that was written"
	case a.SoftDeleted:
		return "it is marked deleted"
	case a.State != blocks.PendingDeletion || StoredObject(last.After).Spec.State != string(blocks.PendingDeletion):
		return fmt.Sprintf("its state is %q, but the journal records another last write", a.State)
	case a.Written.IsZero() && !a.ByUs:
		return "it is not known whether another client has written it since, and may be releasing it"
	case a.Written.Std().After(last.At.Add(blocks.WriteTimeout + blocks.ClockSkew)):
		return fmt.Sprintf("another client has written it since, at %s, and may be releasing it", a.Written)
	case block == nil:
		return "its block does not exist"
	case block.SoftDeleted:
		return "its block is marked deleted: another client is releasing it"
	case block.Owner != a.Owner:
		return fmt.Sprintf("its block belongs to %s", block.Owner)
	}
	return ""
}
