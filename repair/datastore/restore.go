package datastore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// RecreateHandle creates a handle as it was stored.
func (k *Kubernetes) RecreateHandle(ctx context.Context, stored json.RawMessage) error {
	o, tree, err := k.asStored(blocks.Handles, stored)
	return k.stepOn(ctx, "creating a handle again", o, err, func(context.Context, *object) error { return nil }, func(ctx context.Context, _ *object) error {
		_, err := k.create(ctx, blocks.Handles, tree)
		return err
	})
}

// asStored reads an object that a journal holds, and makes of it one that can be
// created: without what the API server itself gives an object.
func (k *Kubernetes) asStored(r blocks.Resource, stored json.RawMessage) (*object, map[string]any, error) {
	o, err := parseObject(r, stored)
	if err != nil {
		return nil, nil, fmt.Errorf("reading an object of the journal: %w", err)
	}
	if got := o.text("apiVersion"); got != k.group || o.text("kind") != k.kind(r) {
		return nil, nil, fmt.Errorf("the journal holds %s as a %s of %s, and the cluster's objects are now of %s", o, o.text("kind"), got, k.group)
	}
	if marked, err := o.marked(); err != nil || marked {
		return nil, nil, errors.Join(err, fmt.Errorf("%s was marked deleted when it was written down", o))
	}
	tree := maps.Clone(o.tree)
	delete(tree, "status")
	meta, _ := tree["metadata"].(map[string]any)
	kept := map[string]any{}
	for _, field := range []string{"name", "labels", "annotations"} {
		if v, ok := meta[field]; ok {
			kept[field] = v
		}
	}
	tree["metadata"] = kept
	return o, tree, nil
}

// RecordIP allocates an ordinal as Calico's client assigns an address (ipam AssignIP):
// the handle counts it first, then the block records it, with a sequence number of its
// own. Where no block exists it is claimed before.
func (k *Kubernetes) RecordIP(ctx context.Context, block repair.ObjectRef, ordinal int, a repair.Allocation) error {
	var was *object
	attributes := any(map[string]any{"handle_id": a.Handle, "secondary": textMap(a.Attributes)})
	if a.Block != nil {
		var err error
		if was, err = parseObject(blocks.Blocks, a.Block); err != nil {
			return fmt.Errorf("reading a block of the journal: %w", err)
		}
		from, err := newAllocation(was, ordinal)
		if err != nil {
			return fmt.Errorf("%s as written down does not tell what ordinal %d was allocated to: %w", was, ordinal, detached(err))
		}
		attributes = from.attributes[from.index]
	}
	doing := fmt.Sprintf("recording ordinal %d of %s", ordinal, describe(blocks.Blocks, block.Name))
	if a.Claim.IsValid() {
		return k.recordInClaimed(ctx, doing, ordinal, attributes, a)
	}
	b, err := k.evaluated(ctx, block)
	var e *edit
	return k.stepOn(ctx, doing, b, err, func(_ context.Context, b *object) (err error) {
		e, err = recording(b, was, ordinal, attributes)
		return err
	}, func(ctx context.Context, b *object) error {
		return k.recordIP(ctx, b, e, textOf(attributes, "handle_id"), a)
	})
}

// recordInClaimed is RecordIP where no block exists: it is claimed before, and stays
// claimed whatever becomes of the address.
func (k *Kubernetes) recordInClaimed(ctx context.Context, doing string, ordinal int, attributes any, a repair.Allocation) error {
	c := claim{blocks.Owner{Kind: blocks.HostOwner, Name: a.Host}, a.Claim.Masked()}
	var had *object
	return k.stepOn(ctx, doing, nil, nil, func(ctx context.Context, _ *object) (err error) {
		had, err = k.mayClaim(ctx, c)
		return err
	}, func(ctx context.Context, _ *object) error {
		if err := k.claimBlock(ctx, c, had); err != nil {
			return err
		}
		b, _, err := k.blockOf(ctx, c)
		if err == nil && b == nil {
			return changedf("%s was claimed, and is gone", describe(blocks.Blocks, blocks.BlockName(c.cidr)))
		}
		var e *edit
		if err == nil {
			e, err = recording(b, nil, ordinal, attributes)
		}
		if err == nil {
			err = k.recordIP(ctx, b, e, a.Handle, a)
		}
		if err != nil {
			return leftBehind(blocks.Blocks, blocks.BlockName(c.cidr), fmt.Sprintf("is left claimed for %s, without the address", a.Host), err)
		}
		return nil
	})
}

func textMap(m map[string]string) map[string]any {
	out := map[string]any{}
	for key, value := range m {
		out[key] = value
	}
	return out
}

func (k *Kubernetes) recordIP(ctx context.Context, b *object, e *edit, id string, a repair.Allocation) error {
	cidr, raised := b.text("spec", "cidr"), false
	if id != "" {
		want := 0
		if a.Block == nil {
			want = 1 + countIn(b, id)
		}
		var err error
		if raised, err = k.raiseHandle(ctx, id, cidr, want, a.Stored); err != nil {
			return err
		}
	}
	_, err := k.patch(ctx, b, e)
	if err == nil || !raised || errors.Is(err, errUnknown) {
		return err // of a block that may be written, the count may be right
	}
	if low := k.lowerHandle(ctx, id, cidr); low != nil {
		return fmt.Errorf("%w; and %w", detached(err), low)
	}
	return err
}

// mayRecord makes sure that a block is the one that was written down, if any, and that the
// ordinal is free.
func mayRecord(b, was *object, ordinal int) error {
	if was != nil && b.uid() != was.uid() {
		return changedf("%s was deleted and created again", b)
	}
	if err := notMarked(b); err != nil {
		return err
	}
	list := listAt(b.tree, "spec", "allocations")
	switch {
	case ordinal < 0 || ordinal >= len(list):
		return fmt.Errorf("%s has %d ordinals", b, len(list))
	case list[ordinal] != nil:
		return changedf("ordinal %d of %s was assigned again", ordinal, b)
	}
	return nil
}

// recording is the change of a block that allocates an ordinal, which must be free
// (libcalico-go ipam/ipam_block.go, assign). See mayRecord.
func recording(b, was *object, ordinal int, attributes any) (*edit, error) {
	if err := mayRecord(b, was, ordinal); err != nil {
		return nil, err
	}
	e := newEdit(b)
	list := listAt(b.tree, "spec", "attributes")
	index := slices.IndexFunc(list, func(have any) bool { return reflect.DeepEqual(have, attributes) })
	if index < 0 {
		index = len(list)
		e.add(attributes, "spec", "attributes")
	}
	e.set(number(index), "spec", "allocations", ordinal)
	if i := slices.IndexFunc(listAt(b.tree, "spec", "unallocated"), func(o any) bool { return o == number(ordinal) }); i >= 0 {
		e.remove("spec", "unallocated", i)
	}
	v, _ := dig(b.tree, "spec", "sequenceNumber")
	sequence, ok := unsigned(v)
	if !ok {
		return nil, fmt.Errorf("spec.sequenceNumber of %s is %v, not a number", b, v)
	}
	if v, _ := dig(b.tree, "spec", "sequenceNumberForAllocation"); v == nil {
		e.set(map[string]any{}, "spec", "sequenceNumberForAllocation")
	}
	e.set(number(sequence), "spec", "sequenceNumberForAllocation", strconv.Itoa(ordinal))
	return e, raiseSequence(e, b)
}
