package datastore

import (
	"cmp"
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// The functions of this file see to it that a node keeps a block when another of its
// blocks is released. Calico's collector releases empty blocks, too, one of a node
// that has several (kube-controllers pkg/controllers/node/ipam.go, checkEmptyBlocks),
// and may take the one that the node was to keep at the same moment.

// keeps is [repair.ErrChanged] unless a block is still the same object, its owner's and
// to stay. Anyone who releases it, which only an empty one can be, makes its affinity
// pendingDeletion first. nil stands for a node that has none to keep.
func (k *Kubernetes) keeps(ctx context.Context, kept *repair.ObjectRef, owner blocks.Owner) error {
	if kept == nil {
		return nil
	}
	b, err := k.same(ctx, *kept)
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
		return changedf("%s belongs to %q by now", b, c.owner)
	}
	switch err := noAllocation(b); {
	case isChanged(err):
		return freeAddress(b) // it is in use
	case err != nil:
		return err
	}
	a, err := k.get(ctx, blocks.Affinities, blocks.AffinityName(owner.Name, c.cidr))
	if err != nil || a == nil {
		return err
	}
	marked, err := a.marked()
	if err == nil && (marked || a.state() == blocks.PendingDeletion) {
		err = changedf("%s is being released", b)
	}
	return err
}

// lost goes on when the block is gone, and with it, or as far as can be told, the one
// that its owner was to keep. The block is claimed back as Calico claims one
// (libcalico-go ipam/ipam_block_reader_writer.go, getPendingAffinity and
// claimAffineBlock), unless somebody has it by now; and the step is not done.
func (r *releasing) lost(ctx context.Context, why error) error {
	if !isChanged(why) {
		left := leftBehind(blocks.Blocks, r.kept.Name, fmt.Sprintf("is not known to be there, though %s was to keep it", r.claim.owner.Name), why)
		if err := r.finished(ctx); err != nil {
			left = fmt.Errorf("%w; and %w", left, err)
		}
		return left
	}
	return leftBehind(blocks.Blocks, r.kept.Name, fmt.Sprintf("is gone or going, though %s was to keep it, and %s", r.claim.owner.Name, r.claimBack(ctx)), why)
}

// claimBack claims the block that was released, and says what became of it.
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
			return r.takeBack(ctx, changedf("%s is not its host's", cmp.Or(b, r.block)), a)
		})
	}
	switch {
	case err == nil:
		return fmt.Sprintf("%s was claimed back for it", r.block)
	case !begun && isChanged(err):
		return fmt.Sprintf("%s is its node's to claim again", r.block)
	case anothers && isChanged(err):
		return fmt.Sprintf("%s was claimed by another node meanwhile", r.block)
	}
	return fmt.Sprintf("%s could not be claimed back (%v)", r.block, err)
}

// freeAddress makes sure that a block has an address for its node's next pod.
func freeAddress(b *object) error {
	v, _ := dig(b.tree, "spec", "unallocated")
	list, ok := v.([]any)
	if !ok && v != nil {
		return fmt.Errorf("spec.unallocated of %s is not a list", b)
	}
	if len(list) == 0 {
		return changedf("%s, which its node was to keep, has no free address left", b)
	}
	return nil
}
