package datastore

import (
	"context"
	"crypto/sha3"
	"encoding/base32"
	"errors"
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// The labels by which Calico v3.31 and newer find affinities (libcalico-go
// backend/model/block_affinity.go, EnsureBlockAffinityLabels).
const (
	hostnameHashLabel = "projectcalico.org/hostname-hash"
	affinityTypeLabel = "projectcalico.org/affinity-type"
	ipVersionLabel    = "projectcalico.org/ip-version"
)

// affinityLabels are those that Calico gives the affinity of a host. The host is
// hashed because its name may be longer than a label.
func affinityLabels(c claim) map[string]string {
	sum := sha3.Sum256([]byte(c.owner.Name))
	version := "4"
	if c.cidr.Addr().Is6() {
		version = "6"
	}
	return map[string]string{
		hostnameHashLabel: base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]),
		affinityTypeLabel: string(c.owner.Kind),
		ipVersionLabel:    version,
	}
}

// setState writes an affinity's state. The new state makes everybody who has read
// the affinity before and writes it now fail.
func (k *Kubernetes) setState(ctx context.Context, a *object, state blocks.AffinityState) (*object, error) {
	e := newEdit(a)
	e.set(string(state), "spec", "state")
	return k.patch(ctx, a, e)
}

// setBack is setState for a write that takes back what the step has written: it is
// sent even if the journal takes no more lines.
func (k *Kubernetes) setBack(ctx context.Context, a *object, state blocks.AffinityState) (*object, error) {
	e := newEdit(a)
	e.set(string(state), "spec", "state")
	e.back = true
	return k.patch(ctx, a, e)
}

// dropAffinity marks an affinity deleted, which must be in the state in which it
// was written last, and deletes it. If its host has claimed the CIDR again since,
// it is left to it.
func (k *Kubernetes) dropAffinity(ctx context.Context, a *object) error {
	marked, err := k.mark(ctx, a)
	state := leftPendingDeletion
	if err == nil {
		err, state = k.remove(ctx, marked), leftMarked
	}
	switch {
	case err == nil:
		return nil
	case !isChanged(err):
		return leftBehind(blocks.Affinities, a.name(), state, err)
	}
	now, readErr := k.get(ctx, blocks.Affinities, a.name())
	switch {
	case readErr != nil:
		return errors.Join(detached(err), readErr)
	case now == nil, now.uid() != a.uid(), now.state() != blocks.PendingDeletion:
		return nil
	}
	return leftBehind(blocks.Affinities, a.name(), leftPendingDeletion, err)
}

// putBack gives an affinity the state back that it had, if it is still as it was
// left here, and returns it. What somebody else has written since stays, and then
// nil is returned.
func (k *Kubernetes) putBack(ctx context.Context, a *object, was blocks.AffinityState) (*object, error) {
	if a.state() == was {
		return a, nil
	}
	back, err := k.setBack(ctx, a, was)
	if !isChanged(err) {
		return back, err
	}
	now, err := k.get(ctx, blocks.Affinities, a.name())
	if err != nil || now == nil || now.uid() != a.uid() || now.state() != blocks.PendingDeletion {
		return nil, err
	}
	if marked, err := now.marked(); err != nil || marked {
		return nil, err
	}
	// Another field was written in between. No one but this step has begun to
	// delete the affinity in that version.
	if back, err = k.setBack(ctx, now, was); isChanged(err) {
		return nil, nil
	}
	return back, err
}

// DeleteAffinity deletes an affinity whose block does not exist, or names another
// owner or none.
//
// Calico's getPendingAffinity takes an affinity that it finds confirmed for its own
// without writing it (libcalico-go ipam/ipam_block_reader_writer.go), so that a
// host that is just claiming the block cannot be told by the affinity's version.
// Therefore the affinity becomes pendingDeletion first: whoever reads it from now
// on must write it, which makes the deletion fail, and whoever read it before fails
// to confirm it. The block is read before, after that, and after the deletion; if
// it names the host, the affinity is put back and the step is [repair.ErrChanged].
//
// What remains is a client that read the affinity before all this and makes the
// block after the last look. Its claim fails, for it cannot confirm the affinity,
// and it leaves an empty block without one: as it does when Calico itself deletes
// the affinity. Its node finds the block and confirms a new affinity when it needs a
// block; so does a repair.
func (k *Kubernetes) DeleteAffinity(ctx context.Context, affinity repair.ObjectRef) error {
	var c claim
	return k.step(ctx, "deleting", affinity, func(ctx context.Context, a *object) (err error) {
		if c, err = claimOf(a); err == nil && c.owner.Kind != blocks.HostOwner {
			err = fmt.Errorf("it is of %q, which is not a node", c.owner)
		}
		if err == nil {
			err = k.notItsOwn(ctx, c)
		}
		return err
	}, func(ctx context.Context, a *object) error { return k.deleteAffinity(ctx, a, c) })
}

// blockOf reads the block that an affinity claims, where Calico would look for it, and
// reports whether it is its owner's; nil if there is none.
func (k *Kubernetes) blockOf(ctx context.Context, c claim) (b *object, its bool, err error) {
	if b, err = k.get(ctx, blocks.Blocks, blocks.BlockName(c.cidr)); err != nil || b == nil {
		return nil, false, err
	}
	now, err := claimOf(b)
	return b, err == nil && now == c, err
}

// notItsOwn is [repair.ErrChanged] if the block names the affinity's host.
func (k *Kubernetes) notItsOwn(ctx context.Context, c claim) error {
	b, its, err := k.blockOf(ctx, c)
	if its {
		return changedf("%s names its host by now", b)
	}
	return err
}

// deleteAffinity is DeleteAffinity from its first write on.
func (k *Kubernetes) deleteAffinity(ctx context.Context, a *object, c claim) error {
	was := a.state()
	if marked, err := a.marked(); err != nil {
		return err
	} else if !marked {
		if a, err = k.setState(ctx, a, blocks.PendingDeletion); err != nil {
			return err
		}
		if err := k.notItsOwn(ctx, c); err != nil {
			if _, back := k.putBack(ctx, a, was); back != nil {
				return inBetween(a, errors.Join(err, back))
			}
			return err
		}
		pending := a
		if a, err = k.mark(ctx, a); err != nil {
			return k.markFailed(ctx, err, pending, was)
		}
	}
	if err := k.remove(ctx, a); err != nil {
		return leftBehind(blocks.Affinities, a.name(), leftMarked, err)
	}
	return k.restoreIfClaimed(ctx, c)
}

// markFailed gives an affinity that could not be marked its state back. That it is
// somebody else's by now is no trouble.
func (k *Kubernetes) markFailed(ctx context.Context, failed error, a *object, was blocks.AffinityState) error {
	if errors.Is(failed, errUnknown) {
		return inBetween(a, failed)
	}
	if _, err := k.putBack(ctx, a, was); err != nil {
		return inBetween(a, errors.Join(failed, err))
	}
	return failed
}
