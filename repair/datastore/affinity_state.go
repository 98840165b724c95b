package datastore

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// PutAffinityState gives an affinity a state, such as the one that it had. A block
// that belongs to somebody else forbids it, and out of pendingDeletion that there is
// none. If the block is gone after that, whoever was releasing it has found the
// affinity in pendingDeletion and cannot delete it any more: it goes, too.
func (k *Kubernetes) PutAffinityState(ctx context.Context, affinity repair.ObjectRef, state blocks.AffinityState) error {
	return k.step(ctx, "writing the state of", affinity, func(ctx context.Context, a *object) error {
		return k.mayHaveState(ctx, a, state)
	}, func(ctx context.Context, a *object) error {
		back, err := k.setState(ctx, a, state)
		if err != nil || a.state() != blocks.PendingDeletion || state == blocks.PendingDeletion {
			return err
		}
		return k.notOutlived(ctx, back)
	})
}

// notOutlived deletes an affinity that came out of pendingDeletion just now if its
// block is gone.
func (k *Kubernetes) notOutlived(ctx context.Context, a *object) error {
	c, err := claimOf(a)
	if err != nil {
		return err
	}
	b, _, err := k.blockOf(ctx, c)
	if err != nil {
		return fmt.Errorf("%s has its state back, and it is not known whether its block is still there: %w", a, err)
	}
	if b != nil {
		return nil
	}
	if err := k.deleteAffinity(ctx, a, c); err != nil {
		return fmt.Errorf("its block was released by somebody else meanwhile: %w", err)
	}
	return changedf("its block was released by somebody else meanwhile")
}

func (k *Kubernetes) mayHaveState(ctx context.Context, a *object, state blocks.AffinityState) error {
	switch state {
	case "", blocks.Confirmed, blocks.Pending, blocks.PendingDeletion:
	default:
		return fmt.Errorf("%q is not a state of an affinity", state)
	}
	c, err := claimOf(a)
	if err != nil {
		return err
	}
	if err := notMarked(a); err != nil {
		return err
	}
	if a.state() == blocks.PendingDeletion && state != blocks.PendingDeletion {
		switch b, _, err := k.blockOf(ctx, c); {
		case err != nil:
			return err
		case b == nil:
			return changedf("%s is %s, and its block does not exist", a, blocks.PendingDeletion)
		}
	}
	return k.notAnothers(ctx, c)
}

// notAnothers is [repair.ErrChanged] if the block of a claim exists and is not of
// its owner.
func (k *Kubernetes) notAnothers(ctx context.Context, c claim) error {
	b, its, err := k.blockOf(ctx, c)
	if err == nil && b != nil && !its {
		err = anothers(b, c)
	}
	return err
}
