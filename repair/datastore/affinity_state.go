package datastore

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// PutAffinityState sets an affinity's state, for example to its previous one: see
// giveState. It fails if the block has another owner. To leave pendingDeletion, the block
// must exist.
func (w *Writer) PutAffinityState(ctx context.Context, affinity repair.ObjectRef, state blocks.AffinityState) error {
	return w.step(ctx, "writing the state of", affinity, func(ctx context.Context, a *object) error {
		return w.mayHaveState(ctx, a, state)
	}, func(ctx context.Context, a *object) error { return w.giveState(ctx, a, state, false) })
}

// errOutlived means that an affinity left pendingDeletion and was deleted because its
// block no longer existed.
var errOutlived = changedf("another client released its block meanwhile")

// giveState sets an affinity's state. back is as in writeState. If the affinity leaves
// pendingDeletion although its block no longer exists, giveState deletes it and returns
// errOutlived: the client that released the block can no longer do that, because it had found the
// affinity in pendingDeletion.
func (w *Writer) giveState(ctx context.Context, a *object, state blocks.AffinityState, back bool) error {
	was := a.state()
	a, err := w.writeState(ctx, a, state, back)
	if err != nil || was != blocks.PendingDeletion || state == blocks.PendingDeletion {
		return err
	}
	c, err := claimOf(a)
	if err != nil {
		return err
	}
	switch b, _, err := w.blockOf(ctx, c); {
	case err != nil:
		return leftBehind(blocks.Affinities, a.name(), fmt.Sprintf("has its former state %q, but whether its block still exists is not known", state), err)
	case b != nil:
		return nil
	}
	// Set the harmless previous state immediately, even if the journal cannot record it.
	pending, err := w.writeState(ctx, a, blocks.PendingDeletion, true)
	if err != nil && !isChanged(err) {
		return leftBehind(blocks.Affinities, a.name(), fmt.Sprintf("is left %q, and another client released its block meanwhile", state), err)
	}
	if err == nil {
		err = w.deleteAffinity(ctx, pending, c)
	}
	if err != nil {
		return fmt.Errorf("another client released its block meanwhile: %w", err)
	}
	return errOutlived
}

func (w *Writer) mayHaveState(ctx context.Context, a *object, state blocks.AffinityState) error {
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
	switch b, its, err := w.blockOf(ctx, c); {
	case err != nil:
		return err
	case b == nil && a.state() == blocks.PendingDeletion && state != blocks.PendingDeletion:
		return changedf("%s is %s, and its block does not exist", a, blocks.PendingDeletion)
	case b != nil && !its:
		return anothers(b, c)
	}
	return nil
}
