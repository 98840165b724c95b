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
	return k.writeState(ctx, a, state, false)
}

// writeState is setState; back is true for a write that takes back what the step has
// written: it is sent even if the journal takes no more lines.
func (k *Kubernetes) writeState(ctx context.Context, a *object, state blocks.AffinityState, back bool) (*object, error) {
	e := newEdit(a)
	e.set(string(state), "spec", "state")
	e.back = back
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

// putBack gives an affinity that a step made pendingDeletion the state back that it had,
// if it is still as it was left here. What somebody else has written since stays, which is
// [repair.ErrChanged]. Where there was a block it must not outlive that: see giveState.
func (k *Kubernetes) putBack(ctx context.Context, a *object, was blocks.AffinityState, block bool) error {
	if a.state() == was {
		return nil
	}
	give := k.giveState
	if !block {
		give = func(ctx context.Context, a *object, was blocks.AffinityState, back bool) error {
			_, err := k.writeState(ctx, a, was, back)
			return err
		}
	}
	failed := give(ctx, a, was, true)
	if !isChanged(failed) || errors.Is(failed, errOutlived) {
		return failed
	}
	now, err := k.get(ctx, blocks.Affinities, a.name())
	switch {
	case err != nil:
		return err
	case now == nil, now.uid() != a.uid(), now.state() != blocks.PendingDeletion:
		return failed
	}
	if err := notMarked(now); err != nil {
		return err
	}
	// Another field was written in between. No one but this step has begun to
	// delete the affinity in that version.
	return give(ctx, now, was, true)
}

// left gives an affinity its state back for a step that failed, and says why that did and
// how the affinity is left. That it is somebody else's by now is no trouble.
func (k *Kubernetes) left(ctx context.Context, failed error, a *object, was blocks.AffinityState, block bool) error {
	if errors.Is(failed, errUnknown) {
		return inBetween(a, failed)
	}
	if err := k.putBack(ctx, a, was, block); err != nil && !isChanged(err) {
		return notPutBack(a, failed, err)
	}
	return failed
}

// DeleteAffinity deletes an affinity whose block does not exist, or names another
// owner or none.
//
// Calico's getPendingAffinity takes an affinity that it finds confirmed for its own
// without writing it (libcalico-go ipam/ipam_block_reader_writer.go), so that a
// host that is just claiming the block cannot be told by the affinity's version.
// Therefore the affinity becomes pendingDeletion first: anyone who reads it from now
// on must write it, which makes the deletion fail, and anyone who read it before fails
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
			return k.left(ctx, err, a, was, isChanged(err))
		}
		pending := a
		if a, err = k.mark(ctx, a); err != nil {
			return k.left(ctx, err, pending, was, false)
		}
	}
	if err := k.remove(ctx, a); err != nil {
		return leftBehind(blocks.Affinities, a.name(), leftMarked, err)
	}
	return k.restoreIfClaimed(ctx, c)
}
