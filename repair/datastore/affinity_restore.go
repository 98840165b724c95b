package datastore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"

	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// RestoreAffinity creates the affinity object of the host that a block names, as
// Calico claims a block that exists (libcalico-go ipam/ipam_block_reader_writer.go,
// getPendingAffinity and claimAffineBlock): pending, then the block is read again,
// then confirmed. Beyond that, no other affinity to the CIDR may exist, and what was
// created is deleted again if the block is no longer that host's.
func (k *Kubernetes) RestoreAffinity(ctx context.Context, block repair.ObjectRef) error {
	var c claim
	return k.step(ctx, "restoring the affinity of", block, func(ctx context.Context, b *object) (err error) {
		if c, err = claimOf(b); err != nil {
			return err
		}
		return k.mayRestore(ctx, b, c)
	}, func(ctx context.Context, b *object) error { return k.restore(ctx, b.uid(), c, true) })
}

// mayRestore makes sure that a block is a node's, is to stay, and that no one has
// an affinity to it.
func (k *Kubernetes) mayRestore(ctx context.Context, b *object, c claim) error {
	if err := notMarked(b); err != nil {
		return err
	}
	if c.owner.Node() == "" {
		return changedf("%s belongs to %q, which is not a node", b, c.owner)
	}
	return k.onlyClaim(ctx, c, "")
}

// onlyClaim is [repair.ErrChanged] if an affinity to the CIDR exists under another
// name than that given.
func (k *Kubernetes) onlyClaim(ctx context.Context, c claim, except string) error {
	next := ""
	for {
		query := url.Values{"limit": {"500"}}
		if next != "" {
			query.Set("continue", next)
		}
		body, err := k.client.read(ctx, request{method: "GET", path: k.path(blocks.Affinities, ""), query: query})
		if err != nil {
			return fmt.Errorf("looking for other affinities: %w", err)
		}
		var list struct {
			Metadata struct{ Continue string }
			Items    []struct {
				Metadata struct{ Name string }
				Spec     struct{ CIDR string }
			}
		}
		if err := json.Unmarshal(body, &list); err != nil {
			return fmt.Errorf("looking for other affinities: %w", err)
		}
		for _, a := range list.Items {
			if p, err := netip.ParsePrefix(a.Spec.CIDR); err == nil && p.Masked() == c.cidr && a.Metadata.Name != except {
				return changedf("%s claims the block, too", describe(blocks.Affinities, a.Metadata.Name))
			}
		}
		if next = list.Metadata.Continue; next == "" {
			return nil
		}
	}
}

// newAffinity is an affinity as Calico's client creates it.
func (k *Kubernetes) newAffinity(c claim, state blocks.AffinityState) (map[string]any, error) {
	tree, err := k.newObject(blocks.Affinities, blocks.AffinityName(c.owner.Name, c.cidr), libapiv3.BlockAffinitySpec{
		CIDR: c.cidr.String(), Node: c.owner.Name, Type: string(c.owner.Kind), State: string(state), Deleted: "false",
	}, affinityLabels(c), nil)
	if err == nil && k.native() {
		mapAt(tree, "spec")["deleted"] = false
	}
	return tree, err
}

// restore creates an affinity pending, and confirms it if the block still is the
// host's and, where that is asked for, no one else has an affinity to it.
func (k *Kubernetes) restore(ctx context.Context, blockUID string, c claim, alone bool) error {
	return k.makeClaim(ctx, c, nil, func(a *object) error {
		err := k.stillIts(ctx, blockUID, c)
		if err == nil && alone {
			err = k.onlyClaim(ctx, c, a.name())
		}
		if err != nil {
			return k.takeBack(ctx, err, a)
		}
		return nil
	})
}

// makeClaim makes the affinity of a claim pending, which is created if there is none, and
// confirms it if its block is the host's, as its says.
func (k *Kubernetes) makeClaim(ctx context.Context, c claim, a *object, its func(a *object) error) error {
	var err error
	if a != nil {
		a, err = k.setState(ctx, a, blocks.Pending)
	} else if tree, bad := k.newAffinity(c, blocks.Pending); bad != nil {
		err = bad
	} else {
		a, err = k.create(ctx, blocks.Affinities, tree)
	}
	if err == nil {
		err = its(a)
	}
	if err != nil {
		return err
	}
	_, failed := k.setState(ctx, a, blocks.Confirmed)
	if !isChanged(failed) {
		return leftPending(a, failed)
	}
	now, err := k.get(ctx, blocks.Affinities, a.name())
	if err != nil {
		return leftPending(a, errors.Join(errUnknown, failed, err))
	}
	if now != nil && now.state() == blocks.Confirmed {
		return nil // by its host
	}
	return failed
}

func leftPending(a *object, err error) error {
	if err == nil {
		return nil
	}
	return leftBehind(blocks.Affinities, a.name(), fmt.Sprintf("is left %s, until its node assigns its next address from the block", blocks.Pending), err)
}

// stillIts is [repair.ErrChanged] unless the block is the same object, its owner's
// and to stay.
func (k *Kubernetes) stillIts(ctx context.Context, uid string, c claim) error {
	b, its, err := k.blockOf(ctx, c)
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

// anothers says whose a block is that is not its claimant's.
func anothers(b *object, c claim) error {
	owner := b.text("spec", "affinity")
	if owner == "" {
		owner = "no one"
	}
	return changedf("%s belongs to %s by now, not to %s", b, owner, c.owner)
}

// takeBack deletes an affinity that was created a moment ago, unless its host has
// written it since, and says why.
func (k *Kubernetes) takeBack(ctx context.Context, why error, a *object) error {
	marked, err := k.mark(ctx, a)
	if err == nil {
		err = k.remove(ctx, marked)
	}
	if err != nil && !isChanged(err) {
		return leftPending(a, errors.Join(why, err))
	}
	return why
}

// restoreIfClaimed gives the host of an affinity that was deleted its affinity back
// if the block names it, and is [repair.ErrChanged] then. If there is an affinity
// again, the host is claiming the block at this moment, and finishes that itself.
func (k *Kubernetes) restoreIfClaimed(ctx context.Context, c claim) error {
	if c.owner.Node() == "" {
		return nil
	}
	b, its, err := k.blockOf(ctx, c)
	if err != nil {
		return fmt.Errorf("it is not known whether its host claimed the block meanwhile: %w", err)
	}
	if !its {
		return nil
	}
	if marked, err := b.marked(); err != nil || marked {
		return err
	}
	err = k.restore(ctx, b.uid(), c, false)
	switch {
	case err == nil, isChanged(err):
	case isLeft(err):
		return fmt.Errorf("its host claimed the block meanwhile: %w", err)
	default:
		return leftBehind(blocks.Blocks, b.name(), "is left without an affinity of "+c.owner.Name+", which claimed it meanwhile", err)
	}
	return changedf("%s was claimed by its host meanwhile", b)
}
