package datastore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// RecreateHandle creates a handle as it was stored.
func (k *Kubernetes) RecreateHandle(ctx context.Context, stored json.RawMessage) error {
	_, tree, err := k.asStored(blocks.Handles, stored)
	if err != nil {
		return err
	}
	ctx, done, err := k.finish(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = k.create(ctx, blocks.Handles, tree)
	return err
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
	tree := deepCopy(o.tree).(map[string]any)
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

// RecordIP allocates an ordinal anew as Calico's client assigns an address (ipam
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
	b, err := k.judged(ctx, block)
	if err == nil {
		err = mayRecord(b, was, ordinal)
	}
	var e *edit
	if err == nil {
		e, err = recording(b, ordinal, from.attributes[from.index])
	}
	if err != nil {
		return fmt.Errorf("recording ordinal %d of a block again: %w", ordinal, err)
	}
	ctx, done, err := k.finish(ctx)
	if err != nil {
		return err
	}
	defer done()
	v, _ := dig(from.attributes[from.index], "handle_id")
	id, _ := v.(string)
	cidr := b.text("spec", "cidr")
	if id != "" {
		if err := k.raiseHandle(ctx, id, cidr, handle); err != nil {
			return fmt.Errorf("recording ordinal %d of %s again: %w", ordinal, b, err)
		}
	}
	_, err = k.patch(ctx, b, e)
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
		return changedf("%s was deleted and made anew", b)
	}
	if marked, err := b.marked(); err != nil {
		return err
	} else if marked {
		return changedf("%s is marked deleted", b)
	}
	v, _ := dig(b.tree, "spec", "allocations")
	list := asList(v)
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
	v, _ := dig(b.tree, "spec", "attributes")
	list := asList(v)
	index := slices.IndexFunc(list, func(have any) bool { return reflect.DeepEqual(have, attributes) })
	if index < 0 {
		index = len(list)
		e.add(attributes, "spec", "attributes")
	}
	e.set(number(index), "spec", "allocations", ordinal)
	v, _ = dig(b.tree, "spec", "unallocated")
	if i := slices.IndexFunc(asList(v), func(o any) bool { return o == number(ordinal) }); i >= 0 {
		e.remove("spec", "unallocated", i)
	}
	v, _ = dig(b.tree, "spec", "sequenceNumber")
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
