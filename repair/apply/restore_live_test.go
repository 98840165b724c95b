package apply_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// stored returns an object as a journal stores it.
func (l *lab) stored(r testcluster.Resource, name string) json.RawMessage {
	l.t.Helper()
	return l.patched(repair.VerbPatch, r, name).Before
}

func (l *lab) ref(r testcluster.Resource, name string) repair.ObjectRef {
	l.t.Helper()
	o, err := l.c.Get(l.t.Context(), r, "", name)
	l.must(err)
	return repair.ObjectRef{Resource: blocks.Resource(r.Resource), Name: name, UID: string(o.GetUID()), ResourceVersion: o.GetResourceVersion()}
}

// TestRecordIP: a released address is recorded again as before, except for sequence numbers, and
// Calico's own client releases it like any other. An address that is in use, or whose block was
// replaced, is not recorded.
func TestRecordIP(t *testing.T) {
	const block = "10-7-0-16-28"
	l := newLab(t)
	ctx := t.Context()
	addr := l.pod("n2", "leaver")
	ordinal := int(addr.As4()[3]) - 16
	handle := seeding.Handle("default", "leaver")
	before, counted := l.stored(blockCRD, block), l.stored(handleCRD, handle)
	spec, handleSpec := l.spec(blockCRD, block), l.spec(handleCRD, handle)
	l.must(l.s.DeletePod(ctx, "default", "leaver", true))
	w := l.writer(l.journal(journal.Header{}))

	if err := w.RecordIP(ctx, l.ref(blockCRD, block), 0, repair.Allocation{Block: before, Stored: counted}); !errors.Is(err, repair.ErrChanged) {
		t.Errorf("an ordinal in use: %v", err)
	}
	if err := w.RecordIP(ctx, l.ref(blockCRD, block), ordinal+1, repair.Allocation{Block: before, Stored: counted}); err == nil {
		t.Error("an ordinal that was free was recorded")
	}
	stale := l.ref(blockCRD, block)
	stale.ResourceVersion = "1"
	if err := w.RecordIP(ctx, stale, ordinal, repair.Allocation{Block: before, Stored: counted}); !errors.Is(err, repair.ErrChanged) {
		t.Errorf("a version that was not judged: %v", err)
	}
	if l.spec(handleCRD, handle) != nil {
		t.Fatal("what was refused has left a handle")
	}

	for name, h := range map[string]json.RawMessage{"with its handle as stored": counted, "with a handle of its own making": nil} {
		l.must(w.RecordIP(ctx, l.ref(blockCRD, block), ordinal, repair.Allocation{Block: before, Stored: h}))
		after := l.spec(blockCRD, block)
		if diff := cmp.Diff(withoutSequences(spec), withoutSequences(after)); diff != "" {
			t.Errorf("%s, the block (-before +recorded again):\n%s", name, diff)
		}
		if diff := cmp.Diff(handleSpec, l.spec(handleCRD, handle)); diff != "" {
			t.Errorf("%s, the handle (-before +created again):\n%s", name, diff)
		}
		l.must(l.s.ReleaseHandle(ctx, handle))
		if l.spec(handleCRD, handle) != nil {
			t.Errorf("%s: Calico's release leaves the handle", name)
		}
		free := l.spec(blockCRD, block)["unallocated"].([]any)
		if !slices.Contains(free, any(int64(ordinal))) {
			t.Errorf("%s: Calico's release leaves the address taken", name)
		}
	}
	if err := w.RecordIP(ctx, l.ref(blockCRD, "10-7-0-0-28"), ordinal, repair.Allocation{Block: before, Stored: counted}); !errors.Is(err, repair.ErrChanged) {
		t.Errorf("another block: %v", err)
	}
}

// withoutSequences returns a block without the fields that differ between allocations, and with its
// free ordinals sorted.
func withoutSequences(spec map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range spec {
		switch k {
		case "sequenceNumber", "sequenceNumberForAllocation", "unallocated":
		default:
			out[k] = v
		}
	}
	var free []int64
	for _, o := range spec["unallocated"].([]any) {
		free = append(free, o.(int64))
	}
	slices.Sort(free)
	out["unallocated"] = free
	return out
}

// TestRecreateHandle: a handle is restored as it was, unless it exists again.
func TestRecreateHandle(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	w := l.writer(l.journal(journal.Header{}))
	name := seeding.Handle("default", "web-n1")
	stored, spec := l.stored(handleCRD, name), l.spec(handleCRD, name)
	if err := w.RecreateHandle(ctx, stored); !errors.Is(err, repair.ErrChanged) {
		t.Errorf("one that exists: %v", err)
	}
	l.must(l.c.Delete(ctx, handleCRD, "", name))
	l.must(w.RecreateHandle(ctx, stored))
	if diff := cmp.Diff(spec, l.spec(handleCRD, name)); diff != "" {
		t.Errorf("the handle (-before +created again):\n%s", diff)
	}
	if err := w.RecreateHandle(ctx, json.RawMessage(`{"kind":"IPAMHandle"}`)); err == nil {
		t.Error("what is no object is created")
	}
}
