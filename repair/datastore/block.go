package datastore

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// ReleaseBlock deletes an empty block and then its owner's affinity, as
// releaseBlockAffinity does (libcalico-go ipam/ipam_block_reader_writer.go). It sets the
// affinity to pendingDeletion, marks the block deleted in the version that was evaluated
// as empty, deletes the block, marks the affinity and deletes it.
//
// It reads the block that the owner keeps before the first write, after it, and after the
// block's deletion. If the kept block is being released, too, the released block is
// restored.
//
// If another client writes the block in between, the affinity gets its state back. If the
// owner claims the CIDR again in between, the affinity belongs to that claim. Unlike
// Calico, ReleaseBlock reads the block again at the end: a client that had found the
// affinity confirmed may have created the block again, which then gets a new affinity.
func (w *Writer) ReleaseBlock(ctx context.Context, block repair.ObjectRef, affinity, keeps *repair.ObjectRef) error {
	r := &releasing{Writer: w, kept: keeps}
	return w.step(ctx, "releasing", block, func(ctx context.Context, b *object) (err error) {
		r.block = b
		if r.claim, err = emptyBlock(b); err != nil {
			return err
		}
		if r.affinity, err = w.affinityOf(ctx, r.claim, affinity); err != nil {
			return err
		}
		return w.keeps(ctx, keeps, r.claim.owner)
	}, r.release)
}

// claim is a CIDR with its block's owner or the owner of an affinity to it.
type claim struct {
	owner blocks.Owner
	cidr  netip.Prefix
}

// emptyBlock returns a block's claim, or an error if the block itself shows that it must
// not be deleted.
func emptyBlock(b *object) (claim, error) {
	c, err := claimOf(b)
	if err != nil {
		return c, err
	}
	if err := notMarked(b); err != nil {
		return c, err
	}
	if c.owner != (blocks.Owner{}) && c.owner.Kind != blocks.HostOwner {
		return c, fmt.Errorf("%s belongs to %q, which is not a node", b, c.owner)
	}
	return c, noAllocation(b)
}

// claimOf returns the claim of a block or an affinity.
func claimOf(o *object) (claim, error) {
	owner, err := o.owner()
	if err != nil {
		return claim{}, err
	}
	cidr, err := o.cidr()
	return claim{owner, cidr}, err
}

// noAllocation returns an error unless every entry of a block's allocations is null.
func noAllocation(b *object) error {
	v, _ := dig(b.tree, "spec", "allocations")
	list, ok := v.([]any)
	if !ok {
		return fmt.Errorf("spec.allocations of %s is not a list", b)
	}
	for ordinal, index := range list {
		if index != nil {
			return changedf("%s holds an allocation, at ordinal %d", b, ordinal)
		}
	}
	return nil
}

// affinityOf reads the owner's affinity to a block. If ref is nil, no affinity may exist
// under the canonical name.
func (w *Writer) affinityOf(ctx context.Context, c claim, ref *repair.ObjectRef) (*object, error) {
	if ref == nil {
		if c.owner.Node() == "" {
			return nil, nil
		}
		a, err := w.get(ctx, blocks.Affinities, blocks.AffinityName(c.owner.Name, c.cidr))
		if err == nil && a != nil {
			err = changedf("%s exists by now", a)
		}
		return nil, err
	}
	a, err := w.evaluated(ctx, *ref)
	if err != nil {
		return nil, err
	}
	found, err := claimOf(a)
	if err == nil && found != c {
		err = fmt.Errorf("%s is of %s to %s, and the block is %s of %s", a, found.owner, found.cidr, c.cidr, c.owner)
	}
	return a, err
}

// release is ReleaseBlock from its first write on.
func (r *releasing) release(ctx context.Context, _ *object) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	if r.affinity != nil {
		if err := r.keeps(ctx, r.kept, r.claim.owner); err != nil {
			return r.keep(ctx, err)
		}
	}
	if marked, err := r.markAndRemove(ctx, newEdit(r.block)); err != nil {
		return r.notDeleted(ctx, marked, err)
	}
	return r.deleted(ctx)
}

// begin sets the affinity to pendingDeletion.
func (r *releasing) begin(ctx context.Context) error {
	if r.affinity == nil {
		return nil
	}
	r.was = r.affinity.state()
	a, err := r.setState(ctx, r.affinity, blocks.PendingDeletion)
	if err == nil {
		r.affinity = a
	}
	return err
}

// releasing is a block that is being released or disowned.
type releasing struct {
	*Writer
	claim    claim
	block    *object
	affinity *object              // as last written; nil if there is none
	was      blocks.AffinityState // its state before the step
	kept     *repair.ObjectRef    // the block that the owner keeps; nil if none
}

// deleted continues after the block was deleted by any client.
func (r *releasing) deleted(ctx context.Context) error {
	if err := r.keeps(ctx, r.kept, r.claim.owner); err != nil {
		return r.lost(ctx, err)
	}
	return r.finished(ctx)
}

// finished deletes the affinity of a block that no longer exists.
func (r *releasing) finished(ctx context.Context) error {
	if r.affinity != nil {
		if err := r.dropAffinity(ctx, r.affinity); err != nil {
			return fmt.Errorf("the block's owner has changed, but the former owner's affinity is left: %w", err)
		}
	}
	err := r.dropConfirmed(ctx)
	if err == nil {
		err = r.restoreIfClaimed(ctx, r.claim)
	}
	if err != nil && !isChanged(err) {
		return fmt.Errorf("the block's owner has changed: %w", err)
	}
	return nil
}

// dropConfirmed deletes an affinity that its host confirmed although the block no longer exists or
// has another owner. This may have happened right before the block was marked here, because
// Calico's claimAffineBlock confirms an affinity without writing the block if the host already owns
// it. The claim of a pending affinity completes on its own.
func (r *releasing) dropConfirmed(ctx context.Context) error {
	if r.claim.owner.Node() == "" {
		return nil
	}
	name := blocks.AffinityName(r.claim.owner.Name, r.claim.cidr)
	if r.affinity != nil {
		name = r.affinity.name()
	}
	a, err := r.get(ctx, blocks.Affinities, name)
	if err != nil || a == nil || a.state() != blocks.Confirmed {
		return err
	}
	if now, err := claimOf(a); err != nil || now != r.claim {
		return err
	}
	if _, its, err := r.blockOf(ctx, r.claim); err != nil || its {
		return err
	}
	return r.deleteAffinity(ctx, a, r.claim)
}

// notDeleted handles a block that could not be deleted, or disowned. marked is true if the step has
// marked it. notDeleted reverts the step's writes if possible and returns an error that describes
// the result.
func (r *releasing) notDeleted(ctx context.Context, marked bool, failed error) error {
	now, err := r.get(ctx, blocks.Blocks, r.block.name())
	switch {
	case err != nil && marked:
		return r.leftMarked(errors.Join(failed, err))
	case err != nil:
		return inBetween(r.affinity, errors.Join(failed, err))
	case now == nil:
		return r.deleted(ctx) // by another client, or by a request whose answer was lost
	}
	marked, err = now.marked()
	switch c, bad := claimOf(now); {
	case err != nil || bad != nil:
		return inBetween(r.affinity, errors.Join(failed, err, bad))
	case c != r.claim:
		return r.deleted(ctx) // it has another owner now, and the affinity is stale
	case marked:
		return r.leftMarked(failed)
	case errors.Is(failed, errUnknown):
		return inBetween(r.affinity, failed) // the mark may still be written
	}
	return r.keep(ctx, failed)
}

// leftMarked returns the error of a block that is left marked deleted.
func (r *releasing) leftMarked(err error) error {
	left := leftBehind(blocks.Blocks, r.block.name(), leftMarked, err)
	if r.affinity != nil {
		left = fmt.Errorf("%w; and %w", left, inBetween(r.affinity, nil))
	}
	return left
}

// keep restores the affinity's state, because the host still owns the block.
func (r *releasing) keep(ctx context.Context, failed error) error {
	if r.affinity == nil {
		return failed
	}
	switch err := r.putBack(ctx, r.affinity, r.was, true); {
	case errors.Is(err, errOutlived): // another client released the block at the same moment
		r.affinity = nil
		return r.deleted(ctx)
	case err != nil && !isChanged(err):
		return notPutBack(r.affinity, failed, err)
	}
	return failed
}

// leftPendingDeletion describes an affinity that should be deleted but is left in pendingDeletion.
const leftPendingDeletion = "is left pendingDeletion, until its node assigns its next address from the block or a repair finds it"

// inBetween returns the error of an affinity that is left in pendingDeletion.
func inBetween(a *object, err error) error {
	if a == nil {
		return err
	}
	return leftBehind(blocks.Affinities, a.name(), leftPendingDeletion, err)
}

// notPutBack is [inBetween] for an affinity whose state could not be restored. If err
// already describes the affinity, that description is used.
func notPutBack(a *object, failed, err error) error {
	if said := (*repair.LeftBehindError)(nil); errors.As(err, &said) {
		return leftBehind(said.Resource, said.Name, said.State, errors.Join(failed, said.Err))
	}
	return inBetween(a, errors.Join(failed, err))
}
