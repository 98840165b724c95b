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

// TestPutAffinityState checks that an affinity leaves pendingDeletion only if its host
// owns the block. The block must not have another owner, be missing or be marked deleted.
// If the block disappears at that moment, the affinity must not outlive it.
func TestPutAffinityState(t *testing.T) {
	name := blocks.AffinityName("n1", empty)
	block := blocks.BlockName(empty)
	pendingDeletion := func(w *world) {
		w.edit(blocks.Affinities, name, func(spec map[string]any) { spec["state"] = string(blocks.PendingDeletion) })
	}
	dropBlock := func(w *world) { must(w.T, w.Delete(w.Context(), w.group.Resource("ipamblocks"), "", block)) }
	cases := []struct {
		name   string
		prep   func(w *world)
		during func(w *world) // called after the state is written, before the block is read
		state  blocks.AffinityState
		want   string // part of the error; "changed" for ErrChanged; "" for no error
		after  string // the affinity's state; "gone" if it must not exist
	}{
		{name: "its block is its host's", state: blocks.Confirmed, after: "confirmed"},
		{name: "it had no state", state: "", after: ""},
		{name: "its block is gone", prep: dropBlock, state: blocks.Confirmed, want: "changed", after: "pendingDeletion"},
		{name: "its block goes at the very moment", during: dropBlock, state: blocks.Confirmed, want: "changed", after: "gone"},
		{
			name: "its block is another node's", state: blocks.Confirmed, want: "changed", after: "pendingDeletion",
			prep: func(w *world) {
				w.edit(blocks.Blocks, block, func(spec map[string]any) { spec["affinity"] = "host:n2" })
			},
		},
		{
			name: "it is marked deleted", state: blocks.Confirmed, want: "changed", after: "pendingDeletion",
			prep: func(w *world) {
				w.edit(blocks.Affinities, name, func(spec map[string]any) { spec["deleted"] = asDeleted(w) })
			},
		},
		{name: "no state of Calico's", state: "comfirmed", want: "is not a state of an affinity", after: "pendingDeletion"},
	}
	inBothGroups(t, func(t *testing.T, w *world) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				w := w.in(t)
				w.restore()
				pendingDeletion(w)
				if c.prep != nil {
					c.prep(w)
				}
				x := &tap{}
				x.before = func(_ int, r *http.Request) {
					if c.during != nil && len(x.writes) == 1 && r.Method == http.MethodGet && w.has(blocks.Blocks, block) {
						c.during(w)
					}
				}
				err := w.writer(x.wrap, nil).PutAffinityState(t.Context(), w.ref(blocks.Affinities, name), c.state)
				switch {
				case c.want == "" && err != nil, c.want == "changed" && !errors.Is(err, repair.ErrChanged):
					t.Errorf("got %v", err)
				case c.want != "" && c.want != "changed" && (err == nil || !strings.Contains(err.Error(), c.want)):
					t.Errorf("got %v, want %q", err, c.want)
				}
				after := "gone"
				if w.has(blocks.Affinities, name) {
					after, _ = w.spec(blocks.Affinities, name)["state"].(string)
				}
				if after != c.after {
					t.Errorf("the affinity is %q, not %q, after %v", after, c.after, x.writes)
				}
			})
		}
	})
}

// asDeleted is the value that marks an affinity deleted, a string in the older API group.
func asDeleted(w *world) any {
	if strings.HasPrefix(string(w.group), "crd.") {
		return "true"
	}
	return true
}

// TestTakenBackOnAFullDisk checks that a step reverts its writes even if the journal can
// no longer record. An affinity that never had a block also gets its state back, because
// it cannot outlive a block.
func TestTakenBackOnAFullDisk(t *testing.T) {
	inBothGroups(t, func(t *testing.T, w *world) {
		w.seen = w.contents()
		for what, do := range map[string]func(*datastore.Writer) error{
			"what could not be released":                func(k *datastore.Writer) error { return w.release(k, empty, "n1") },
			"an affinity that could not be deleted":     func(k *datastore.Writer) error { return w.drop(k, "n3", noBlock) },
			"a contested one that could not be, either": func(k *datastore.Writer) error { return w.drop(k, "n3", contested) },
		} {
			disk := &filling{capacity: 1}
			err := do(w.writer(nil, disk))
			if err == nil || !strings.Contains(err.Error(), "the disk is full") {
				t.Errorf("%s: got %v", what, err)
			}
			if !disk.back {
				t.Errorf("%s: nothing was taken back", what)
			}
			same(t, what, w.seen, w.contents())
		}
	})
}

// filling is a journal on a disk with space for a few records. Like the real journal, it
// accepts records of reverts.
type filling struct {
	capacity int
	back     bool
}

// Record fails when the disk is full, except for reverts.
func (f *filling) Record(c repair.Change) error {
	if c.Back {
		f.back = true
		return nil
	}
	if f.capacity--; f.capacity < 0 {
		return full{}.Record(c)
	}
	return nil
}
