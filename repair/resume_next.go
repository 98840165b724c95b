package repair

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// The functions of this file say what a half-done step needs next, and what must be
// there for it to be written.

// next returns the next write that a half-done step needs, and what it does; nil
// if none, so that the step is carried out like any other.
func (h *halfDone) next() (do func(context.Context) error, what string) {
	if g := h.state.FirstMissing(h.kind.needs); g != nil {
		h.held = fmt.Sprintf("a read that this needs is missing: %s", g)
		return nil, ""
	}
	switch h.step.Kind {
	case ReleaseBlock:
		if b := blockAt(h.state, h.step.Target.CIDR); b != nil {
			if b.UID == h.step.Guard(GuardUID) && b.SoftDeleted && b.Used == 0 {
				return h.markedBlock(b)
			}
			if b.UID == h.step.Guard(GuardUID) && b.Used == 0 && !h.undo {
				return h.release(b.Meta)
			}
		}
		return h.affinity()
	case DeleteAffinity:
		return h.affinity()
	case RestoreAffinity:
		return h.confirm()
	case DeleteHandle:
		if hd := handleNamed(h.state, h.nameOf(blocks.Handles)); hd != nil && hd.SoftDeleted {
			return h.markedHandle(hd)
		}
	case FinishDelete:
		return h.alongside()
	case ReleaseIP:
		return h.freed()
	default: // one write: it is done, or it is not
	}
	return nil, ""
}

// release goes on with a block of which only the affinity was written, if the
// step still comes out; else the affinity gets its state back.
func (h *halfDone) release(block blocks.Meta) (func(context.Context) error, string) {
	a := h.left()
	if a == nil {
		return nil, ""
	}
	derived, _ := Derive(h.state, h.asked, h.step.ID)
	if derived == nil {
		return h.putBack(a)
	}
	ref, affinity := pin(blocks.Blocks, block), pin(blocks.Affinities, a.Meta)
	return func(ctx context.Context) error {
		keeps, err := keptRef(h.state, derived)
		if err != nil {
			return err
		}
		return h.writer.ReleaseBlock(ctx, ref, &affinity, keeps)
	}, "releasing the block"
}

// left returns the affinity that the run wrote, if it is still the same object, is
// what the step is about, and still as the run left it.
func (h *halfDone) left() *blocks.Affinity {
	a := affinityNamed(h.state, h.nameOf(blocks.Affinities))
	if a == nil || a.UID != h.uidOf(blocks.Affinities) || !h.mine(a) || a.State != blocks.PendingDeletion && !a.SoftDeleted {
		return nil
	}
	return a
}

// mine tells whether an affinity is of the block and the owner that the step is
// about.
func (h *halfDone) mine(a *blocks.Affinity) bool {
	if a.CIDR != prefixOf(h.step.Target) {
		return false
	}
	if h.step.Target.Kind == audit.KindBlock {
		return ownerGuard(a.Owner) == h.step.Guard(GuardOwner)
	}
	return a.Owner.Node() == h.step.Target.Node
}

// affinity completes the deletion of an affinity, or takes it back where the block
// is the host's.
func (h *halfDone) affinity() (func(context.Context) error, string) {
	a := h.left()
	if a == nil {
		return nil, ""
	}
	b := blockAt(h.state, a.CIDR.String())
	if b != nil && b.Owner == a.Owner {
		return h.putBack(a)
	}
	if b == nil {
		if _, h.held = (&proposals{st: h.state}).heldWithoutBlock(a); h.held != "" {
			return nil, ""
		}
	}
	ref := pin(blocks.Affinities, a.Meta)
	if a.SoftDeleted {
		return func(ctx context.Context) error { return h.writer.FinishDelete(ctx, ref) }, "deleting the affinity that was marked"
	}
	return func(ctx context.Context) error { return h.writer.DeleteAffinity(ctx, ref) }, "deleting the affinity"
}

func (h *halfDone) putBack(a *blocks.Affinity) (func(context.Context) error, string) {
	if h.opts.Restore == nil || a.SoftDeleted {
		return nil, ""
	}
	c := firstChange(h.changes, blocks.Affinities)
	if h.stays = mustStay(h.state, h.opts.Resume, h.step.ID, a, c); h.stays != "" {
		return nil, ""
	}
	was := blocks.AffinityState(storedObject(c.Before).Spec.State)
	ref := pin(blocks.Affinities, a.Meta)
	return func(ctx context.Context) error { return h.opts.Restore.PutAffinityState(ctx, ref, was) }, putBack
}

// confirm confirms the affinity that the run created, if the block still names its
// host.
func (h *halfDone) confirm() (func(context.Context) error, string) {
	b := blockAt(h.state, h.step.Target.CIDR)
	a := affinityNamed(h.state, h.nameOf(blocks.Affinities))
	if h.opts.Restore == nil || b == nil || a == nil || b.Owner != a.Owner || a.State != blocks.Pending || a.CIDR != b.CIDR {
		return nil, ""
	}
	ref := pin(blocks.Affinities, a.Meta)
	return func(ctx context.Context) error { return h.opts.Restore.PutAffinityState(ctx, ref, blocks.Confirmed) }, "confirming the affinity"
}

// nameOf and uidOf are those of the object of a resource that the run wrote.
func (h *halfDone) nameOf(r blocks.Resource) string {
	if c := firstChange(h.changes, r); c != nil {
		return c.Name
	}
	return ""
}

func (h *halfDone) uidOf(r blocks.Resource) string {
	if c := firstChange(h.changes, r); c != nil {
		return storedObject(c.Before).Metadata.UID
	}
	return ""
}
