package repair

import (
	"context"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// The functions of this file say what is left of steps that write a second object
// after the first: a release of an address lowers its handle, the end of a marked
// block takes its owner's affinity along.

// markedBlock deletes a block that the run marked.
func (h *halfDone) markedBlock(b *audit.Block) (func(context.Context) error, string) {
	ref := pin(blocks.Blocks, b.Meta)
	return func(ctx context.Context) error { return h.writer.FinishDelete(ctx, ref) }, "deleting the block that was marked"
}

// freed completes what follows when an address was freed: a block of nobody that
// became empty goes, and the handle is lowered.
func (h *halfDone) freed() (func(context.Context) error, string) {
	for i := range h.state.IPBlocks {
		b := h.state.IPBlocks[i]
		if b.Name == h.nameOf(blocks.Blocks) && b.UID == h.uidOf(blocks.Blocks) && b.SoftDeleted && b.Used == 0 {
			return h.markedBlock(b)
		}
	}
	return h.lowered()
}

// lowered lowers the handle of an address that was freed, or deletes it, as far as
// the handle and the blocks now give reason for that: the same verdicts as
// --leaked-handles, without a second observation, for the run that broke off knew
// why the handle counts too many. What they do not allow is left.
func (h *halfDone) lowered() (func(context.Context) error, string) {
	id := h.step.Guard(GuardHandle)
	hd := h.state.Handle(id)
	if hd == nil || verifyIP(h.state, h.step) != nil {
		return nil, ""
	}
	if hd.SoftDeleted {
		return h.markedHandle(hd)
	}
	request := Request{LeakedHandles: true, AllowNewer: h.asked.AllowNewer}
	for _, kind := range []*stepKind{deleteHandle, fixHandleCount} {
		derived, _ := Derive(h.state, request, stepID(kind.kind, audit.HandleSubject(hd.ID)))
		if derived != nil {
			return func(ctx context.Context) error { return kind.do(ctx, h.writer, h.state, derived) }, "lowering the address's handle"
		}
	}
	return nil, ""
}

// markedHandle deletes a handle that the run marked.
func (h *halfDone) markedHandle(hd *blocks.Handle) (func(context.Context) error, string) {
	if hd.UID != h.uidOf(blocks.Handles) || len(h.state.HandleRefs(hd.ID)) > 0 {
		return nil, ""
	}
	ref := pin(blocks.Handles, hd.Meta)
	return func(ctx context.Context) error { return h.writer.FinishDelete(ctx, ref) }, "deleting the handle that was marked"
}

// alongside completes the deletion of the affinity that goes with a marked block,
// once the block is gone. If its node has written it since, it is the node's.
func (h *halfDone) alongside() (func(context.Context) error, string) {
	if h.step.Target.Kind != audit.KindBlock || blockAt(h.state, h.step.Target.CIDR) != nil {
		return nil, ""
	}
	if h.left() != nil {
		return h.affinity()
	}
	a := affinityNamed(h.state, h.step.Guard(GuardAffinity))
	if a == nil || a.SoftDeleted || !h.mine(a) || a.UID != h.step.Guard(GuardAffinityUID) || string(a.Effective()) != h.step.Guard(GuardAffinityState) {
		return nil, ""
	}
	ref := pin(blocks.Affinities, a.Meta)
	return func(ctx context.Context) error { return h.writer.DeleteAffinity(ctx, ref) }, "deleting the affinity of the block that was marked"
}
