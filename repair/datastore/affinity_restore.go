package datastore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// RestoreAffinity creates the affinity object of a block's owner, as Calico claims an
// existing block (libcalico-go ipam/ipam_block_reader_writer.go, getPendingAffinity and
// claimAffineBlock): it creates the affinity as pending, reads the block again, and
// confirms the affinity. In addition, it requires that no other affinity to the CIDR
// exists, and deletes the new affinity if the block's owner has changed.
func (w *Writer) RestoreAffinity(ctx context.Context, block repair.ObjectRef) error {
	var c claim
	return w.step(ctx, "restoring the affinity of", block, func(ctx context.Context, b *object) (err error) {
		if c, err = claimOf(b); err != nil {
			return err
		}
		return w.mayRestore(ctx, b, c)
	}, func(ctx context.Context, b *object) error { return w.restore(ctx, b.uid(), c, true) })
}

// mayRestore returns an error unless the block's owner is a node, the block is not marked
// deleted, and it has no affinity.
func (w *Writer) mayRestore(ctx context.Context, b *object, c claim) error {
	if err := notMarked(b); err != nil {
		return err
	}
	if c.owner.Node() == "" {
		return changedf("%s belongs to %q, which is not a node", b, c.owner)
	}
	return w.onlyClaim(ctx, c, "")
}

// onlyClaim returns [repair.ErrChanged] if the CIDR has an affinity with a name other
// than except.
func (w *Writer) onlyClaim(ctx context.Context, c claim, except string) error {
	err := w.list(ctx, blocks.Affinities, Query{}, func(object json.RawMessage) error {
		var a struct {
			Metadata struct{ Name string }
			Spec     struct{ CIDR string }
		}
		if err := json.Unmarshal(object, &a); err != nil {
			return err
		}
		if p, err := netip.ParsePrefix(a.Spec.CIDR); err == nil && p.Masked() == c.cidr && a.Metadata.Name != except {
			return changedf("%s claims the block, too", describe(blocks.Affinities, a.Metadata.Name))
		}
		return nil
	})
	if err != nil && !isChanged(err) {
		err = fmt.Errorf("looking for other affinities: %w", err)
	}
	return err
}

// newAffinity returns an affinity as Calico's client creates it.
func (w *Writer) newAffinity(c claim, state blocks.AffinityState) (map[string]any, error) {
	tree, err := w.newObject(blocks.Affinities, blocks.AffinityName(c.owner.Name, c.cidr), libapiv3.BlockAffinitySpec{
		CIDR: c.cidr.String(), Node: c.owner.Name, Type: string(c.owner.Kind), State: string(state), Deleted: "false",
	}, affinityLabels(c), nil)
	if err == nil && (w.native() || !w.traits.Metadata) {
		mapAt(tree, "spec")["deleted"] = false
	}
	return tree, err
}

// restore creates an affinity as pending. It confirms the affinity if the block still has
// the same owner and, if alone is set, no other affinity exists.
func (w *Writer) restore(ctx context.Context, blockUID string, c claim, alone bool) error {
	return w.makeClaim(ctx, c, nil, func(a *object) error {
		err := w.stillIts(ctx, blockUID, c)
		if err == nil && alone {
			err = w.onlyClaim(ctx, c, a.name())
		}
		if err != nil {
			return w.takeBack(ctx, err, a)
		}
		return nil
	})
}

// makeClaim creates the affinity of a claim as pending, or sets it to pending, and confirms it if
// its returns nil. its checks that the block belongs to the host.
func (w *Writer) makeClaim(ctx context.Context, c claim, a *object, its func(a *object) error) error {
	var err error
	if a != nil {
		a, err = w.setState(ctx, a, blocks.Pending)
	} else if tree, bad := w.newAffinity(c, blocks.Pending); bad != nil {
		err = bad
	} else {
		a, err = w.create(ctx, blocks.Affinities, tree)
	}
	if err == nil {
		err = its(a)
	}
	if err != nil {
		return err
	}
	_, failed := w.setState(ctx, a, blocks.Confirmed)
	if !isChanged(failed) {
		return leftPending(a, failed)
	}
	now, err := w.get(ctx, blocks.Affinities, a.name())
	if err != nil {
		return leftPending(a, errors.Join(errUnknown, failed, err))
	}
	if now != nil && now.state() == blocks.Confirmed {
		return nil // confirmed by its host
	}
	return failed
}

func leftPending(a *object, err error) error {
	if err == nil {
		return nil
	}
	return leftBehind(blocks.Affinities, a.name(), fmt.Sprintf("is left %s, until its node assigns its next address from the block", blocks.Pending), err)
}

// stillIts returns [repair.ErrChanged] unless the block is the same object with the same
// owner and is not being deleted.
func (w *Writer) stillIts(ctx context.Context, uid string, c claim) error {
	b, its, err := w.blockOf(ctx, c)
	switch {
	case b == nil && err == nil:
		return changedf("%s does not exist any more", describe(blocks.Blocks, blocks.BlockName(c.cidr)))
	case err != nil:
		return err
	case b.uid() != uid:
		return changedf("%s was deleted and created again", b)
	case b.deleting():
		return changedf("%s is being deleted", b)
	case !its:
		return anothers(b, c)
	}
	return notMarked(b)
}

// anothers returns an error that names the owner of a block.
func anothers(b *object, c claim) error {
	return changedf("%s now belongs to %s, not to %s", b, blocks.ParseOwner(b.text("spec", "affinity")), c.owner)
}

// takeBack deletes an affinity that this step created, unless its host has written it since. It
// returns why.
func (w *Writer) takeBack(ctx context.Context, why error, a *object) error {
	switch marked, err := w.markAndRemove(ctx, newEdit(a)); {
	case err == nil, isChanged(err):
		return why
	case marked:
		return leftBehind(blocks.Affinities, a.name(), leftMarked, errors.Join(why, err))
	default:
		return leftPending(a, errors.Join(why, err))
	}
}

// restoreIfClaimed recreates a deleted affinity if the block's owner is its host, and
// returns [repair.ErrChanged] then. If the affinity already exists again, the host is
// claiming the block at this moment and completes the claim itself.
func (w *Writer) restoreIfClaimed(ctx context.Context, c claim) error {
	if c.owner.Node() == "" {
		return nil
	}
	b, its, err := w.blockOf(ctx, c)
	if err != nil {
		return fmt.Errorf("it is not known whether its host claimed the block meanwhile: %w", err)
	}
	if !its {
		return nil
	}
	if marked, err := b.marked(); err != nil || marked {
		return err
	}
	err = w.restore(ctx, b.uid(), c, false)
	switch {
	case err == nil, isChanged(err):
	case isLeft(err):
		return fmt.Errorf("its host claimed the block meanwhile: %w", err)
	default:
		return leftBehind(blocks.Blocks, b.name(), "is left without an affinity of "+c.owner.Name+", which claimed it meanwhile", err)
	}
	return changedf("%s was claimed by its host meanwhile", b)
}
