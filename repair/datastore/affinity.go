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

// Labels that Calico v3.31 and newer use to find affinities (libcalico-go
// backend/model/block_affinity.go, EnsureBlockAffinityLabels).
const (
	hostnameHashLabel = "projectcalico.org/hostname-hash"
	affinityTypeLabel = "projectcalico.org/affinity-type"
	ipVersionLabel    = "projectcalico.org/ip-version"
)

// affinityLabels returns the labels that Calico gives to a host's affinity. The host is
// hashed because its name may be longer than a label value.
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

// setState writes an affinity's state. It makes writes of all clients fail that have read the
// affinity before.
func (w *Writer) setState(ctx context.Context, a *object, state blocks.AffinityState) (*object, error) {
	return w.writeState(ctx, a, state, false)
}

// writeState is setState. back marks a write that reverts an earlier write of the step.
// Such a write is sent even if the journal cannot record it.
func (w *Writer) writeState(ctx context.Context, a *object, state blocks.AffinityState, back bool) (*object, error) {
	e := newEdit(a)
	e.set(string(state), "spec", "state")
	e.back = back
	return w.patch(ctx, a, e)
}

// dropAffinity marks and deletes an affinity, unless its host has claimed the CIDR again
// since the last write here.
func (w *Writer) dropAffinity(ctx context.Context, a *object) error {
	marked, err := w.markAndRemove(ctx, newEdit(a))
	switch {
	case err == nil:
		return nil
	case !isChanged(err) && marked:
		return leftBehind(blocks.Affinities, a.name(), leftMarked, err)
	case !isChanged(err):
		return leftBehind(blocks.Affinities, a.name(), leftPendingDeletion, err)
	}
	now, readErr := w.get(ctx, blocks.Affinities, a.name())
	switch {
	case readErr != nil:
		return errors.Join(detached(err), readErr)
	case now == nil, now.uid() != a.uid(), now.state() != blocks.PendingDeletion:
		return nil
	}
	return leftBehind(blocks.Affinities, a.name(), leftPendingDeletion, err)
}

// putBack restores the state of an affinity that a step set to pendingDeletion, if no other client
// has written it since. Otherwise the error is [repair.ErrChanged]. If there was a block, putBack
// must not let the affinity outlive it: see giveState.
func (w *Writer) putBack(ctx context.Context, a *object, was blocks.AffinityState, block bool) error {
	if a.state() == was {
		return nil
	}
	give := w.giveState
	if !block {
		give = func(ctx context.Context, a *object, was blocks.AffinityState, back bool) error {
			_, err := w.writeState(ctx, a, was, back)
			return err
		}
	}
	failed := give(ctx, a, was, true)
	if !isChanged(failed) || errors.Is(failed, errOutlived) {
		return failed
	}
	now, err := w.get(ctx, blocks.Affinities, a.name())
	switch {
	case err != nil:
		return err
	case now == nil, now.uid() != a.uid(), now.state() != blocks.PendingDeletion:
		return failed
	}
	if err := notMarked(now); err != nil {
		return err
	}
	// Another field was written in between. Only this step has started to delete the affinity in
	// that version.
	return give(ctx, now, was, true)
}

// left restores an affinity's state after a step failed. It returns the step's error, or
// one that also describes the affinity if the state could not be restored. If another
// client has taken the affinity over, it needs no restoring.
func (w *Writer) left(ctx context.Context, failed error, a *object, was blocks.AffinityState, block bool) error {
	if errors.Is(failed, errUnknown) {
		return inBetween(a, failed)
	}
	if err := w.putBack(ctx, a, was, block); err != nil && !isChanged(err) {
		return notPutBack(a, failed, err)
	}
	return failed
}

// DeleteAffinity deletes an affinity whose block does not exist, has another owner or has
// no owner.
//
// Calico's getPendingAffinity uses a confirmed affinity without writing it (libcalico-go
// ipam/ipam_block_reader_writer.go). So the affinity's version does not show whether its
// host is just claiming the block. Therefore DeleteAffinity first sets the state to
// pendingDeletion. A client that reads the affinity afterwards must write it, which makes
// the deletion fail. A client that read it earlier fails to confirm it. DeleteAffinity
// reads the block before that write, after it, and after the deletion. If the block's
// owner is the host, DeleteAffinity restores the affinity and returns
// [repair.ErrChanged].
//
// One case remains: a client that read the affinity earlier creates the block after the
// last read. Its claim fails because it cannot confirm the affinity, and it leaves an
// empty block without an affinity. The same happens when Calico itself deletes the
// affinity. When the node needs a block, it finds this one and confirms a new affinity. A
// repair can do the same.
func (w *Writer) DeleteAffinity(ctx context.Context, affinity repair.ObjectRef) error {
	var c claim
	return w.step(ctx, "deleting", affinity, func(ctx context.Context, a *object) (err error) {
		if c, err = claimOf(a); err == nil && c.owner.Kind != blocks.HostOwner {
			err = fmt.Errorf("it belongs to %q, which is not a node", c.owner)
		}
		if err == nil {
			err = w.notItsOwn(ctx, c)
		}
		return err
	}, func(ctx context.Context, a *object) error { return w.deleteAffinity(ctx, a, c) })
}

// blockOf reads the block of an affinity by its canonical name, and reports whether the
// block has the same owner. It returns nil if the block does not exist.
func (w *Writer) blockOf(ctx context.Context, c claim) (b *object, its bool, err error) {
	if b, err = w.get(ctx, blocks.Blocks, blocks.BlockName(c.cidr)); err != nil || b == nil {
		return nil, false, err
	}
	now, err := claimOf(b)
	return b, err == nil && now == c, err
}

// notItsOwn returns [repair.ErrChanged] if the block's owner is the affinity's host.
func (w *Writer) notItsOwn(ctx context.Context, c claim) error {
	b, its, err := w.blockOf(ctx, c)
	if its {
		return changedf("%s now names its host", b)
	}
	return err
}

// deleteAffinity is DeleteAffinity from its first write on.
func (w *Writer) deleteAffinity(ctx context.Context, a *object, c claim) error {
	was := a.state()
	marked, err := a.marked()
	switch {
	case err != nil:
		return err
	case marked:
		err = w.remove(ctx, a)
	default:
		if a, err = w.setState(ctx, a, blocks.PendingDeletion); err != nil {
			return err
		}
		if err := w.notItsOwn(ctx, c); err != nil {
			return w.left(ctx, err, a, was, isChanged(err))
		}
		if marked, err = w.markAndRemove(ctx, newEdit(a)); err != nil && !marked {
			return w.left(ctx, err, a, was, false)
		}
	}
	if err != nil {
		return leftBehind(blocks.Affinities, a.name(), leftMarked, err)
	}
	return w.restoreIfClaimed(ctx, c)
}
