package datastore

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// FinishDelete deletes an object that is marked deleted, as Calico does when it reads
// one. A block must hold no allocations. If the host of a deleted affinity still owns the
// block, the affinity is created again and confirmed.
func (w *Writer) FinishDelete(ctx context.Context, ref repair.ObjectRef) error {
	return w.step(ctx, "finishing the deletion of", ref, mayFinish, func(ctx context.Context, o *object) error {
		if err := w.remove(ctx, o); err != nil || o.resource != blocks.Affinities {
			return err
		}
		if c, bad := claimOf(o); bad == nil { // otherwise the affinity claims no valid block
			if err := w.restoreIfClaimed(ctx, c); err != nil && !isChanged(err) {
				return fmt.Errorf("%s is deleted: %w", o, err)
			}
		}
		return nil
	})
}

func mayFinish(_ context.Context, o *object) error {
	switch o.resource {
	case blocks.Blocks, blocks.Affinities, blocks.Handles:
	default:
		return fmt.Errorf("%s is of a kind that is not marked", o)
	}
	marked, err := o.marked()
	switch {
	case err != nil:
		return err
	case !marked:
		return changedf("%s is not marked deleted any more", o)
	case o.resource == blocks.Blocks:
		return noAllocation(o)
	}
	return nil
}
