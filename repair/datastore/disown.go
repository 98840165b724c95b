package datastore

import (
	"context"
	"fmt"

	"github.com/calico-audit/calico-audit/repair"
)

// DisownBlock takes a block in use away from its owner, as releaseBlockAffinity does
// (libcalico-go ipam/ipam_block_reader_writer.go): the affinity becomes
// pendingDeletion, the block loses its affinity (and, from v3.32 on, affinityClaimTime)
// and counts on, the affinity is marked and deleted. Who uses its addresses may have
// written the block meanwhile; the write is conditional on the version that is
// read here. An allocation that names the owner's own node forbids it.
func (k *Kubernetes) DisownBlock(ctx context.Context, block repair.ObjectRef, affinity *repair.ObjectRef) error {
	r := &releasing{Kubernetes: k}
	var e *edit
	b, err := k.same(ctx, block)
	return k.stepOn(ctx, "disowning "+describe(block.Resource, block.Name), b, err, func(ctx context.Context, b *object) (err error) {
		r.block = b
		if r.claim, e, err = disowning(b); err != nil {
			return err
		}
		r.affinity, err = k.affinityOf(ctx, r.claim, affinity)
		return err
	}, func(ctx context.Context, b *object) error {
		if err := r.begin(ctx); err != nil {
			return err
		}
		if _, err := k.patch(ctx, b, e); err != nil {
			return r.notDeleted(ctx, err)
		}
		return r.finished(ctx)
	})
}

// disowning makes sure by the block itself that its owner uses none of its addresses,
// and that others do, and returns whose it is and the change that takes it away.
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
		return c, nil, changedf("%s holds no allocation by now", b)
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
