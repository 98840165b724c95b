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

// RecordIP allocates an ordinal again as Calico's client assigns an address (ipam
// AssignIP): the handle counts it first, then the block records it, with a sequence
// number of its own and with the attributes that it had.
func (k *Kubernetes) RecordIP(ctx context.Context, block repair.ObjectRef, ordinal int, stored, handle json.RawMessage) error {
	was, err := parseObject(blocks.Blocks, stored)
	if err != nil {
		return fmt.Errorf("reading a block of the journal: %w", err)
	}
	from, err := newAllocation(was, ordinal)
	if err != nil {
		return fmt.Errorf("%s as written down does not tell what ordinal %d was allocated to: %w", was, ordinal, detached(err))
	}
	var e *edit
	return k.step(ctx, fmt.Sprintf("recording ordinal %d again of", ordinal), block, func(_ context.Context, b *object) error {
		err := mayRecord(b, was, ordinal)
		if err == nil {
			e, err = recording(b, ordinal, from.attributes[from.index])
		}
		return err
	}, func(ctx context.Context, b *object) error {
		return k.recordIP(ctx, b, e, textOf(from.attributes[from.index], "handle_id"), handle)
	})
}

func (k *Kubernetes) recordIP(ctx context.Context, b *object, e *edit, id string, handle json.RawMessage) error {
	cidr := b.text("spec", "cidr")
	if id != "" {
		if err := k.raiseHandle(ctx, id, cidr, handle); err != nil {
			return err
		}
	}
	_, err := k.patch(ctx, b, e)
	if err == nil || id == "" || errors.Is(err, errUnknown) {
		return err // of a block that may be written, the count may be right
	}
	if low := k.lowerHandle(ctx, id, cidr); low != nil {
		return fmt.Errorf("%w; and %w", detached(err), low)
	}
	return err
}

// mayRecord makes sure that a block is the one that was written down, and that the
// ordinal is free.
func mayRecord(b, was *object, ordinal int) error {
	if b.uid() != was.uid() {
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

// recording is the change of a block that allocates an ordinal (libcalico-go
// ipam/ipam_block.go, assign).
func recording(b *object, ordinal int, attributes any) (*edit, error) {
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
