package datastore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// maxCounts is how often a count is retried after a conflict. Calico retries 100 times
// (libcalico-go ipam/ipam.go, datastoreRetries).
const maxCounts = 20

// recount changes a handle's count for a block by one. The change is relative to the
// current count and therefore correct in any version. On a conflict, the handle is read
// again.
func (w *Writer) recount(ctx context.Context, id string, change func(ctx context.Context, name string, h *object) error) error {
	name := w.handleName(id)
	var err error
	for range maxCounts {
		var h *object
		if h, err = w.get(ctx, blocks.Handles, name); err == nil {
			err = change(ctx, name, h)
		}
		if !isChanged(err) {
			break
		}
	}
	return err
}

// standsFor reports whether a handle object belongs to a handle ID.
func standsFor(h *object, id string) bool {
	return strings.EqualFold(sanitizeHandle(h.text("spec", "handleID")), sanitizeHandle(id))
}

// countOf returns a handle's count for a block and its key. Without a count, it returns
// the CIDR and 0.
func countOf(h *object, cidr string) (key string, n int, err error) {
	counts := mapAt(h.tree, "spec", "block")
	key, ok := keyOf(counts, cidr)
	if !ok {
		return cidr, 0, nil
	}
	if n, ok = integer(counts[key]); !ok {
		err = fmt.Errorf("it counts %v in %s", counts[key], key)
	}
	return key, n, err
}

// lowerHandle lowers a handle's count for a block by one, and deletes a handle without
// counts (libcalico-go ipam/ipam.go, decrementHandle). A missing handle, or one that does
// not count the block, is left unchanged.
func (w *Writer) lowerHandle(ctx context.Context, id, cidr string) error {
	err := w.recount(ctx, id, func(ctx context.Context, _ string, h *object) error {
		if h == nil {
			return nil
		}
		if marked, err := h.marked(); err != nil || marked || h.deleting() || !standsFor(h, id) {
			return err
		}
		key, n, err := countOf(h, cidr)
		e, counts := newEdit(h), mapAt(h.tree, "spec", "block")
		_, counted := counts[key]
		switch {
		case err != nil || !counted:
			return err
		case n > 1:
			e.set(number(n-1), "spec", "block", key)
		default:
			e.remove("spec", "block", key)
		}
		if n <= 1 && len(counts) == 1 {
			return w.end(ctx, e)
		}
		_, err = w.patch(ctx, h, e)
		return err
	})
	if err == nil || isLeft(err) {
		return err
	}
	return leftBehind(blocks.Handles, w.handleName(id), "is left counting one address too many in "+cidr, err)
}

// raiseHandle raises a handle's count for a block to want (libcalico-go's incrementHandle in
// ipam/ipam.go raises it by one). It creates a missing handle, if possible as it was stored except
// for the counts. If the count already reaches want, the handle is unchanged. raised reports
// whether the handle was changed.
func (w *Writer) raiseHandle(ctx context.Context, id, cidr string, want int, stored json.RawMessage) (raised bool, err error) {
	err = w.recount(ctx, id, func(ctx context.Context, name string, h *object) error {
		if h == nil {
			tree, err := w.oneHandle(name, id, cidr, want, stored)
			if err == nil {
				_, err = w.create(ctx, blocks.Handles, tree)
			}
			raised = err == nil
			return err
		}
		if marked, err := h.marked(); err != nil {
			return err
		} else if marked || h.deleting() {
			return fmt.Errorf("%s is being deleted", h)
		}
		if !standsFor(h, id) {
			return fmt.Errorf("%s stands for the handle %q", h, h.text("spec", "handleID"))
		}
		key, n, err := countOf(h, cidr)
		if err == nil && n < 0 {
			err = fmt.Errorf("it counts %d in %s", n, key)
		}
		if err != nil || n >= want {
			return err
		}
		e := newEdit(h)
		if mapAt(h.tree, "spec", "block") == nil {
			e.set(map[string]any{}, "spec", "block")
		}
		e.set(number(want), "spec", "block", key)
		_, err = w.patch(ctx, h, e)
		raised = err == nil
		return err
	})
	if err != nil {
		return false, fmt.Errorf("the count of handle %s was not raised: %w", w.handleName(id), detached(err))
	}
	return raised, nil
}

// oneHandle returns a handle with a count for one block.
func (w *Writer) oneHandle(name, id, cidr string, n int, stored json.RawMessage) (map[string]any, error) {
	if stored != nil {
		if o, tree, err := w.asStored(blocks.Handles, stored); err == nil && o.name() == name && textOf(tree, "spec", "handleID") == id {
			mapAt(tree, "spec")["block"] = map[string]any{cidr: number(n)}
			return tree, nil
		}
	}
	return w.newObject(blocks.Handles, name, libapiv3.IPAMHandleSpec{HandleID: id, Block: map[string]int{cidr: n}}, nil, nil)
}

// CreateHandle creates a handle with counts, as Calico's client would have created it
// (ipam/ipam.go, incrementHandle). Each count must equal the number of addresses that the
// block records under the handle.
func (w *Writer) CreateHandle(ctx context.Context, id string, counts []blocks.HandleCount) error {
	name := w.handleName(id)
	return w.stepOn(ctx, "creating "+describe(blocks.Handles, name), nil, nil, func(ctx context.Context, _ *object) error {
		if len(counts) == 0 || name == "" {
			return errors.New("a handle that counts nothing is not created")
		}
		if h, err := w.get(ctx, blocks.Handles, name); err != nil || h != nil {
			return cmp.Or(err, changedf("%s exists by now", describe(blocks.Handles, name)))
		}
		for _, c := range counts {
			b, err := w.get(ctx, blocks.Blocks, blocks.BlockName(c.CIDR))
			switch {
			case err != nil:
				return err
			case b == nil || countIn(b, id) != c.Count:
				return changedf("block %s does not record %d under it", c.CIDR, c.Count)
			}
			if err := notMarked(b); err != nil {
				return err
			}
		}
		return nil
	}, func(ctx context.Context, _ *object) error {
		spec := libapiv3.IPAMHandleSpec{HandleID: id, Block: map[string]int{}}
		for _, c := range counts {
			spec.Block[c.CIDR.String()] = c.Count
		}
		tree, err := w.newObject(blocks.Handles, name, spec, nil, nil)
		if err != nil {
			return err
		}
		h, err := w.create(ctx, blocks.Handles, tree)
		if err != nil {
			return err
		}
		return w.stillUsed(ctx, h, id, counts)
	})
}

// stillUsed deletes a handle that was just created if its addresses were released
// meanwhile. The client that released them found no handle to delete.
func (w *Writer) stillUsed(ctx context.Context, h *object, id string, counts []blocks.HandleCount) error {
	for _, c := range counts {
		b, err := w.get(ctx, blocks.Blocks, blocks.BlockName(c.CIDR))
		if err != nil {
			return leftBehind(blocks.Handles, h.name(), "was created, and it is not known whether blocks still refer to it", err)
		}
		if b != nil && countIn(b, id) > 0 {
			return nil
		}
	}
	if err := w.end(ctx, newEdit(h)); err != nil && !isChanged(err) {
		return leftBehind(blocks.Handles, h.name(), "is left, and no block refers to it", err)
	}
	return changedf("its addresses were released meanwhile")
}

// keyOf returns the key of a map that equals a CIDR in any notation.
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

// DeleteHandle deletes a handle. The blocks that it counts must not hold allocations
// under it.
func (w *Writer) DeleteHandle(ctx context.Context, handle repair.ObjectRef) error {
	return w.step(ctx, "deleting", handle, w.unused, func(ctx context.Context, h *object) error {
		return w.end(ctx, newEdit(h))
	})
}

// unused returns [repair.ErrChanged] if a block that the handle counts refers to it.
func (w *Writer) unused(ctx context.Context, h *object) error {
	id := sanitizeHandle(h.text("spec", "handleID"))
	for key := range mapAt(h.tree, "spec", "block") {
		cidr, err := netip.ParsePrefix(key)
		if err != nil {
			continue
		}
		b, err := w.get(ctx, blocks.Blocks, blocks.BlockName(cidr))
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		if used := refersTo(b, id); len(used) > 0 {
			return changedf("ordinal %d of %s is allocated under it", used[0], b)
		}
	}
	return nil
}

// refersTo returns the ordinals of a block that are allocated under a handle.
func refersTo(b *object, id string) (out []int) {
	attributes := listAt(b.tree, "spec", "attributes")
	for ordinal, index := range listAt(b.tree, "spec", "allocations") {
		if i, ok := integer(index); ok && i >= 0 && i < len(attributes) {
			if v, named := dig(attributes[i], "handle_id"); named && v != nil && strings.EqualFold(sanitizeHandle(textOf(attributes[i], "handle_id")), sanitizeHandle(id)) {
				out = append(out, ordinal)
			}
		}
	}
	return out
}

func countIn(b *object, id string) int { return len(refersTo(b, id)) }

// SetHandleCounts replaces a handle's counts. Each count must be at least one. It fails
// if a node assigns an address under the handle at the same time, because the node writes
// the handle first.
func (w *Writer) SetHandleCounts(ctx context.Context, handle repair.ObjectRef, counts []blocks.HandleCount) error {
	var e *edit
	return w.step(ctx, "writing the counts of", handle, func(_ context.Context, h *object) (err error) {
		e, err = counting(h, counts)
		return err
	}, func(ctx context.Context, h *object) error {
		_, err := w.patch(ctx, h, e)
		return err
	})
}

// counting returns the edit of a handle's counts.
func counting(h *object, counts []blocks.HandleCount) (*edit, error) {
	if err := notMarked(h); err != nil {
		return nil, err
	}
	if len(counts) == 0 {
		return nil, errors.New("a handle without counts has to be deleted")
	}
	e := newEdit(h)
	v, exists := dig(h.tree, "spec", "block")
	stored, ok := v.(map[string]any)
	if exists && v != nil && !ok {
		return nil, fmt.Errorf("spec.block of %s is not a map", h)
	}
	if stored == nil {
		e.set(map[string]any{}, "spec", "block")
	}
	kept := map[string]bool{}
	for _, c := range counts {
		if c.Count < 1 || !c.CIDR.IsValid() {
			return nil, fmt.Errorf("%d is not a count of %s", c.Count, c.CIDR)
		}
		key, found := keyOf(stored, c.CIDR.String())
		if !found {
			key = c.CIDR.Masked().String()
		}
		kept[key] = true
		e.set(number(c.Count), "spec", "block", key)
	}
	for _, key := range slices.Sorted(maps.Keys(stored)) {
		if !kept[key] {
			e.remove("spec", "block", key)
		}
	}
	return e, nil
}

// handleName returns the name of the object for a handle.
func (w *Writer) handleName(id string) string {
	if id = sanitizeHandle(id); w.traits.Metadata {
		return strings.ToLower(id)
	}
	return id
}
