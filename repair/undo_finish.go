package repair

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

// The functions of this file say what an undo does about steps that their run left
// half-done. An affinity in pendingDeletion on its own host's block gets its state
// back; nobody takes a mark of deletion away, and what it stands on is deleted.

// finish returns the next write of a half-done step that cannot be taken back as it
// stands; none if there is nothing to finish, or if it must not be.
func (u *undoing) finish(s *Step, changes []Change) undoAction {
	kind := kindOf(s.Kind)
	if kind == nil || !u.file.unfinished(s.ID) {
		return undoAction{}
	}
	if s.Kind == RestoreAffinity {
		return u.finishRestore(s, changes)
	}
	h := u.half(s, kind, changes)
	do, what := h.next()
	if do == nil && h.held != "" {
		return cannotUndo(SkipHalfDone, "it is not finished: %s", h.held)
	}
	return undoAction{do: do, what: "finish the step, which was left half-done: " + what, code: CodeFinished}
}

func (u *undoing) half(s *Step, kind *stepKind, changes []Change) *halfDone {
	return &halfDone{
		applying: &applying{run: u.run, writer: u.writer}, step: s, kind: kind, changes: changes, asked: u.file.Plan.Request, undo: true,
	}
}

// finishRestore ends a claim that was left pending: it is confirmed where the block
// is its host's, and goes where the block is not.
func (u *undoing) finishRestore(s *Step, changes []Change) undoAction {
	c := firstChange(changes, blocks.Affinities)
	if c == nil {
		return undoAction{}
	}
	a := affinityNamed(u.state, c.Name)
	if a == nil || a.State != blocks.Pending || a.SoftDeleted || a.CIDR != prefixOf(s.Target) || !u.file.ours(s.ID, a.Meta) {
		return undoAction{}
	}
	ref := pin(blocks.Affinities, a.Meta)
	b := blockAt(u.state, s.Target.CIDR)
	if b == nil || b.Owner != a.Owner {
		return undoAction{
			do:   func(ctx context.Context) error { return u.writer.DeleteAffinity(ctx, ref) },
			what: fmt.Sprintf("delete the affinity %s, which was created and left pending, and whose block is not its host's", a.Name), code: CodeFinished,
		}
	}
	if code, _ := u.noNode(a.Owner.Node()); code != "" {
		return undoAction{}
	}
	return undoAction{
		do:   func(ctx context.Context) error { return u.back.PutAffinityState(ctx, ref, blocks.Confirmed) },
		what: fmt.Sprintf("finish the step, which was left half-done: confirm the affinity %s, without which the block would not be routed", a.Name), code: CodeFinished,
	}
}

// named adds to the verdict on a step for which nothing is written what of it is
// left half-done all the same: then the step is open, whatever else is said of it.
func (u *undoing) named(s *Step, act undoAction) undoAction {
	left := u.leftover(s)
	switch {
	case left == "":
		return act
	case open(act.status):
		act.what += "; " + left
	default:
		act = cannotUndo(SkipHalfDone, "%s", left)
	}
	act.halfDone = true
	return act
}

// leftover names what a step has left half-done; "" if nothing.
func (u *undoing) leftover(s *Step) string {
	changes := u.file.Changes(s.ID)
	for _, r := range []blocks.Resource{blocks.Blocks, blocks.Affinities, blocks.Handles} {
		c := firstChange(changes, r)
		if c == nil {
			continue
		}
		m, what := u.leftObject(c)
		if m != nil && (c.Before == nil || m.UID == storedObject(c.Before).Metadata.UID) && u.file.ours(s.ID, *m) {
			return what
		}
	}
	kind := kindOf(s.Kind)
	if kind == nil || !u.file.unfinished(s.ID) {
		return ""
	}
	switch s.Kind {
	case FinishDelete:
		if wrong := kind.verify(u.state, s); wrong != nil && marked(u.state, s) == nil {
			return wrong.Error()
		}
	case ReleaseIP:
		if verifyIP(u.state, s) == nil && u.half(s, kind, changes).remark() != "" {
			return "the address is free, and its handle counts too many, which \"repair --leaked-handles\" puts right"
		}
	default: // what it writes is looked at above
	}
	return ""
}

// leftObject returns the object of a change if it is in a state that no step leaves
// it in, and says in which; nil if it is gone or as it should be.
func (u *undoing) leftObject(c *Change) (*blocks.Meta, string) {
	const gone = "%s %s is left marked deleted: \"repair --soft-deleted\" removes it, or Calico when it reads it by name"
	switch c.Resource {
	case blocks.Blocks:
		for _, b := range u.state.IPBlocks {
			if b.Name == c.Name && b.SoftDeleted {
				return &b.Meta, fmt.Sprintf(gone, "block", b.Name)
			}
		}
	case blocks.Handles:
		if h := handleNamed(u.state, c.Name); h != nil && h.SoftDeleted {
			return &h.Meta, fmt.Sprintf(gone, "handle", h.Name)
		}
	case blocks.Affinities:
		a := affinityNamed(u.state, c.Name)
		switch {
		case a == nil:
		case a.SoftDeleted:
			return &a.Meta, fmt.Sprintf(gone, "affinity", a.Name)
		case a.Effective() != blocks.Confirmed && string(a.State) != storedObject(c.Before).Spec.State:
			return &a.Meta, fmt.Sprintf("affinity %s is left %s", a.Name, a.State)
		}
	default: // written at once
	}
	return nil, ""
}
