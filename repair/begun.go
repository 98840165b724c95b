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

// begun is a step that a journal tells of, in the cluster as it is now: what it came to,
// and what is to be done next to bring it to an end, or to take it back.
type begun struct {
	*run
	log  *stepLog
	step *Step
	kind *stepKind // nil for one that this version does not know
	// undo: nothing of the step is carried out but what cannot be taken back.
	undo bool
}

// begunStep returns what a journal tells of a step of its plan.
func (x *run) begunStep(f *JournalFile, id string, undo bool) *begun {
	s := f.Step(id)
	if s == nil {
		s = &Step{ID: id}
	}
	return &begun{run: x, log: f.log(id), step: s, kind: kindOf(s.Kind), undo: undo}
}

// move is what is to be done next about a step: a write, or nothing. The zero value is
// nothing, without a word.
type move struct {
	do func(context.Context) error
	// what says what the write does or, without one, why there is none.
	what   string
	status Status
	// code is why there is no write, or [CodeFinished] for one by which an undo finishes
	// the step.
	code SkipCode
	// back is true for a write that takes the step back instead of completing it.
	back bool
	// halfDone is true if there is no write though the step is half-done.
	halfDone bool
}

// none reports whether there is neither a write nor a reason for there being none.
func (m move) none() bool { return m.do == nil && m.status == "" }

func (m move) outcome() Outcome {
	if m.do != nil {
		return Outcome{Status: Planned, Code: m.code, Reason: m.what}
	}
	return Outcome{Status: m.status, Code: m.code, Reason: m.what}
}

func open(s Status) bool { o := Outcome{Status: s}; return o.Open() }

func toWrite(do func(context.Context) error, format string, args ...any) move {
	return move{do: do, what: fmt.Sprintf(format, args...)}
}

func nothing(s Status, why string) move { return move{status: s, what: why} }

func cannot(code SkipCode, format string, args ...any) move {
	return move{status: Skipped, code: code, what: fmt.Sprintf(format, args...)}
}

// held is the move of a step that is left as it is for now.
func (b *begun) held(code SkipCode, why string) move {
	if b.undo {
		return cannot(code, "it is not finished: %s", why)
	}
	return cannot(code, "it was left half-done, and is not completed now: %s", why)
}

// refs are the objects of the step: what its kind rests on, those that were written,
// with their blocks; and what says whether anything may be written at all.
func (b *begun) refs() []blocks.Ref {
	r := newRefs(b.state)
	if b.kind != nil {
		b.kind.refs(r, b.step)
	}
	for _, e := range b.log.changes {
		if namespace, name, of := strings.Cut(e.Change.Name, "/"); of {
			r.pod(namespace, name)
			continue
		}
		r.one(e.Change.Resource, e.Change.Name)
		if was := e.Change.was(); e.Change.Resource == blocks.Affinities && was.Spec.CIDR != "" { // its block, and who else claims that
			r.claim(prefixOf(state.Subject{CIDR: was.Spec.CIDR}), was.Spec.Node)
		}
	}
	return r.out
}

// next returns the next write that a half-done step needs, or why it has to wait.
//
// What the run that broke off had begun it had the right to begin: it judged the
// objects and pinned them. So what it left marked for deletion is deleted, if it is
// still the same object and nothing has been done with it since; and an affinity that
// it left in pendingDeletion, though the block is its host's after all, gets its state
// back. No one takes a mark of deletion away.
func (b *begun) next() move {
	if b.kind == nil || b.kind.complete == nil || !b.log.unfinished {
		return move{}
	}
	if g := b.state.FirstMissing(b.kind.needs); g != nil {
		return b.held(SkipHalfDone, fmt.Sprintf("a read that this needs is missing: %s", g))
	}
	m := b.kind.complete(b)
	if b.undo && m.do != nil && m.code == "" {
		m.what, m.code = "finish the step, which was left half-done: "+m.what, CodeFinished
	}
	return m
}

// action returns what an undo does next about the step.
func (b *begun) action() move {
	m := b.evaluate()
	if m.do != nil {
		if r := b.closed(); r.code != "" {
			m = cannot(SkipCode(r.code), "%s", r.why)
		}
	}
	if m.do != nil {
		return m
	}
	// What is left half-done all the same makes the step open, whatever else is said.
	switch left := b.leftover(); {
	case left == "":
		return m
	case open(m.status):
		m.what += "; " + left
	default:
		m = cannot(SkipHalfDone, "%s", left)
	}
	m.halfDone = true
	return m
}

func (b *begun) evaluate() move {
	for _, e := range b.log.changes {
		if g, missing := b.state.Missing(e.Change.Resource); missing {
			return cannot(SkipCode(RefusedNotRead), "not judged: %s", g)
		}
		for _, g := range b.state.Unreadable(e.Change.Resource) {
			if g.Name == e.Change.Name {
				return cannot(SkipCode(RefusedNotRead), "not judged: %s", g)
			}
		}
	}
	if m := b.next(); !m.none() {
		return m
	}
	if b.log.proof == unwritten {
		// It wrote nothing, or took it back; what is missing now, others have taken away.
		if a := b.affinity(); a != nil && b.mustStay(a) == "" {
			return b.putBack(a)
		}
		return nothing(NotNeeded, "nothing was written: the step was skipped")
	}
	if b.kind == nil {
		return cannot(SkipUnknown, "this version knows no steps of kind %q, or the journal's plan lacks the step", b.step.Kind)
	}
	return b.kind.undo(b)
}

// closed says why nothing of the step may be written now, by the same gate that a plan
// goes through; an empty code if it may.
func (b *begun) closed() reason {
	g, missing := b.state.Missing(blocks.ClusterInfos)
	if unread := b.state.Unreadable(blocks.ClusterInfos); !missing && len(unread) > 0 {
		g, missing = unread[0], true
	}
	if missing {
		return because(RefusedNotRead, "whether the datastore is locked is not known: %s", g)
	}
	return (&proposals{st: b.state, req: b.asked(), kind: cmp.Or(b.kind, &stepKind{})}).barred()
}

// asked is what the journal's plan was asked for.
func (b *begun) asked() Request { return b.file.Plan.Request }

// leftover names what the step has left half-done; "" if nothing.
func (b *begun) leftover() string {
	for _, r := range []blocks.Resource{blocks.Blocks, blocks.Affinities, blocks.Handles} {
		c := b.log.first(r)
		if c == nil {
			continue
		}
		o := objectNamed(b.state.Snapshot, r, c.Name)
		if o == nil || c.Before != nil && o.UID != c.was().Metadata.UID || !b.log.ours(*o.Meta) {
			continue
		}
		if o.marked {
			return fmt.Sprintf("%s %s is left marked deleted: \"repair --soft-deleted\" removes it, or Calico when it reads it by name", o.word, o.Name)
		}
		if a := affinityNamed(b.state, o.Name); r == blocks.Affinities && a.Effective() != blocks.Confirmed && string(a.State) != c.was().Spec.State {
			return fmt.Sprintf("affinity %s is left %s", a.Name, a.State)
		}
	}
	var behind *LeftBehindError
	if b.kind != nil && b.log.unfinished && errors.As(b.kind.verify(b.state, b.step), &behind) {
		return behind.Error()
	}
	return ""
}

// affinity returns the affinity that the step wrote; nil if it is gone.
func (b *begun) affinity() *blocks.Affinity {
	if c := b.log.first(blocks.Affinities); c != nil {
		return affinityNamed(b.state, c.Name)
	}
	return nil
}

// sameAffinity is affinity, if it is still the same object.
func (b *begun) sameAffinity() *blocks.Affinity {
	if a := b.affinity(); a != nil && a.UID == b.log.first(blocks.Affinities).was().Metadata.UID {
		return a
	}
	return nil
}

// leftAffinity is sameAffinity, if it is what the step is about, and still as it was left.
func (b *begun) leftAffinity() *blocks.Affinity {
	a := b.sameAffinity()
	if a == nil || !b.mine(a) || a.State != blocks.PendingDeletion && !a.SoftDeleted {
		return nil
	}
	return a
}

// mine reports whether an affinity is of the block and the owner that the step is about.
func (b *begun) mine(a *blocks.Affinity) bool {
	if a.CIDR != prefixOf(b.step.Target) {
		return false
	}
	if b.step.Target.Kind == state.KindBlock {
		return ownerGuard(a.Owner) == b.step.Guard(GuardOwner)
	}
	return a.Owner.Node() == b.step.Target.Node
}

// endAffinity completes the deletion of the affinity that was left, or takes it back
// where the block is its host's.
func (b *begun) endAffinity() move {
	a := b.leftAffinity()
	if a == nil {
		return move{}
	}
	switch block := blockAt(b.state, a.CIDR.String()); {
	case block != nil && block.Owner == a.Owner && (b.undo || a.SoftDeleted):
		return move{}
	case block != nil && block.Owner == a.Owner:
		return b.putBack(a)
	case block == nil:
		if r := (&proposals{st: b.state}).retainedWithoutBlock(a); r.code != "" {
			return b.held(SkipHalfDone, r.why)
		}
	}
	if a.SoftDeleted {
		return b.endMark(blocks.Affinities, a.Meta)
	}
	return b.deleteAffinity(a, "deleting the affinity")
}

func (b *begun) deleteAffinity(a *blocks.Affinity, what string) move {
	ref := pin(blocks.Affinities, a.Meta)
	return toWrite(func(ctx context.Context) error { return b.writer.DeleteAffinity(ctx, ref) }, "%s", what)
}

// endMark deletes an object that was marked.
func (b *begun) endMark(r blocks.Resource, m blocks.Meta) move {
	ref, word := pin(r, m), objectNamed(b.state.Snapshot, r, m.Name).word
	return toWrite(func(ctx context.Context) error { return b.writer.FinishDelete(ctx, ref) }, "deleting the %s that was marked", word)
}

// putBack gives the affinity that was left in pendingDeletion the state that it had.
func (b *begun) putBack(a *blocks.Affinity) move {
	was := blocks.AffinityState(b.log.first(blocks.Affinities).was().Spec.State)
	if b.undo && a.State == was {
		return nothing(Already, "the affinity is as it was")
	}
	if a.State != blocks.PendingDeletion || a.SoftDeleted {
		return cannot(SkipChanged, "the affinity was written since: its state is %q", a.State)
	}
	if why := b.mustStay(a); why != "" {
		return cannot(SkipChanged, "the affinity does not get its state %q back: %s; it stays pendingDeletion, and its node confirms it when it next takes an address from the block", was, why)
	}
	m := b.setAffinity(a, was, "give the affinity %s its state %q back", a.Name, was)
	m.back = true
	return m
}

func (b *begun) setAffinity(a *blocks.Affinity, state blocks.AffinityState, format string, args ...any) move {
	ref := pin(blocks.Affinities, a.Meta)
	return toWrite(func(ctx context.Context) error { return b.writer.PutAffinityState(ctx, ref, state) }, format, args...)
}

// mustStay says why the affinity that the step has left in pendingDeletion must not get
// its state back; "" if it may. Somebody else may be releasing the block at this
// moment and, if they find the affinity in that state already, do not write it:
// confirmed under them, it would outlive the block. Left alone, it does no harm.
func (b *begun) mustStay(a *blocks.Affinity) string {
	c := b.log.first(blocks.Affinities)
	var last JournalEntry
	for _, e := range b.log.changes {
		if e.Change.Resource == blocks.Affinities && e.Change.Name == a.Name {
			last = e
		}
	}
	block := blockAt(b.state, a.CIDR.String())
	switch {
	case c == nil || c.Before == nil || a.UID != c.was().Metadata.UID:
		return "it is another object than the one that was written"
	case a.SoftDeleted:
		return "it is marked deleted"
	case a.State != blocks.PendingDeletion || storedObject(last.Change.After).Spec.State != string(blocks.PendingDeletion):
		return fmt.Sprintf("its state is %q, which is not what the journal says was written last", a.State)
	case a.Written.After(last.At.Add(writeTimeout + futureLeeway)):
		return fmt.Sprintf("somebody else wrote it since, at %s, and may be releasing it", phrase.Time(a.Written))
	case block == nil:
		return "its block does not exist"
	case block.SoftDeleted:
		return "its block is marked deleted: somebody is releasing it"
	case block.Owner != a.Owner:
		return fmt.Sprintf("its block belongs to %s", ownerText(block.Owner))
	}
	return ""
}
