package datastore

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/repair"
)

// DisownBlock removes the owner of a block in use, as releaseBlockAffinity does
// (libcalico-go ipam/ipam_block_reader_writer.go). It sets the affinity to
// pendingDeletion, clears the block's affinity (and, from v3.32, affinityClaimTime),
// raises its sequence number, marks the affinity and deletes it. Users of its addresses
// may have written the block meanwhile, so the write is conditional on the version that
// DisownBlock reads. It fails if an allocation names the owner's own node.
func (w *Writer) DisownBlock(ctx context.Context, block repair.ObjectRef, affinity *repair.ObjectRef) error {
	r := &releasing{Writer: w}
	var e *edit
	b, err := w.same(ctx, block)
	return w.stepOn(ctx, "disowning "+describe(block.Resource, block.Name), b, err, func(ctx context.Context, b *object) (err error) {
		r.block = b
		if r.claim, e, err = disowning(b); err != nil {
			return err
		}
		r.affinity, err = w.affinityOf(ctx, r.claim, affinity)
		return err
	}, func(ctx context.Context, b *object) error {
		if err := r.begin(ctx); err != nil {
			return err
		}
		if _, err := w.patch(ctx, b, e); err != nil {
			return r.notDeleted(ctx, false, err)
		}
		return r.finished(ctx)
	})
}

// disowning returns the claim of a block and the edit that removes its owner. It returns
// an error unless the block has allocations and none of them is the owner's.
func disowning(b *object) (claim, *edit, error) {
	c, err := claimOf(b)
	if err == nil {
		err = notMarked(b)
	}
	switch {
	case err != nil:
		return c, nil, err
	case c.owner.Node() == "":
		return c, nil, changedf("%s belongs to %q, which is not a node", b, c.owner)
	case !isChanged(noAllocation(b)):
		return c, nil, changedf("%s no longer holds an allocation", b)
	}
	for ordinal, index := range listAt(b.tree, "spec", "allocations") {
		if index == nil {
			continue
		}
		a, err := newAllocation(b, ordinal)
		if err != nil {
			return c, nil, fmt.Errorf("ordinal %d of %s: %w", ordinal, b, err)
		}
		for _, owner := range []string{"secondary", "alternateOwnerAttrs"} {
			if textOf(a.attributes[a.index], owner, "node") == c.owner.Name {
				return c, nil, changedf("ordinal %d of %s is allocated on %s itself", ordinal, b, c.owner.Name)
			}
		}
	}
	e := newEdit(b)
	e.remove("spec", "affinity")
	e.remove("spec", "affinityClaimTime")
	return c, e, raiseSequence(e, b)
}
