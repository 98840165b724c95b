package datastore

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// PutAffinityState gives an affinity a state, such as the one that it had: see giveState.
// A block that belongs to somebody else forbids it, and out of pendingDeletion that there
// is none.
func (k *Kubernetes) PutAffinityState(ctx context.Context, affinity repair.ObjectRef, state blocks.AffinityState) error {
	return k.step(ctx, "writing the state of", affinity, func(ctx context.Context, a *object) error {
		return k.mayHaveState(ctx, a, state)
	}, func(ctx context.Context, a *object) error { return k.giveState(ctx, a, state, false) })
}

// errOutlived says that an affinity was deleted which came out of pendingDeletion when its
// block was gone.
var errOutlived = changedf("its block was released by somebody else meanwhile")

// giveState gives an affinity a state. If its block is gone when it has come out of
// pendingDeletion, the client that was releasing it has found the affinity in that state
// already and cannot delete it any more: it goes, too, which is errOutlived. back is as
// with writeState.
func (k *Kubernetes) giveState(ctx context.Context, a *object, state blocks.AffinityState, back bool) error {
	was := a.state()
	a, err := k.writeState(ctx, a, state, back)
	if err != nil || was != blocks.PendingDeletion || state == blocks.PendingDeletion {
		return err
	}
	c, err := claimOf(a)
	if err != nil {
		return err
	}
	switch b, _, err := k.blockOf(ctx, c); {
	case err != nil:
		return leftBehind(blocks.Affinities, a.name(), fmt.Sprintf("has its state %q back, and it is not known whether its block is still there", state), err)
	case b != nil:
		return nil
	}
	// At once what it was, even if the journal takes no more lines: so it does no harm.
	pending, err := k.writeState(ctx, a, blocks.PendingDeletion, true)
	if err != nil && !isChanged(err) {
		return leftBehind(blocks.Affinities, a.name(), fmt.Sprintf("is left %q, and its block was released by somebody else meanwhile", state), err)
	}
	if err == nil {
		err = k.deleteAffinity(ctx, pending, c)
	}
	if err != nil {
		return fmt.Errorf("its block was released by somebody else meanwhile: %w", err)
	}
	return errOutlived
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
	switch b, its, err := k.blockOf(ctx, c); {
	case err != nil:
		return err
	case b == nil && a.state() == blocks.PendingDeletion && state != blocks.PendingDeletion:
		return changedf("%s is %s, and its block does not exist", a, blocks.PendingDeletion)
	case b != nil && !its:
		return anothers(b, c)
	}
	return nil
}
