package datastore_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/datastore"
)

// second is an empty block of n1, which the node keeps when its other block is released.
var second = prefix("10.66.0.0/26")

// secondBlock gives a node a second empty block.
func (w *world) secondBlock(owner string) {
	w.Helper()
	w.claim(owner, second, blocks.Confirmed)
	w.emptyBlock(second.String(), owner)
}

func (w *world) emptyBlock(cidr, owner string) {
	w.Helper()
	free := make([]any, 64)
	for i := range free {
		free[i] = int64(i)
	}
	must(w.T, w.Create(w.Context(), w.group.Resource("ipamblocks"), map[string]any{
		"metadata": map[string]any{"name": blocks.BlockName(prefix(cidr))},
		"spec": map[string]any{
			"cidr": cidr, "affinity": "host:" + owner, "allocations": make([]any, 64), "unallocated": free, "attributes": []any{},
			"sequenceNumber": int64(1), "sequenceNumberForAllocation": map[string]any{}, "deleted": false, "strictAffinity": false,
		},
	}))
}

// ways are the ways to lose the kept block.
var ways = map[string]func(w *world){
	"released": func(w *world) {
		must(w.T, w.Delete(w.Context(), w.group.Resource("ipamblocks"), "", blocks.BlockName(second)))
		must(w.T, w.Delete(w.Context(), w.group.Resource("blockaffinities"), "", blocks.AffinityName("n1", second)))
	},
	"being released": func(w *world) {
		w.edit(blocks.Affinities, blocks.AffinityName("n1", second), func(s map[string]any) { s["state"] = "pendingDeletion" })
	},
	"marked deleted": func(w *world) {
		w.edit(blocks.Blocks, blocks.BlockName(second), func(s map[string]any) { s["deleted"] = true })
	},
	"another's": func(w *world) {
		w.edit(blocks.Blocks, blocks.BlockName(second), func(s map[string]any) { s["affinity"] = "host:n2" })
	},
	"filled up": func(w *world) {
		w.edit(blocks.Blocks, blocks.BlockName(second), func(s map[string]any) {
			used := make([]any, 64)
			for i := range used {
				used[i] = int64(0)
			}
			used[1] = nil // this address is in another block of the world
			s["allocations"], s["unallocated"] = used, []any{}
			s["attributes"] = []any{map[string]any{"handle_id": "full", "secondary": map[string]any{}}}
		})
	},
	"created again": func(w *world) {
		must(w.T, w.Delete(w.Context(), w.group.Resource("ipamblocks"), "", blocks.BlockName(second)))
		w.emptyBlock(second.String(), "n1")
	},
}

// TestKeptBlock loses the block that a node was to keep, before or during the release of
// another. That other block must stay or be restored, and the step must not count as
// done. Calico's own collector may release the kept block at the same moment.
func TestKeptBlock(t *testing.T) {
	const aff, block = "blockaffinities/", "ipamblocks/"
	inBothGroups(t, func(t *testing.T, w *world) {
		for way, lose := range ways {
			for _, s := range steps[:2] { // with and without its affinity
				for after, n := range map[string]int{"before the first write": 0, "after the first write": 1, "when the block is gone": 3} {
					if s.lacks != nil {
						if n == 1 {
							continue // the first write marks the block
						}
						n = min(n, 2)
					}
					t.Run(s.name+"/"+way+" "+after, func(t *testing.T) {
						w := w.in(t)
						w.restoreFor(s)
						w.secondBlock("n1")
						before, ref := w.contents(), w.ref(blocks.Blocks, blocks.BlockName(second))
						x, lost := &tap{}, false
						x.before = func(_ int, r *http.Request) {
							if !lost && len(x.writes) == n && r.Method == http.MethodGet && !strings.HasSuffix(r.URL.Path, blocks.AffinityName("n1", empty)) {
								lost = true
								lose(w)
							}
						}
						err := w.releaseKeeping(w.writer(x.wrap, nil), s, &ref)
						now := w.contents()
						var left *repair.LeftBehindError
						if n <= 1 && !errors.Is(err, repair.ErrChanged) || n > 1 && (!errors.As(err, &left) || left.Name != ref.Name || !strings.Contains(err.Error(), "claimed again for its node")) {
							t.Errorf("got %v after %v", err, x.writes)
						}
						if n == 0 && len(x.writes) > 0 {
							t.Errorf("it wrote %v", x.writes)
						}
						if id := block + blocks.BlockName(empty); now[id] != before[id] {
							t.Errorf("the block was\n%s\nand is\n%s", before[id], now[id])
						}
						if id := aff + blocks.AffinityName("n1", empty); s.lacks == nil && now[id] != before[id] || !strings.Contains(now[id], `"confirmed"`) && n > 1 {
							t.Errorf("the affinity was\n%s\nand is\n%s", before[id], now[id])
						}
						w.unharmed(after)
					})
				}
			}
		}
	})
}

// releaseKeeping releases the empty block while another is kept.
func (w *world) releaseKeeping(k *datastore.Writer, s step, kept *repair.ObjectRef) error {
	w.Helper()
	if s.lacks != nil {
		return k.ReleaseBlock(w.ctx(), w.ref(blocks.Blocks, blocks.BlockName(empty)), nil, kept)
	}
	a := w.ref(blocks.Affinities, blocks.AffinityName("n1", empty))
	return k.ReleaseBlock(w.ctx(), w.ref(blocks.Blocks, blocks.BlockName(empty)), &a, kept)
}

// TestKeptBlockAndAnother checks that a block which another node claims before it can be
// restored belongs to that node, and that a kept block in use may have an affinity in
// pendingDeletion.
func TestKeptBlockAndAnother(t *testing.T) {
	inBothGroups(t, func(t *testing.T, w *world) {
		w.restoreFor(steps[0])
		w.secondBlock("n1")
		ref := w.ref(blocks.Blocks, blocks.BlockName(second))
		x, lost := &tap{}, false
		x.before = func(_ int, r *http.Request) {
			if !lost && len(x.writes) == 3 && r.Method == http.MethodGet {
				lost = true
				ways["released"](w)
				w.claim("n2", empty, blocks.Confirmed)
				w.emptyBlock(empty.String(), "n2")
			}
		}
		err := w.releaseKeeping(w.writer(x.wrap, nil), steps[0], &ref)
		var left *repair.LeftBehindError
		if !errors.As(err, &left) || !strings.Contains(err.Error(), "claimed by another node") {
			t.Errorf("got %v", err)
		}
		if w.has(blocks.Affinities, blocks.AffinityName("n1", empty)) || w.spec(blocks.Blocks, blocks.BlockName(empty))["affinity"] != "host:n2" {
			t.Error("the block is not the other node's alone")
		}

		w.restoreFor(steps[0])
		w.edit(blocks.Affinities, blocks.AffinityName("n1", inUse), func(s map[string]any) { s["state"] = "pendingDeletion" })
		must(t, w.releaseKeeping(w.writer(nil, nil), steps[0], w.keptBlock()))
		w.unharmed("with a stuck affinity")
	})
}
