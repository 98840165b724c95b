package datastore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// ReleaseIPs frees ordinals of a block in one write and then lowers their handles'
// counts, as Calico's ReleaseIPs with handle and sequence number does (libcalico-go
// ipam/ipam_block.go, release). A block without an owner that becomes empty is deleted.
//
// Handle and sequence number pin each allocation. The block itself may have been written since it
// was evaluated, because its node uses it. ReleaseIPs reads the block again and compares each
// allocation with it; the write is conditional on the version read.
//
// ReleaseIPs skips two side effects of Calico's code: it does not release a block whose
// pool no longer selects the node (ensureConsistentAffinity), and it does not delete a
// block that still holds addresses reserved for Windows.
func (w *Writer) ReleaseIPs(ctx context.Context, block repair.ObjectRef, all []repair.ReleaseOptions) []error {
	read := w.same
	if slices.ContainsFunc(all, func(r repair.ReleaseOptions) bool { _, _, isVM := blocks.VMOfHandle(r.Handle); return isVM }) {
		// A restarted virtual machine keeps its handle and sequence number, so they do
		// not show the restart. The block must therefore be unchanged since it was
		// evaluated.
		read = w.evaluated
	}
	b, err := read(ctx, block)
	errs := make([]error, len(all))
	var e *edit
	var freed []int
	err = w.stepOn(ctx, "releasing addresses of "+describe(blocks.Blocks, block.Name), b, err, func(_ context.Context, b *object) error {
		e, freed = w.freeingAll(b, all, errs)
		return nil
	}, func(ctx context.Context, b *object) error {
		if len(freed) == 0 {
			return nil
		}
		return w.releaseIPs(ctx, b, e, all, freed, errs)
	})
	for i, r := range all {
		if errs[i] = cmp.Or(errs[i], err); errs[i] != nil && err == nil {
			errs[i] = fmt.Errorf("releasing ordinal %d of %s: %w", r.Ordinal, describe(blocks.Blocks, block.Name), errs[i])
		}
	}
	return errs
}

// freeingAll returns an edit that frees all ordinals whose allocation is unchanged, and
// their indices in the list. It compares each allocation with the block as it will be
// after the previous ordinals are freed.
func (w *Writer) freeingAll(b *object, all []repair.ReleaseOptions, errs []error) (e *edit, freed []int) {
	e = newEdit(b)
	for i, now := 0, b; i < len(all); i++ {
		r, err := newAllocation(now, all[i].Ordinal)
		if err == nil {
			err = r.is(all[i].Handle, all[i].Sequence)
		}
		var one *edit
		if err == nil {
			one, err = w.freeing(r)
		}
		if err == nil && len(freed) > 0 && len(e.ops)+len(one.ops) > maxOperations {
			err = changedf("it needs a write of its own")
		}
		var after []byte
		if err == nil {
			_, after, err = one.patch()
		}
		if err == nil {
			now, err = parseObject(b.resource, after)
		}
		if errs[i] = err; err == nil {
			e.ops, e.deletes, freed = append(e.ops, one.ops...), e.deletes || one.deletes, append(freed, i)
		}
	}
	return e, freed
}

func (w *Writer) releaseIPs(ctx context.Context, b *object, e *edit, all []repair.ReleaseOptions, freed []int, errs []error) error {
	steps := make([]string, 0, len(freed))
	for _, i := range freed {
		steps = append(steps, all[i].Step)
	}
	var left, err error
	if e.deletes {
		var marked bool
		if marked, err = w.markAndRemove(ofSteps(ctx, steps...), e); marked {
			left, err = leftBehind(blocks.Blocks, b.name(), leftMarked, err), nil
		}
	} else {
		_, err = w.patch(ofSteps(ctx, steps...), b, e)
	}
	if err != nil {
		for _, i := range freed {
			errs[i] = err
		}
		return nil
	}
	// Each lowered handle resets the time limit, so a long list does not run out of time.
	// After a failure, the remaining handles share the remaining time.
	hand, cancel := w.inHand(ctx)
	defer func() { cancel() }()
	for _, i := range freed {
		errs[i] = left
		if handle := all[i].Handle; handle != "" {
			err := w.lowerHandle(ofSteps(hand, all[i].Step), handle, b.text("spec", "cidr"))
			if errs[i] = errors.Join(left, err); err == nil {
				cancel()
				hand, cancel = w.inHand(ctx)
			}
		}
		if errs[i] != nil {
			errs[i] = fmt.Errorf("the address is released, but %w", errs[i])
		}
	}
	return nil
}

// allocation is an allocated ordinal of a block.
type allocation struct {
	block       *object
	ordinal     int
	allocations []any
	index       int // of the attributes
	attributes  []any
}

// newAllocation returns the allocation of an ordinal.
func newAllocation(b *object, ordinal int) (*allocation, error) {
	r := &allocation{block: b, ordinal: ordinal}
	r.allocations, r.attributes = listAt(b.tree, "spec", "allocations"), listAt(b.tree, "spec", "attributes")
	switch marked, err := b.marked(); {
	case err != nil:
		return nil, err
	case marked:
		return nil, changedf("%s is marked deleted", b)
	case ordinal < 0 || ordinal >= len(r.allocations):
		return nil, fmt.Errorf("it has %d ordinals", len(r.allocations))
	case r.allocations[ordinal] == nil:
		return nil, changedf("it is free")
	}
	var ok bool
	if r.index, ok = integer(r.allocations[ordinal]); !ok || r.index < 0 || r.index >= len(r.attributes) {
		return nil, fmt.Errorf("it points to attributes %v, and there are %d", r.allocations[ordinal], len(r.attributes))
	}
	return r, nil
}

// integer parses an index.
func integer(v any) (int, bool) {
	n, _ := v.(json.Number) // otherwise empty, which is not a number
	i, err := strconv.Atoi(n.String())
	return i, err == nil
}

// unsigned parses a sequence number.
func unsigned(v any) (uint64, bool) {
	n, _ := v.(json.Number)
	u, err := strconv.ParseUint(n.String(), 10, 64)
	return u, err == nil
}

// sanitizeHandle cuts a handle at its first carriage return. Handles that were migrated
// from host-local have garbage after it (libcalico-go ipam/ipam_block.go,
// sanitizeHandle).
func sanitizeHandle(h string) string {
	h, _, _ = strings.Cut(h, "\r")
	return h
}

// is returns an error unless this is the allocation that was evaluated.
func (r *allocation) is(handle string, sequence uint64) error {
	if now := textOf(r.attributes[r.index], "handle_id"); now != handle {
		return changedf("its handle is %q and was %q", now, handle)
	}
	if v, ok := dig(r.attributes[r.index], "releasedAt"); ok && v != nil {
		return changedf("it was already released, at %v, and is in its cooldown", v)
	}
	v, known := dig(r.block.tree, "spec", "sequenceNumberForAllocation", strconv.Itoa(r.ordinal))
	at, ok := unsigned(v)
	switch {
	case known && !ok:
		return fmt.Errorf("its sequence number is %v, not a number", v)
	case at != sequence:
		return changedf("its sequence number is %d and was %d", at, sequence)
	}
	return nil
}

// freeing returns the part of a block's edit that frees the ordinal. The whole edit is
// conditional on the block's version.
func (w *Writer) freeing(r *allocation) (*edit, error) {
	owner, err := r.block.owner()
	if err != nil {
		return nil, err
	}
	e, b, empty := &edit{of: r.block}, r.block, true
	if slices.ContainsFunc(listAt(b.tree, "spec", "unallocated"), func(o any) bool { return o == number(r.ordinal) }) {
		return nil, errors.New("it is also among the free ones: the block contradicts itself")
	}
	used := 0
	for o, index := range r.allocations {
		if o != r.ordinal && index != nil {
			empty = false
			if i, ok := integer(index); ok && i == r.index {
				used++
			}
		}
	}
	e.set(nil, "spec", "allocations", r.ordinal)
	if used == 0 {
		if err := r.dropAttributes(e); err != nil {
			return nil, err
		}
	}
	e.add(number(r.ordinal), "spec", "unallocated")
	e.remove("spec", "sequenceNumberForAllocation", strconv.Itoa(r.ordinal))
	if empty && owner == (blocks.Owner{}) {
		e.deletes = true // Calico also deletes it without raising its sequence number
		return e, nil
	}
	return e, raiseSequence(e, b)
}

// dropAttributes removes unreferenced attributes and decrements the indices of later
// ones.
func (r *allocation) dropAttributes(e *edit) error {
	e.remove("spec", "attributes", r.index)
	for o, index := range r.allocations {
		if o == r.ordinal || index == nil {
			continue
		}
		i, ok := integer(index)
		if !ok || i < 0 || i >= len(r.attributes) {
			return fmt.Errorf("its block contradicts itself: ordinal %d points to attributes %v, and there are %d", o, index, len(r.attributes))
		}
		if i > r.index {
			e.set(number(i-1), "spec", "allocations", o)
		}
	}
	return nil
}

// raiseSequence increments a block's sequence number, as every write of a block's content
// does (libcalico-go ipam/ipam_block_reader_writer.go, updateBlock).
func raiseSequence(e *edit, b *object) error {
	v, known := dig(b.tree, "spec", "sequenceNumber")
	n, ok := unsigned(v)
	if known && !ok || n >= math.MaxInt64 {
		return fmt.Errorf("spec.sequenceNumber of %s is %v, which cannot be raised", b, v)
	}
	e.set(number(n+1), "spec", "sequenceNumber")
	return nil
}
