package datastore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/repair"
)

// RecreateHandle creates a handle as it was stored.
func (w *Writer) RecreateHandle(ctx context.Context, stored json.RawMessage) error {
	o, tree, err := w.asStored(blocks.Handles, stored)
	return w.stepOn(ctx, "creating a handle again", o, err, nothing, func(ctx context.Context, _ *object) error {
		_, err := w.create(ctx, blocks.Handles, tree)
		return err
	})
}

// asStored parses an object of a journal, and returns it without the fields that the API
// server sets.
func (w *Writer) asStored(r blocks.Resource, stored json.RawMessage) (*object, map[string]any, error) {
	o, err := parseObject(r, stored)
	if err != nil {
		return nil, nil, fmt.Errorf("reading an object of the journal: %w", err)
	}
	kind := decode.KindOf(r)
	if got := o.text("apiVersion"); got != kind.Version(w.traits.Group) || o.text("kind") != kind.Name(w.traits.Group) {
		return nil, nil, fmt.Errorf("the journal holds %s as a %s of %s, and the cluster's objects are now of %s", o, o.text("kind"), got, w.traits.Group)
	}
	if marked, err := o.marked(); err != nil || marked {
		return nil, nil, errors.Join(err, fmt.Errorf("the journal records %s as marked deleted", o))
	}
	tree := maps.Clone(o.tree)
	delete(tree, "status")
	meta, _ := tree["metadata"].(map[string]any)
	kept := map[string]any{}
	for _, field := range []string{"namespace", "name", "labels", "annotations"} {
		if v, ok := meta[field]; ok {
			kept[field] = v
		}
	}
	tree["metadata"] = kept
	return o, tree, nil
}

// RecordIP allocates an ordinal as Calico's client assigns an address (ipam AssignIP):
// the handle counts it first, then the block records it with its own sequence number. A
// missing block is created together with the address. A replaced allocation is never free
// in between, so that no other client can assign the address.
func (w *Writer) RecordIP(ctx context.Context, block repair.ObjectRef, ordinal int, a repair.Allocation) error {
	var was *object
	attributes := any(map[string]any{"handle_id": a.Handle, "secondary": textMap(a.Attributes)})
	if a.Block != nil {
		var err error
		if was, err = parseObject(blocks.Blocks, a.Block); err != nil {
			return fmt.Errorf("reading a block of the journal: %w", err)
		}
		from, err := newAllocation(was, ordinal)
		if err != nil {
			return fmt.Errorf("the journal's record of %s does not show what ordinal %d was allocated to: %w", was, ordinal, detached(err))
		}
		attributes = from.attributes[from.index]
	}
	doing := fmt.Sprintf("recording ordinal %d of %s", ordinal, describe(blocks.Blocks, block.Name))
	if a.Claim.IsValid() {
		return w.recordInClaimed(ctx, doing, ordinal, attributes, a)
	}
	b, err := w.evaluated(ctx, block)
	var e *edit
	return w.stepOn(ctx, doing, b, err, func(_ context.Context, b *object) (err error) {
		if a.Replaces != nil {
			e, err = replacing(b, ordinal, attributes, a.Replaces)
			return err
		}
		e, err = recording(b, was, ordinal, attributes)
		return err
	}, func(ctx context.Context, b *object) error {
		if err := w.recordIP(ctx, b, e, textOf(attributes, "handle_id"), a); err != nil || a.Replaces == nil {
			return err
		}
		return w.lowerHandle(ctx, a.Replaces.Handle, b.text("spec", "cidr"))
	})
}

// recordInClaimed is RecordIP for a missing block. It claims the block first. The block
// stays claimed even if the address is not recorded.
func (w *Writer) recordInClaimed(ctx context.Context, doing string, ordinal int, attributes any, a repair.Allocation) error {
	c := claim{blocks.Owner{Kind: blocks.HostOwner, Name: a.Host}, a.Claim.Masked()}
	var had *object
	return w.stepOn(ctx, doing, nil, nil, func(ctx context.Context, _ *object) (err error) {
		had, err = w.mayClaim(ctx, c)
		return err
	}, func(ctx context.Context, _ *object) error {
		if err := w.claimWith(ctx, c, had, ordinal, a); err != nil {
			return err
		}
		b, _, err := w.blockOf(ctx, c)
		switch {
		case err != nil:
			return unknown{fmt.Errorf("%s was claimed, and it is not known whether it records the address: %w", describe(blocks.Blocks, blocks.BlockName(c.cidr)), err)}
		case b == nil:
			return changedf("%s was claimed and then deleted", describe(blocks.Blocks, blocks.BlockName(c.cidr)))
		case slices.Contains(refersTo(b, a.Handle), ordinal):
			return nil
		}
		e, err := recording(b, nil, ordinal, attributes)
		if err == nil {
			err = w.recordIP(ctx, b, e, a.Handle, a)
		}
		if err != nil {
			return leftBehind(blocks.Blocks, blocks.BlockName(c.cidr), fmt.Sprintf("is left claimed for %s, without the address", a.Host), err)
		}
		return nil
	})
}

// claimWith claims a block that records all addresses in use from the start, because an
// empty block could assign them immediately. Their handles count the addresses first. If the
// host already owns the block, only the affinity is confirmed.
func (w *Writer) claimWith(ctx context.Context, c claim, had *object, ordinal int, a repair.Allocation) error {
	tree, err := w.newBlock(c)
	if err != nil {
		return err
	}
	switch b, _, err := w.blockOf(ctx, c); {
	case err != nil:
		return err
	case b != nil:
		return w.claimBlock(ctx, c, had, tree)
	}
	counts := map[string]int{}
	for _, x := range append([]repair.Beside{{Ordinal: ordinal, Handle: a.Handle, Attributes: a.Attributes}}, a.Beside...) {
		if err := recordNew(tree, x); err != nil {
			return err
		}
		counts[x.Handle]++
	}
	var raised []string
	for _, id := range slices.Sorted(maps.Keys(counts)) {
		var now bool
		if now, err = w.raiseHandle(ctx, id, c.cidr.String(), counts[id], nil); err != nil {
			break
		}
		if now {
			raised = append(raised, id)
		}
	}
	if err == nil {
		err = w.claimBlock(ctx, c, had, tree)
	}
	if errors.As(err, new(blockUnknown)) {
		return err // so the counts may be right
	}
	b, _, unread := w.blockOf(ctx, c)
	var low error
	for _, id := range raised {
		switch {
		case unread != nil:
			low = errors.Join(low, leftBehind(blocks.Handles, w.handleName(id), "may count one address too many in "+c.cidr.String(), unread))
		case b == nil || countIn(b, id) == 0:
			for range counts[id] {
				low = errors.Join(low, w.lowerHandle(ctx, id, c.cidr.String()))
			}
		}
	}
	if err != nil && low != nil {
		return errors.Join(detached(err), low)
	}
	return cmp.Or(err, low)
}

// recordNew allocates an ordinal of a block that is about to be created. See recording.
func recordNew(tree map[string]any, x repair.Beside) error {
	spec := mapAt(tree, "spec")
	list, free := listAt(tree, "spec", "allocations"), listAt(tree, "spec", "unallocated")
	if x.Ordinal < 0 || x.Ordinal >= len(list) || list[x.Ordinal] != nil {
		return fmt.Errorf("ordinal %d is not one of the %d, or is given twice", x.Ordinal, len(list))
	}
	sequence, ok := unsigned(spec["sequenceNumber"])
	if !ok {
		return fmt.Errorf("its sequence number is %v, not a number", spec["sequenceNumber"])
	}
	attributes := listAt(tree, "spec", "attributes")
	list[x.Ordinal] = number(len(attributes))
	spec["attributes"] = append(attributes, map[string]any{"handle_id": x.Handle, "secondary": textMap(x.Attributes)})
	spec["unallocated"] = slices.DeleteFunc(free, func(o any) bool { return o == number(x.Ordinal) })
	if spec["sequenceNumberForAllocation"] == nil {
		spec["sequenceNumberForAllocation"] = map[string]any{}
	}
	mapAt(tree, "spec", "sequenceNumberForAllocation")[strconv.Itoa(x.Ordinal)] = number(sequence)
	spec["sequenceNumber"] = number(sequence + 1)
	return nil
}

func textMap(m map[string]string) map[string]any {
	out := map[string]any{}
	for key, value := range m {
		out[key] = value
	}
	return out
}

func (w *Writer) recordIP(ctx context.Context, b *object, e *edit, id string, a repair.Allocation) error {
	cidr, raised := b.text("spec", "cidr"), false
	if id != "" {
		// A run that died after it had freed the address did not lower its handle.
		var err error
		if raised, err = w.raiseHandle(ctx, id, cidr, 1+countIn(b, id), a.Stored); err != nil {
			return err
		}
	}
	_, err := w.patch(ctx, b, e)
	if err == nil || !raised || errors.Is(err, errUnknown) {
		return err // the block may have been written, so the count may be right
	}
	if low := w.lowerHandle(ctx, id, cidr); low != nil {
		return fmt.Errorf("%w; and %w", detached(err), low)
	}
	return err
}

// mayRecord returns an error unless the block is the stored one, if any, and the ordinal
// is free.
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

// recording returns the edit of a block that allocates a free ordinal (libcalico-go
// ipam/ipam_block.go, assign). See mayRecord.
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
	return e, e.allocate(b, ordinal, index)
}

// replacing returns the edit of a block that gives an allocated ordinal other attributes.
func replacing(b *object, ordinal int, attributes any, old *repair.ReleaseOptions) (*edit, error) {
	r, err := newAllocation(b, ordinal)
	if err == nil {
		err = r.is(old.Handle, old.Sequence)
	}
	if err != nil {
		return nil, err
	}
	e, index, users := newEdit(b), r.index, 0
	for _, at := range r.allocations {
		if i, ok := integer(at); ok && i == r.index {
			users++
		}
	}
	if users == 1 {
		e.set(attributes, "spec", "attributes", r.index)
	} else {
		index = len(r.attributes)
		e.add(attributes, "spec", "attributes")
	}
	return e, e.allocate(b, ordinal, index)
}

// allocate sets the attributes, by their index, and the sequence number of an ordinal.
func (e *edit) allocate(b *object, ordinal, index int) error {
	e.set(number(index), "spec", "allocations", ordinal)
	if i := slices.IndexFunc(listAt(b.tree, "spec", "unallocated"), func(o any) bool { return o == number(ordinal) }); i >= 0 {
		e.remove("spec", "unallocated", i)
	}
	v, _ := dig(b.tree, "spec", "sequenceNumber")
	sequence, ok := unsigned(v)
	if !ok {
		return fmt.Errorf("spec.sequenceNumber of %s is %v, not a number", b, v)
	}
	if v, _ := dig(b.tree, "spec", "sequenceNumberForAllocation"); v == nil {
		e.set(map[string]any{}, "spec", "sequenceNumberForAllocation")
	}
	e.set(number(sequence), "spec", "sequenceNumberForAllocation", strconv.Itoa(ordinal))
	return raiseSequence(e, b)
}
