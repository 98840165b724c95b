package datastore_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/datastore"
)

// inUseSpec returns a change of the block in use.
func inUseSpec(change func(spec map[string]any)) func(*world) {
	return func(w *world) { w.edit(blocks.Blocks, blocks.BlockName(inUse), change) }
}

func emptySpec(change func(spec map[string]any)) func(*world) {
	return func(w *world) { w.edit(blocks.Blocks, blocks.BlockName(empty), change) }
}

func doStep(i int) func(*world, *datastore.Writer) error { return steps[i].do }

// TestGuards checks that no write is made if the object itself contradicts it. An empty
// want means ErrChanged.
func TestGuards(t *testing.T) {
	pinned := func(r blocks.Resource, name string, do func(w *world, k *datastore.Writer, ref repair.ObjectRef) error, then func(*world)) func(*world, *datastore.Writer) error {
		return func(w *world, k *datastore.Writer) error {
			ref := w.ref(r, name)
			then(w)
			w.seen = w.contents()
			return do(w, k, ref)
		}
	}
	orphanRef := func(w *world, k *datastore.Writer, ref repair.ObjectRef) error {
		return k.DeleteHandle(w.Context(), ref)
	}
	cases := []struct {
		name string
		prep func(*world)
		do   func(*world, *datastore.Writer) error
		want string
	}{
		{"a block that holds an address", emptySpec(func(s map[string]any) { s["allocations"].([]any)[63] = int64(0) }), doStep(0), ""},
		{"a block without allocations", func(w *world) {
			w.LoosenCRD(w.T, w.group.Resource("ipamblocks"))
			emptySpec(func(s map[string]any) { delete(s, "allocations") })(w)
		}, doStep(0), "spec.allocations of block 10-64-0-64-26 is not a list"},
		{"a block of LoadBalancers", func(w *world) {
			emptySpec(func(s map[string]any) { s["affinity"] = "virtual:load-balancer" })(w)
		}, doStep(0), "which is not a node"},
		{"a block that is marked deleted", emptySpec(func(s map[string]any) { s["deleted"] = true }), doStep(0), ""},
		{"a block of another owner than the affinity's", emptySpec(func(s map[string]any) { s["affinity"] = "host:n2" }), doStep(0), "is of n1"},
		{"a block whose affinity is said to be missing", nil, doStep(1), ""},
		{"a block of its owner's own pod", func(w *world) {
			w.edit(blocks.Blocks, blocks.BlockName(orphaned), func(s map[string]any) {
				s["attributes"].([]any)[0].(map[string]any)["secondary"].(map[string]any)["node"] = "off"
			})
		}, disown, ""},
		{"a block that a machine of its owner may take over", func(w *world) {
			w.LoosenCRD(w.T, w.group.Resource("ipamblocks"))
			w.edit(blocks.Blocks, blocks.BlockName(orphaned), func(s map[string]any) {
				s["attributes"].([]any)[0].(map[string]any)["alternateOwnerAttrs"] = map[string]any{"node": "off"}
			})
		}, disown, ""},
		{"a handle that is there", nil, func(w *world, k *datastore.Writer) error {
			return k.CreateHandle(w.Context(), seeding.Handle("default", "b"), []blocks.HandleCount{{CIDR: inUse, Count: 1}})
		}, ""},
		{"a handle of another count than its block's", func(w *world) {
			must(w.T, w.Delete(w.Context(), w.group.Resource("ipamhandles"), "", seeding.Handle("default", "b")))
		}, func(w *world, k *datastore.Writer) error {
			return k.CreateHandle(w.Context(), seeding.Handle("default", "b"), []blocks.HandleCount{{CIDR: inUse, Count: 2}})
		}, ""},
		{"an unrecorded address that was given to somebody", nil, func(w *world, k *datastore.Writer) error {
			return k.RecordIP(w.Context(), w.ref(blocks.Blocks, blocks.BlockName(inUse)), leaked, recordation(netip.Prefix{}, ""))
		}, ""},
		{"an unrecorded address of another node's block", nil, func(w *world, k *datastore.Writer) error {
			return k.RecordIP(w.Context(), repair.ObjectRef{Resource: blocks.Blocks, Name: blocks.BlockName(contested)}, restoredAt, recordation(contested, "n1"))
		}, ""},
		{"a block in use that became empty", func(w *world) {
			w.edit(blocks.Blocks, blocks.BlockName(orphaned), func(s map[string]any) { s["allocations"].([]any)[1] = nil })
		}, disown, ""},
		{"a block in use that belongs to no one", nil, func(w *world, k *datastore.Writer) error {
			return k.DisownBlock(w.Context(), w.ref(blocks.Blocks, blocks.BlockName(nobodys)), nil)
		}, ""},
		{"a block in use that contradicts itself", func(w *world) {
			w.edit(blocks.Blocks, blocks.BlockName(orphaned), func(s map[string]any) { s["allocations"].([]any)[3] = int64(9) })
		}, disown, "points to attributes 9"},
		{"an affinity to its own host's block", nil, func(w *world, k *datastore.Writer) error { return w.drop(k, "n1", inUse) }, ""},
		{"an affinity of LoadBalancers", func(w *world) {
			w.edit(blocks.Affinities, blocks.AffinityName("n3", noBlock), func(s map[string]any) { s["type"] = "virtual" })
		}, doStep(2), "which is not a node"},
		{"an affinity beside another", func(w *world) { w.claim("n3", lost, blocks.Pending) }, doStep(4), ""},
		{"the affinity of nobody's block", nil, func(w *world, k *datastore.Writer) error {
			return k.RestoreAffinity(w.Context(), w.ref(blocks.Blocks, blocks.BlockName(nobodys)))
		}, ""},
		{"an affinity that is there", nil, func(w *world, k *datastore.Writer) error {
			return k.RestoreAffinity(w.Context(), w.ref(blocks.Blocks, blocks.BlockName(inUse)))
		}, ""},
		{"an address that is free", nil, func(w *world, k *datastore.Writer) error { return w.free(k, inUse, 60, "gone") }, ""},
		{"an address out of the block", nil, func(w *world, k *datastore.Writer) error { return w.free(k, inUse, 64, "gone") }, "it has 64 ordinals"},
		{"an address of another handle", nil, func(w *world, k *datastore.Writer) error { return w.free(k, inUse, leaked, "a") }, ""},
		{"an address of another sequence number", nil, func(w *world, k *datastore.Writer) error {
			return releaseOne(k, w.Context(), w.ref(blocks.Blocks, blocks.BlockName(inUse)), leaked, seeding.Handle("default", "gone"), 1)
		}, ""},
		{"an address that cools down", func(w *world) {
			w.LoosenCRD(w.T, w.group.Resource("ipamblocks"))
			inUseSpec(func(s map[string]any) {
				for _, a := range s["attributes"].([]any) {
					a.(map[string]any)["releasedAt"] = "2026-11-21T10:00:00Z"
				}
			})(w)
		}, doStep(5), ""},
		{"an address that is also free", inUseSpec(func(s map[string]any) { s["unallocated"] = append(s["unallocated"].([]any), int64(leaked)) }), doStep(5), "contradicts itself"},
		{"an address without attributes", inUseSpec(func(s map[string]any) { s["allocations"].([]any)[leaked] = int64(9) }), doStep(5), "points to attributes 9, and there are 3"},
		{"an address of a block that cannot count on", inUseSpec(func(s map[string]any) { s["sequenceNumber"] = int64(9223372036854775807) }), doStep(5), "cannot be raised"},
		{"a handle that a block refers to", nil, func(w *world, k *datastore.Writer) error { return w.forget(k, seeding.Handle("default", "a")) }, ""},
		{"a count of nothing", nil, func(w *world, k *datastore.Writer) error {
			return k.SetHandleCounts(w.Context(), w.ref(blocks.Handles, orphan), nil)
		}, "has to be deleted"},
		{"a deletion that nobody has begun", nil, func(w *world, k *datastore.Writer) error {
			return k.FinishDelete(w.Context(), w.ref(blocks.Blocks, blocks.BlockName(empty)))
		}, ""},
		{"a deletion of a block that is in use", inUseSpec(func(s map[string]any) { s["deleted"] = true }), func(w *world, k *datastore.Writer) error {
			return k.FinishDelete(w.Context(), w.ref(blocks.Blocks, blocks.BlockName(inUse)))
		}, ""},
		{"a configuration that exists", nil, doStep(13), ""},
		{"a configuration that Calico rejects", func(w *world) {
			w.edit(blocks.IPAMConfigs, "default", func(s map[string]any) { s["autoAllocateBlocks"], s["strictAffinity"] = false, true })
		}, func(w *world, k *datastore.Writer) error {
			ref := w.ref(blocks.IPAMConfigs, "default")
			return k.SetStrictAffinity(w.Context(), &ref, false)
		}, "rejected by Calico"},
		{"a limit that Calico rejects", func(w *world) {
			w.edit(blocks.IPAMConfigs, "default", func(s map[string]any) { s["maxBlocksPerHost"], s["strictAffinity"] = int64(4), true })
		}, func(w *world, k *datastore.Writer) error {
			ref := w.ref(blocks.IPAMConfigs, "default")
			return k.SetStrictAffinity(w.Context(), &ref, false)
		}, "rejected by Calico"},
		{"an object that was written since", nil, pinned(blocks.Handles, orphan, orphanRef, func(w *world) {
			w.edit(blocks.Handles, orphan, func(s map[string]any) { s["block"] = map[string]any{} })
		}), ""},
		{"an object that is gone", nil, pinned(blocks.Handles, orphan, orphanRef, func(w *world) {
			must(w.T, w.Delete(w.Context(), w.group.Resource("ipamhandles"), "", orphan))
		}), ""},
		{"an object that was created again", nil, pinned(blocks.Handles, orphan, orphanRef, func(w *world) {
			must(w.T, w.Delete(w.Context(), w.group.Resource("ipamhandles"), "", orphan))
			must(w.T, w.Create(w.Context(), w.group.Resource("ipamhandles"), map[string]any{
				"metadata": map[string]any{"name": orphan}, "spec": map[string]any{"handleID": orphan, "block": map[string]any{}, "deleted": false},
			}))
		}), ""},
		{"an object without a version", nil, func(w *world, k *datastore.Writer) error {
			return k.DeleteHandle(w.Context(), repair.ObjectRef{Resource: blocks.Handles, Name: orphan, UID: w.ref(blocks.Handles, orphan).UID})
		}, "is not pinned"},
	}
	inBothGroups(t, func(t *testing.T, w *world) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				w := w.in(t)
				w.restore()
				if c.prep != nil {
					c.prep(w)
				}
				w.seen = w.contents()
				x := &tap{}
				err := c.do(w, w.writer(x.wrap, nil))
				switch {
				case err == nil:
					t.Error("it was done")
				case c.want == "" && !errors.Is(err, repair.ErrChanged):
					t.Errorf("got %v, not that something changed", err)
				case c.want != "" && (errors.Is(err, repair.ErrChanged) || !strings.Contains(err.Error(), c.want)):
					t.Errorf("got %v, want %q", err, c.want)
				}
				if len(x.writes) > 0 {
					t.Errorf("it wrote %v", x.writes)
				}
				same(t, "what was not to be written", w.seen, w.contents())
			})
		}
	})
}

// TestJournalFirst checks that a write which the journal cannot record is not sent, and
// that the journal holds the object exactly as it was stored.
func TestJournalFirst(t *testing.T) {
	inBothGroups(t, func(t *testing.T, w *world) {
		w.fromTheFuture()
		for _, s := range steps {
			w.restoreFor(s)
			before := w.contents()
			x := &tap{}
			err := s.do(w, w.writer(x.wrap, full{}))
			if err == nil || !strings.Contains(err.Error(), "the disk is full") || errors.Is(err, repair.ErrChanged) {
				t.Errorf("%s: %v", s.name, err)
			}
			if len(x.writes) > 0 {
				t.Errorf("%s: wrote %v", s.name, x.writes)
			}
			same(t, s.name, before, w.contents())

			taken := &journal{}
			y := &tap{before: func(_ int, r *http.Request) {
				if r.Method == http.MethodGet || r.Method == http.MethodPost {
					return
				}
				c := taken.changes[len(taken.changes)-1]
				o, err := w.Get(t.Context(), w.group.Resource(string(c.Resource)), "", c.Name)
				must(t, err)
				var kept unstructured.Unstructured
				must(t, json.Unmarshal(c.Before, &kept.Object))
				if kept.GetUID() != o.GetUID() || kept.GetResourceVersion() != o.GetResourceVersion() {
					t.Errorf("%s: the journal has version %s of %s, and %s is stored", s.name, kept.GetResourceVersion(), c.Name, o.GetResourceVersion())
				}
				if n, ok := o.Object["spec"].(map[string]any)["sequenceNumber"]; ok && !strings.Contains(string(c.Before), jsonOf(t, n)) {
					t.Errorf("%s: the journal has lost the digits of %v", s.name, n)
				}
			}}
			must(t, s.do(w, w.writer(y.wrap, taken)))
		}
	})
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	must(t, err)
	return string(text)
}

// full is a journal that records nothing.
type full struct{}

// Record fails.
func (full) Record(repair.Change) error { return errors.New("the disk is full") }

// TestFinalizers checks that the error about an object with finalizers says that it still
// exists.
func TestFinalizers(t *testing.T) {
	w := newWorld(t, testcluster.CRDv1)
	r := w.group.Resource("ipamhandles")
	must(t, w.Edit(t.Context(), r, "", orphan, func(o map[string]any) {
		o["metadata"].(map[string]any)["finalizers"] = []any{"example.com/keep"}
	}))
	err := w.forget(w.writer(nil, nil), orphan)
	if err == nil || errors.Is(err, repair.ErrChanged) || !strings.Contains(err.Error(), "example.com/keep") {
		t.Errorf("got %v", err)
	}
	// A second attempt finds that it is being deleted.
	if err := w.forget(w.writer(nil, nil), orphan); !errors.Is(err, repair.ErrChanged) {
		t.Errorf("got %v", err)
	}
	must(t, w.Edit(t.Context(), r, "", orphan, func(o map[string]any) { delete(o["metadata"].(map[string]any), "finalizers") }))
	if w.has(blocks.Handles, orphan) {
		t.Error("the handle is still there")
	}
}

// TestReservations checks that a reservation is created only once, and that only
// reservations with calico-audit's annotation are deleted.
func TestReservations(t *testing.T) {
	inBothGroups(t, func(t *testing.T, w *world) {
		k := w.writer(nil, nil)
		must(t, k.Reserve(w.Context(), empty, "for a test"))
		if err := k.Reserve(w.Context(), empty, "for another"); !errors.Is(err, repair.ErrChanged) {
			t.Errorf("reserved twice: %v", err)
		}
		s := read(w.bench)
		if len(s.Reservations) != 1 || s.Reservations[0].Ours != "for a test" || len(s.Reservations[0].CIDRs) != 1 || s.Reservations[0].CIDRs[0] != empty {
			t.Fatalf("the reservations are %+v", s.Reservations)
		}
		name := s.Reservations[0].Name
		must(t, w.Edit(w.Context(), w.group.Resource("ipreservations"), "", name, func(o map[string]any) {
			delete(o["metadata"].(map[string]any)["annotations"].(map[string]any), blocks.OursAnnotation)
		}))
		if err := k.Unreserve(w.Context(), w.ref(blocks.Reservations, name)); err == nil || !strings.Contains(err.Error(), "was not created by calico-audit") {
			t.Errorf("somebody else's reservation was taken back: %v", err)
		}
		must(t, w.Edit(w.Context(), w.group.Resource("ipreservations"), "", name, func(o map[string]any) {
			o["metadata"].(map[string]any)["annotations"] = map[string]any{blocks.OursAnnotation: "for a test"}
		}))
		must(t, k.Unreserve(w.Context(), w.ref(blocks.Reservations, name)))
		if left := read(w.bench).Reservations; len(left) > 0 {
			t.Errorf("left are %+v", left)
		}
	})
}
