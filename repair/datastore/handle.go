package datastore

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// maxCounts is how often a handle is read again and counted anew. Calico tries 100
// times (libcalico-go ipam/ipam.go, datastoreRetries).
const maxCounts = 20

// lowerHandle lowers a handle's count for a block by one, and deletes a handle that
// counts nothing any more (libcalico-go ipam/ipam.go, decrementHandle). What is
// written is relative, one less than there is, so that it is right in any version:
// where somebody else wrote the handle, it is read again. A handle that does not
// exist or does not count the block is left as it is.
func (k *Kubernetes) lowerHandle(ctx context.Context, id, cidr string) error {
	name := strings.ToLower(sanitizeHandle(id))
	var err error
	for range maxCounts {
		var h *object
		if h, err = k.get(ctx, blocks.Handles, name); err != nil || h == nil {
			break
		}
		var last bool
		e := newEdit(h)
		if last, err = lowerCount(e, h, id, cidr); err != nil || e.empty() {
			break
		}
		if last {
			err = k.removeHandle(ctx, h, e)
		} else {
			_, err = k.patch(ctx, h, e)
		}
		if !isChanged(err) {
			break
		}
	}
	if err == nil || isLeft(err) {
		return err
	}
	return leftBehind(blocks.Handles, name, "is left counting an address of "+cidr+" too many", err)
}

// removeHandle writes a change of a handle together with the mark, and deletes it.
func (k *Kubernetes) removeHandle(ctx context.Context, h *object, e *edit) error {
	k.setMark(e, blocks.Handles)
	marked, err := k.patch(ctx, h, e)
	if err != nil {
		return err
	}
	if err := k.remove(ctx, marked); err != nil {
		return leftBehind(blocks.Handles, h.name(), leftMarked, err)
	}
	return nil
}

// lowerCount makes the change of a handle that lowerHandle is about, and tells
// whether the handle then counts nothing. Nothing is changed if there is nothing to
// lower.
func lowerCount(e *edit, h *object, id, cidr string) (last bool, err error) {
	if marked, err := h.marked(); err != nil || marked || h.deleting() {
		return false, err
	}
	if !strings.EqualFold(sanitizeHandle(h.text("spec", "handleID")), sanitizeHandle(id)) {
		return false, nil
	}
	v, _ := dig(h.tree, "spec", "block")
	counts, _ := v.(map[string]any)
	key, ok := keyOf(counts, cidr)
	if !ok {
		return false, nil
	}
	n, ok := integer(counts[key])
	switch {
	case !ok:
		return false, fmt.Errorf("it counts %v in %s", counts[key], key)
	case n > 1:
		e.set(number(n-1), "spec", "block", key)
		return false, nil
	}
	e.remove("spec", "block", key)
	return len(counts) == 1, nil
}

// keyOf finds a CIDR among the keys of a map, however it is written.
func keyOf(m map[string]any, cidr string) (string, bool) {
	if _, ok := m[cidr]; ok {
		return cidr, true
	}
	want, err := netip.ParsePrefix(cidr)
	if err != nil {
		return "", false
	}
	for key := range m {
		if p, err := netip.ParsePrefix(key); err == nil && p.Masked() == want.Masked() {
			return key, true
		}
	}
	return "", false
}

// DeleteHandle deletes a handle. None of the blocks that it counts may hold an
// allocation under it.
func (k *Kubernetes) DeleteHandle(ctx context.Context, handle repair.ObjectRef) error {
	h, err := k.judged(ctx, handle)
	if err == nil {
		err = k.unused(ctx, h)
	}
	if err != nil {
		return fmt.Errorf("deleting a handle: %w", err)
	}
	ctx, done, err := k.finish(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := k.removeHandle(ctx, h, newEdit(h)); err != nil {
		return fmt.Errorf("deleting %s: %w", h, err)
	}
	return nil
}

// unused is [repair.ErrChanged] if a block that the handle counts refers to it.
func (k *Kubernetes) unused(ctx context.Context, h *object) error {
	v, _ := dig(h.tree, "spec", "block")
	counts, _ := v.(map[string]any)
	id := sanitizeHandle(h.text("spec", "handleID"))
	for key := range counts {
		cidr, err := netip.ParsePrefix(key)
		if err != nil {
			continue
		}
		b, err := k.get(ctx, blocks.Blocks, blocks.BlockName(cidr))
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		if ordinal, found := refersTo(b, id); found {
			return changedf("ordinal %d of %s is allocated under it", ordinal, b)
		}
	}
	return nil
}

// refersTo finds an ordinal of a block that is allocated under a handle.
func refersTo(b *object, id string) (int, bool) {
	allocations, _ := dig(b.tree, "spec", "allocations")
	v, _ := dig(b.tree, "spec", "attributes")
	attributes := asList(v)
	for ordinal, index := range asList(allocations) {
		if i, ok := integer(index); ok && i >= 0 && i < len(attributes) {
			of, _ := dig(attributes[i], "handle_id")
			if s, ok := of.(string); ok && strings.EqualFold(sanitizeHandle(s), id) {
				return ordinal, true
			}
		}
	}
	return 0, false
}

// SetHandleCounts replaces a handle's counts, each of which must be at least one. A
// node that assigns an address under the handle writes the handle first, which makes
// this fail.
func (k *Kubernetes) SetHandleCounts(ctx context.Context, handle repair.ObjectRef, counts []blocks.HandleCount) error {
	h, err := k.judged(ctx, handle)
	var e *edit
	if err == nil {
		e, err = counting(h, counts)
	}
	if err != nil {
		return fmt.Errorf("writing a handle's counts: %w", err)
	}
	ctx, done, err := k.finish(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = k.patch(ctx, h, e)
	return err
}

// counting is the change of a handle's counts.
func counting(h *object, counts []blocks.HandleCount) (*edit, error) {
	if marked, err := h.marked(); err != nil {
		return nil, err
	} else if marked {
		return nil, changedf("%s is marked deleted", h)
	}
	if len(counts) == 0 {
		return nil, errors.New("a handle that counts nothing is to be deleted")
	}
	e := newEdit(h)
	v, exists := dig(h.tree, "spec", "block")
	stored, ok := v.(map[string]any)
	if exists && v != nil && !ok {
		return nil, fmt.Errorf("spec.block of %s is no map", h)
	}
	if stored == nil {
		e.set(map[string]any{}, "spec", "block")
	}
	kept := map[string]bool{}
	for _, c := range counts {
		if c.Count < 1 || !c.CIDR.IsValid() {
			return nil, fmt.Errorf("%d is no count of %s", c.Count, c.CIDR)
		}
		key, found := keyOf(stored, c.CIDR.String())
		if !found {
			key = c.CIDR.Masked().String()
		}
		kept[key] = true
		e.set(number(c.Count), "spec", "block", key)
	}
	var drop []string
	for key := range stored {
		if !kept[key] {
			drop = append(drop, key)
		}
	}
	slices.Sort(drop)
	for _, key := range drop {
		e.remove("spec", "block", key)
	}
	return e, e.err
}
