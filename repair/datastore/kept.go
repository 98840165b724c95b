package datastore

import (
	"cmp"
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// The functions of this file ensure that a node keeps one block when another of its
// blocks is released. Calico's collector also releases empty blocks, one at a time of a
// node with several (kube-controllers pkg/controllers/node/ipam.go, checkEmptyBlocks). It
// may choose the kept block at the same moment.

// keeps returns [repair.ErrChanged] unless the kept block is the same object with the
// same owner and is not being released. Only an empty block can be released, and its
// affinity is set to pendingDeletion first. If kept is nil, the node has no block to
// keep.
func (w *Writer) keeps(ctx context.Context, kept *repair.ObjectRef, owner blocks.Owner) error {
	if kept == nil {
		return nil
	}
	b, err := w.same(ctx, *kept)
	if err != nil {
		return err
	}
	c, err := claimOf(b)
	if err != nil {
		return err
	}
	if err := notMarked(b); err != nil {
		return err
	}
	if c.owner != owner {
		return changedf("%s now belongs to %q", b, c.owner)
	}
	switch err := noAllocation(b); {
	case isChanged(err):
		return freeAddress(b) // it is in use
	case err != nil:
		return err
	}
	a, err := w.get(ctx, blocks.Affinities, blocks.AffinityName(owner.Name, c.cidr))
	if err != nil || a == nil {
		return err
	}
	marked, err := a.marked()
	if err == nil && (marked || a.state() == blocks.PendingDeletion) {
		err = changedf("%s is being released", b)
	}
	return err
}

// lost handles a block that was deleted although the block that its owner was to keep no longer
// exists, or may not exist. It claims the deleted block again, as Calico claims a block
// (libcalico-go ipam/ipam_block_reader_writer.go, getPendingAffinity and claimAffineBlock), unless
// another client has claimed it. The step does not count as done.
func (r *releasing) lost(ctx context.Context, why error) error {
	if !isChanged(why) {
		left := leftBehind(blocks.Blocks, r.kept.Name, fmt.Sprintf("may not exist, although %s should keep it", r.claim.owner.Name), why)
		if err := r.finished(ctx); err != nil {
			left = fmt.Errorf("%w; and %w", left, err)
		}
		return left
	}
	return leftBehind(blocks.Blocks, r.kept.Name, fmt.Sprintf("is deleted or being deleted, although %s should keep it, and %s", r.claim.owner.Name, r.claimBack(ctx)), why)
}

// claimBack claims the released block again and describes the result.
func (r *releasing) claimBack(ctx context.Context) string {
	begun, anothers := false, false
	_, tree, err := r.asStored(blocks.Blocks, r.block.raw)
	if err == nil {
		err = r.makeClaim(ctx, r.claim, r.affinity, func(a *object) error {
			begun = true
			if _, err := r.create(ctx, blocks.Blocks, tree); err != nil && !isChanged(err) {
				return leftPending(a, err)
			}
			b, its, err := r.blockOf(ctx, r.claim)
			switch {
			case err != nil:
				return leftPending(a, err)
			case its:
				return nil
			}
			anothers = true
			return r.takeBack(ctx, changedf("%s does not belong to its host", cmp.Or(b, r.block)), a)
		})
	}
	switch {
	case err == nil:
		return fmt.Sprintf("%s was claimed again for its node", r.block)
	case !begun && isChanged(err):
		return fmt.Sprintf("the node of %s can claim it again", r.block)
	case anothers && isChanged(err):
		return fmt.Sprintf("%s was claimed by another node meanwhile", r.block)
	}
	return fmt.Sprintf("%s could not be claimed again for its node (%v)", r.block, err)
}

// freeAddress returns an error unless a block has a free address for its node's next pod.
func freeAddress(b *object) error {
	v, _ := dig(b.tree, "spec", "unallocated")
	list, ok := v.([]any)
	if !ok && v != nil {
		return fmt.Errorf("spec.unallocated of %s is not a list", b)
	}
	if len(list) == 0 {
		return changedf("%s, which its node should keep, has no free address left", b)
	}
	return nil
}
