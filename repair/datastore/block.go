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
// releaseBlockAffinity does (libcalico-go ipam/ipam_block_reader_writer.go): the
// affinity becomes pendingDeletion, the block is marked deleted in the very version
// that was evaluated empty and deleted, the affinity is marked and deleted.
//
// The block that the owner keeps is read before, after the first write, and when the
// block is gone: where it is being released, too, this one is put back.
//
// Where somebody wrote the block in between, the affinity gets its state back.
// Where the owner claims the CIDR again in between, the affinity is its again.
// Beyond what Calico does, the block is looked at once more at the end: a client
// that had found the affinity confirmed before all this may have made it again, and
// it then gets an affinity again.
func (k *Kubernetes) ReleaseBlock(ctx context.Context, block repair.ObjectRef, affinity, keeps *repair.ObjectRef) error {
	r := &releasing{Kubernetes: k, kept: keeps}
	return k.step(ctx, "releasing", block, func(ctx context.Context, b *object) (err error) {
		r.block = b
		if r.claim, err = emptyBlock(b); err != nil {
			return err
		}
		if r.affinity, err = k.affinityOf(ctx, r.claim, affinity); err != nil {
			return err
		}
		return k.keeps(ctx, keeps, r.claim.owner)
	}, r.release)
}

// claim is who holds or claims which block.
type claim struct {
	owner blocks.Owner
	cidr  netip.Prefix
}

// emptyBlock makes sure by the block itself that it may be deleted, and returns
// whose it is.
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

// claimOf returns whose a block is, or who claims which block by an affinity.
func claimOf(o *object) (claim, error) {
	owner, err := o.owner()
	if err != nil {
		return claim{}, err
	}
	cidr, err := o.cidr()
	return claim{owner, cidr}, err
}

// noAllocation makes sure that a block holds no allocation: every entry of its
// allocations is null.
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

// affinityOf reads the owner's affinity to a block. If none was evaluated to exist,
// none may be where Calico would make it.
func (k *Kubernetes) affinityOf(ctx context.Context, c claim, ref *repair.ObjectRef) (*object, error) {
	if ref == nil {
		if c.owner.Node() == "" {
			return nil, nil
		}
		a, err := k.get(ctx, blocks.Affinities, blocks.AffinityName(c.owner.Name, c.cidr))
		if err == nil && a != nil {
			err = changedf("%s exists by now", a)
		}
		return nil, err
	}
	a, err := k.evaluated(ctx, *ref)
	if err != nil {
		return nil, err
	}
	found, err := claimOf(a)
	if err == nil && found != c {
		err = fmt.Errorf("%s is of %s to %s, and the block is %s of %q", a, found.owner, found.cidr, c.cidr, c.owner)
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
	marked, err := r.mark(ctx, r.block)
	if err == nil {
		err = r.remove(ctx, marked)
	}
	if err != nil {
		return r.notDeleted(ctx, err)
	}
	return r.deleted(ctx)
}

// begin makes the affinity pendingDeletion.
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

// releasing is a block that is being released, or disowned.
type releasing struct {
	*Kubernetes
	claim    claim
	block    *object
	affinity *object              // as it was written last; nil if there is none
	was      blocks.AffinityState // its state before
	kept     *repair.ObjectRef    // the block that the owner keeps; nil if none
}

// deleted goes on when the block is gone, no matter who deleted it.
func (r *releasing) deleted(ctx context.Context) error {
	if err := r.keeps(ctx, r.kept, r.claim.owner); err != nil {
		return r.lost(ctx, err)
	}
	return r.finished(ctx)
}

// finished deletes what goes with a block that is gone.
func (r *releasing) finished(ctx context.Context) error {
	if r.affinity != nil {
		if err := r.dropAffinity(ctx, r.affinity); err != nil {
			return fmt.Errorf("the block is its owner's no longer, but its owner's affinity is left: %w", err)
		}
	}
	err := r.dropConfirmed(ctx)
	if err == nil {
		err = r.restoreIfClaimed(ctx, r.claim)
	}
	if err != nil && !isChanged(err) {
		return fmt.Errorf("the block is its owner's no longer: %w", err)
	}
	return nil
}

// dropConfirmed deletes an affinity that its host has confirmed although the block
// is gone, or no longer its own. Calico's claimAffineBlock confirms an affinity when it finds the block
// to be the host's already, and does not write the block: it may have done so right
// before the block was marked here. A claim that is pending goes on by itself.
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

// notDeleted puts right what it can when the block could not be deleted, and says
// how things stand.
func (r *releasing) notDeleted(ctx context.Context, failed error) error {
	now, err := r.get(ctx, blocks.Blocks, r.block.name())
	if err != nil {
		return notPutBack(r.affinity, failed, err)
	}
	if now == nil {
		return r.deleted(ctx) // by somebody else, or by a request whose answer was lost
	}
	marked, err := now.marked()
	switch c, bad := claimOf(now); {
	case err != nil || bad != nil:
		return inBetween(r.affinity, errors.Join(failed, err, bad))
	case c != r.claim:
		return r.deleted(ctx) // it is another's now, and the affinity stale
	case marked:
		left := leftBehind(blocks.Blocks, now.name(), leftMarked, failed)
		if r.affinity != nil {
			left = fmt.Errorf("%w; and %w", left, inBetween(r.affinity, nil))
		}
		return left
	case errors.Is(failed, errUnknown):
		return inBetween(r.affinity, failed) // the mark may still come
	}
	return r.keep(ctx, failed)
}

// keep gives the affinity its state back, because the block has stayed its host's.
func (r *releasing) keep(ctx context.Context, failed error) error {
	if r.affinity == nil {
		return failed
	}
	switch err := r.putBack(ctx, r.affinity, r.was, true); {
	case errors.Is(err, errOutlived): // somebody released the block at the same moment
		r.affinity = nil
		return r.deleted(ctx)
	case err != nil && !isChanged(err):
		return notPutBack(r.affinity, failed, err)
	}
	return failed
}

// leftPendingDeletion is how an affinity is left that was to be deleted.
const leftPendingDeletion = "is left pendingDeletion, until its node assigns its next address from the block or a repair finds it"

// inBetween says in what state an affinity is left.
func inBetween(a *object, err error) error {
	if a == nil {
		return err
	}
	return leftBehind(blocks.Affinities, a.name(), leftPendingDeletion, err)
}

// notPutBack is [inBetween] for an affinity that could not be given its state back, or of which
// it is known how it was left instead.
func notPutBack(a *object, failed, err error) error {
	if said := (*repair.LeftBehindError)(nil); errors.As(err, &said) {
		return leftBehind(said.Resource, said.Name, said.State, errors.Join(failed, said.Err))
	}
	return inBetween(a, errors.Join(failed, err))
}
