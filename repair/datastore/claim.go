package datastore

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"

	"github.com/calico-audit/calico-audit/blocks"
)

// maxClaimed is the largest number of addresses in a block that is claimed. Calico's
// pools allow blocks of up to 4096 addresses (libcalico-go clientv3/ippool.go).
const maxClaimed = 4096

// ClaimBlock creates an empty block for a host, as Calico claims one (libcalico-go
// ipam/ipam_block_reader_writer.go, getPendingAffinity and claimAffineBlock): it creates
// the affinity as pending, creates the block, and confirms the affinity. No other
// affinity to the CIDR may exist. If another client creates the block first, the affinity
// is reverted and the error is [repair.ErrChanged]. If the host already owns the block,
// only the affinity is confirmed.
func (w *Writer) ClaimBlock(ctx context.Context, cidr netip.Prefix, host string) error {
	c := claim{blocks.Owner{Kind: blocks.HostOwner, Name: host}, cidr.Masked()}
	var a *object
	return w.stepOn(ctx, fmt.Sprintf("claiming %s for %s", cidr, host), nil, nil, func(ctx context.Context, _ *object) (err error) {
		a, err = w.mayClaim(ctx, c)
		return err
	}, func(ctx context.Context, _ *object) error {
		tree, err := w.newBlock(c)
		if err != nil {
			return err
		}
		return w.claimBlock(ctx, c, a, tree)
	})
}

// mayClaim returns an error if another node has a block or an affinity for the CIDR.
// Otherwise it returns the host's existing affinity, or nil.
func (w *Writer) mayClaim(ctx context.Context, c claim) (*object, error) {
	if size := c.cidr.Addr().BitLen() - c.cidr.Bits(); c.owner.Name == "" || !c.cidr.IsValid() || size > 12 {
		return nil, fmt.Errorf("%s is not a block of at most %d addresses for a node", c.cidr, maxClaimed)
	}
	b, its, err := w.blockOf(ctx, c)
	if err == nil && b != nil {
		if err = notMarked(b); err == nil && !its {
			err = anothers(b, c)
		}
	}
	if err != nil {
		return nil, err
	}
	name := blocks.AffinityName(c.owner.Name, c.cidr)
	a, err := w.get(ctx, blocks.Affinities, name)
	if err == nil && a != nil {
		err = notMarked(a)
	}
	if err == nil && a != nil {
		if now, bad := claimOf(a); bad != nil || now != c {
			err = changedf("%s claims another block", a)
		}
	}
	if err != nil {
		return nil, err
	}
	return a, w.onlyClaim(ctx, c, name)
}

// claimBlock is ClaimBlock from its first write on. had is the existing affinity; its state is
// restored if the claim fails. tree is the block.
func (w *Writer) claimBlock(ctx context.Context, c claim, had *object, tree map[string]any) error {
	return w.makeClaim(ctx, c, had, func(a *object) error {
		_, failed := w.create(ctx, blocks.Blocks, tree)
		if errors.Is(failed, errUnknown) {
			return blockUnknown{leftPending(a, failed)}
		}
		b, its, err := w.blockOf(ctx, c)
		if err == nil && its {
			err = notMarked(b)
		}
		switch {
		case err != nil:
			return leftPending(a, err)
		case its:
			return nil
		case failed == nil || isChanged(failed):
			failed = changedf("%s no longer belongs to its host", describe(blocks.Blocks, blocks.BlockName(c.cidr)))
		}
		if had == nil {
			return w.takeBack(ctx, failed, a)
		}
		if err := w.giveState(ctx, a, had.state(), true); err != nil && !isChanged(err) {
			return leftPending(a, errors.Join(failed, err))
		}
		return failed
	})
}

// blockUnknown is the error of a claim whose block may have been created, or may still be.
type blockUnknown struct{ error }

// newBlock returns an empty block as Calico's client creates it. affinityClaimTime exists
// since v3.32, whose allocator lets another node take over an empty block that was
// claimed more than a minute ago. The API server of an older release drops the field.
func (w *Writer) newBlock(c claim) (map[string]any, error) {
	n := 1 << (c.cidr.Addr().BitLen() - c.cidr.Bits())
	owner, now := c.owner.Affinity(), time.Now()
	spec := libapiv3.IPAMBlockSpec{
		CIDR: c.cidr.String(), Affinity: &owner, Allocations: make([]*int, n), Unallocated: make([]int, n), Attributes: []libapiv3.AllocationAttribute{},
		SequenceNumber: uint64(now.UnixNano()), SequenceNumberForAllocation: map[string]uint64{},
	}
	for i := range spec.Unallocated {
		spec.Unallocated[i] = i
	}
	tree, err := w.newObject(blocks.Blocks, blocks.BlockName(c.cidr), spec, nil, nil)
	if err == nil {
		mapAt(tree, "spec")["affinityClaimTime"] = now.UTC().Format(time.RFC3339)
	}
	return tree, err
}
