package datastore_test

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/datastore"
)

// TestStateBackAfterAnotherWrite: if a release fails because its block is in use again, the
// affinity gets its state back even if another client has written another field of it meanwhile. If
// the other client took over, deleted or marked the affinity, it is not written.
func TestStateBackAfterAnotherWrite(t *testing.T) {
	spec := func(o map[string]any) map[string]any { return o["spec"].(map[string]any) }
	for name, c := range map[string]struct {
		meanwhile func(s *small, at string)
		want      string // the state at the end; "" if the affinity is gone
	}{
		"nothing": {func(*small, string) {}, "confirmed"},
		"another field": {func(s *small, at string) {
			s.edit(at, func(o map[string]any) { o["metadata"].(map[string]any)["labels"] = map[string]any{"a": "b"} })
		}, "confirmed"},
		"its state":     {func(s *small, at string) { s.edit(at, func(o map[string]any) { spec(o)["state"] = "pending" }) }, "pending"},
		"it is marked":  {func(s *small, at string) { s.edit(at, func(o map[string]any) { spec(o)["deleted"] = "true" }) }, "pendingDeletion"},
		"it is deleted": {func(s *small, at string) { delete(s.objects, at) }, ""},
		"it is made again": {func(s *small, at string) {
			delete(s.objects, at)
			s.affinity("n1", empty, blocks.PendingDeletion)
		}, "pendingDeletion"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSmall(t, testcluster.CRDv1)
			at, block := s.path(blocks.Affinities, blocks.AffinityName("n1", empty)), s.path(blocks.Blocks, blocks.BlockName(empty))
			s.before = func(n int, _ string) {
				if n == 2 { // the affinity is pendingDeletion, and the block is written next
					s.edit(block, func(o map[string]any) { writtenByOther(o) })
					c.meanwhile(s, at)
				}
			}
			if err := calls["ReleaseBlock"](s, s.writer(s.group)); !errors.Is(err, repair.ErrChanged) {
				t.Errorf("got %v", err)
			}
			got := ""
			if o := s.get(at); o != nil {
				got = spec(o)["state"].(string)
			}
			if got != c.want {
				t.Errorf("the affinity is %q, want %q; wrote %v", got, c.want, s.writes)
			}
		})
	}
}

// TestReleasedByAnotherMeanwhile: if another client uses and then releases the block while a release
// gives its affinity the state back, no affinity is left, and the step is done.
func TestReleasedByAnotherMeanwhile(t *testing.T) {
	s := newSmall(t, testcluster.CRDv1)
	block := s.path(blocks.Blocks, blocks.BlockName(empty))
	s.before = func(n int, _ string) {
		switch n {
		case 2: // the mark of the block
			s.edit(block, func(o map[string]any) { writtenByOther(o) })
		case 3: // the state of the affinity
			delete(s.objects, block)
		}
	}
	must(t, calls["ReleaseBlock"](s, s.writer(s.group)))
	if a := s.get(s.path(blocks.Affinities, blocks.AffinityName("n1", empty))); a != nil {
		t.Errorf("the affinity is %v", a)
	}
}

// TestUnreadableBlockIsInBetween: if the block cannot be understood after a write of it failed, its
// affinity is left and named.
func TestUnreadableBlockIsInBetween(t *testing.T) {
	for field, value := range map[string]any{"affinity": 7, "deleted": "perhaps"} {
		s := newSmall(t, testcluster.CRDv1)
		s.before = func(n int, path string) {
			if n == 2 {
				s.edit(path, func(o map[string]any) { o["spec"].(map[string]any)[field] = value })
			}
		}
		var left *repair.LeftBehindError
		if err := calls["ReleaseBlock"](s, s.writer(s.group)); !errors.As(err, &left) || left.Name != blocks.AffinityName("n1", empty) {
			t.Errorf("%s: got %v", field, err)
		}
		if a := s.get(s.path(blocks.Affinities, blocks.AffinityName("n1", empty))); a["spec"].(map[string]any)["state"] != "pendingDeletion" {
			t.Errorf("%s: the affinity is %v", field, a)
		}
	}
}

// TestMarkedBlockGetsNoAffinity: if the host has claimed the block again meanwhile but the block is
// marked deleted, the affinity stays deleted and the step is done.
func TestMarkedBlockGetsNoAffinity(t *testing.T) {
	s := newSmall(t, testcluster.CRDv1)
	s.before = func(n int, _ string) {
		if n == 3 { // the deletion
			s.block(noBlock, "host:n3", nil)
			s.edit(s.path(blocks.Blocks, blocks.BlockName(noBlock)), s.mark)
		}
	}
	must(t, calls["DeleteAffinity"](s, s.writer(s.group)))
	if len(s.writes) != 3 || s.get(s.path(blocks.Affinities, blocks.AffinityName("n3", noBlock))) != nil {
		t.Errorf("it wrote %v", s.writes)
	}
}

// TestOutlivedAffinityIsNamed: if an affinity leaves pendingDeletion while another client releases its
// block, and it cannot be deleted then, the error names it.
func TestOutlivedAffinityIsNamed(t *testing.T) {
	for method, state := range map[string]string{http.MethodDelete: "is left marked deleted", http.MethodPatch: "is left \"confirmed\""} {
		s := newSmall(t, testcluster.CRDv1)
		s.before = func(n int, _ string) {
			if n == 1 {
				delete(s.objects, s.path(blocks.Blocks, blocks.BlockName(contested)))
			}
		}
		k := s.failing(func(r *http.Request) (*http.Response, error) {
			if r.Method == method && len(s.writes) > 0 {
				return refusal(http.StatusForbidden, r.URL.Path), nil
			}
			return nil, nil
		})
		var left *repair.LeftBehindError
		err := calls["PutAffinityState"](s, k)
		if !errors.As(err, &left) || errors.Is(err, repair.ErrChanged) || left.Name != blocks.AffinityName("n2", contested) || !strings.Contains(left.State, state) {
			t.Errorf("%s is refused: got %v", method, err)
		}
	}
}

// TestNothingToWrite: a step that changes nothing writes nothing.
func TestNothingToWrite(t *testing.T) {
	for name, call := range map[string]func(s *small, k *datastore.Writer) error{
		"the counts": func(s *small, k *datastore.Writer) error {
			return k.SetHandleCounts(t.Context(), s.ref(blocks.Handles, "a"), []blocks.HandleCount{{CIDR: inUse, Count: 3}})
		},
		"the state": func(s *small, k *datastore.Writer) error {
			return k.PutAffinityState(t.Context(), s.affinityRef("n1", inUse), blocks.Confirmed)
		},
		"strict affinity": func(s *small, k *datastore.Writer) error {
			ref := s.ref(blocks.IPAMConfigs, "default")
			return k.SetStrictAffinity(t.Context(), &ref, false)
		},
	} {
		s := newSmall(t, testcluster.CRDv1)
		if err := call(s, s.writer(s.group)); err != nil || len(s.writes) > 0 {
			t.Errorf("%s: got %v, wrote %v", name, err, s.writes)
		}
	}
}

// TestUncountableHandleIsLeft: a handle whose count is not a number is not written, and named after
// its address is released.
func TestUncountableHandleIsLeft(t *testing.T) {
	s := newSmall(t, testcluster.CRDv1)
	s.setCounts("gone", map[string]any{inUse.String(): "x"})
	was := s.objects[s.path(blocks.Handles, "gone")]
	var left *repair.LeftBehindError
	if err := calls["ReleaseIPs"](s, s.writer(s.group)); !errors.As(err, &left) || left.Name != "gone" || !strings.Contains(err.Error(), "it counts x in 10.64.0.0/26") {
		t.Errorf("got %v", err)
	}
	if now := s.objects[s.path(blocks.Handles, "gone")]; string(now) != string(was) {
		t.Errorf("the handle is %s", now)
	}
}

// TestClaimedSizes: a block is claimed only for a node, and only up to 4096 addresses.
func TestClaimedSizes(t *testing.T) {
	for _, c := range []struct {
		cidr, host string
		ok         bool
	}{{"10.70.0.0/20", "n3", true}, {"10.70.0.0/19", "n3", false}, {"fd00::/116", "n3", true}, {"fd00::/115", "n3", false}, {"10.70.0.0/26", "", false}} {
		s := newSmall(t, testcluster.CRDv1)
		err := s.writer(s.group).ClaimBlock(t.Context(), netip.MustParsePrefix(c.cidr), c.host)
		if (err == nil) != c.ok || len(s.writes) > 0 != c.ok {
			t.Errorf("%s for %q: %v, wrote %v", c.cidr, c.host, err, s.writes)
		}
	}
}

// TestCountIsRaisedAgain: after an undo that records an address, its handle counts what the block
// records, whether it was lowered before or not.
func TestCountIsRaisedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		handle func(s *small)
		want   any
	}{
		"it was not lowered":   {func(*small) {}, float64(1)},
		"it counts none there": {func(s *small) { s.setCounts("gone", map[string]any{"10.64.9.0/26": 1}) }, float64(1)},
		"it counts nothing":    {func(s *small) { s.setCounts("gone", nil) }, float64(1)},
		"it is gone":           {func(s *small) { delete(s.objects, s.path(blocks.Handles, "gone")) }, float64(1)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSmall(t, testcluster.CRDv1)
			at, stored := s.path(blocks.Blocks, blocks.BlockName(inUse)), s.objects[s.path(blocks.Handles, "gone")]
			was := s.objects[at]
			s.edit(at, func(o map[string]any) { o["spec"].(map[string]any)["allocations"].([]any)[leaked] = nil })
			c.handle(s)
			must(t, s.writer(s.group).RecordIP(context.Background(), s.blockRef(inUse), leaked, repair.Allocation{Block: was, Stored: stored}))
			counts := s.get(s.path(blocks.Handles, "gone"))["spec"].(map[string]any)["block"].(map[string]any)
			if got := counts[inUse.String()]; got != c.want {
				t.Errorf("it counts %v, want %v", got, c.want)
			}
		})
	}
}

func (s *small) setCounts(id string, counts map[string]any) {
	s.edit(s.path(blocks.Handles, id), func(o map[string]any) {
		if o["spec"].(map[string]any)["block"] = counts; counts == nil {
			delete(o["spec"].(map[string]any), "block")
		}
	})
}

// TestKeptBlockForbids: a block is not released if the block that its node should keep belongs to
// another node, or is marked, full or being released itself.
func TestKeptBlockForbids(t *testing.T) {
	second := netip.MustParsePrefix("10.64.1.0/26")
	spec := func(o map[string]any) map[string]any { return o["spec"].(map[string]any) }
	for name, c := range map[string]struct {
		kept netip.Prefix
		now  func(s *small)
		ok   bool
	}{
		"it is in use":       {inUse, func(*small) {}, true},
		"it is empty":        {second, func(*small) {}, true},
		"it has no affinity": {second, func(s *small) { delete(s.objects, s.path(blocks.Affinities, blocks.AffinityName("n1", second))) }, true},
		"it is another's": {inUse, func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(inUse)), func(o map[string]any) { spec(o)["affinity"] = "host:n2" })
		}, false},
		"it is marked": {inUse, func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(inUse)), func(o map[string]any) { spec(o)["deleted"] = true })
		}, false},
		"it is full": {inUse, func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(inUse)), func(o map[string]any) { spec(o)["unallocated"] = []any{} })
		}, false},
		"its queue is no list": {inUse, func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(inUse)), func(o map[string]any) { spec(o)["unallocated"] = "x" })
		}, false},
		"its CIDR is not readable": {inUse, func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(inUse)), func(o map[string]any) { spec(o)["cidr"] = "x" })
		}, false},
		"it is being released": {second, func(s *small) {
			s.edit(s.path(blocks.Affinities, blocks.AffinityName("n1", second)), func(o map[string]any) { spec(o)["state"] = "pendingDeletion" })
		}, false},
		"its affinity is marked": {second, func(s *small) {
			s.edit(s.path(blocks.Affinities, blocks.AffinityName("n1", second)), func(o map[string]any) { spec(o)["deleted"] = "true" })
		}, false},
		"a mark that is no boolean": {second, func(s *small) {
			s.edit(s.path(blocks.Affinities, blocks.AffinityName("n1", second)), func(o map[string]any) { spec(o)["deleted"] = "x" })
		}, false},
		"in use, being released": {inUse, func(s *small) {
			s.edit(s.path(blocks.Affinities, blocks.AffinityName("n1", inUse)), func(o map[string]any) { spec(o)["state"] = "pendingDeletion" })
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSmall(t, testcluster.CRDv1)
			s.block(second, "host:n1", nil)
			s.affinity("n1", second, blocks.Confirmed)
			c.now(s)
			kept, a := s.blockRef(c.kept), s.affinityRef("n1", empty)
			err := s.writer(s.group).ReleaseBlock(t.Context(), s.blockRef(empty), &a, &kept)
			if deleted := s.get(s.path(blocks.Blocks, blocks.BlockName(empty))) == nil; (err == nil) != c.ok || deleted != c.ok || len(s.writes) > 0 != c.ok {
				t.Errorf("got %v, wrote %v", err, s.writes)
			}
		})
	}
	s := newSmall(t, testcluster.CRDv1)
	kept, a := s.blockRef(inUse), s.affinityRef("n1", empty)
	kept.UID = "another"
	if err := s.writer(s.group).ReleaseBlock(t.Context(), s.blockRef(empty), &a, &kept); !errors.Is(err, repair.ErrChanged) || len(s.writes) > 0 {
		t.Errorf("it is made again: %v, wrote %v", err, s.writes)
	}
}

// TestClaimedRightBeforeTheDeletion: if the host creates the block right before its affinity is
// deleted, the affinity is not deleted and gets its state back.
func TestClaimedRightBeforeTheDeletion(t *testing.T) {
	s := newSmall(t, testcluster.CRDv1)
	a := s.affinityRef("n3", noBlock)
	s.before = func(n int, _ string) {
		if n == 1 {
			s.block(noBlock, "host:n3", nil)
		}
	}
	err := s.writer(s.group).DeleteAffinity(t.Context(), a)
	now := s.get(s.path(blocks.Affinities, a.Name))
	if !errors.Is(err, repair.ErrChanged) || now == nil || now["metadata"].(map[string]any)["uid"] != a.UID || now["spec"].(map[string]any)["state"] != "confirmed" {
		t.Errorf("got %v, wrote %v; the affinity is %v", err, s.writes, now)
	}
}

// TestClaimedBack: if the block that a node was to keep disappears together with the released one,
// the released one is claimed again for the node, unless another client has it by then.
func TestClaimedBack(t *testing.T) {
	second := netip.MustParsePrefix("10.64.1.0/26")
	affinity, block := blocks.AffinityName("n1", empty), blocks.BlockName(empty)
	for name, c := range map[string]struct {
		meanwhile  func(s *small) // right before the block is created again
		says       string
		owner      any // of the block at the end; nil if it is gone
		isAffinity string
	}{
		"nothing else happens": {func(*small) {}, "was claimed again for its node", "host:n1", "confirmed"},
		"its node claims it":   {func(s *small) { s.block(empty, "host:n1", nil) }, "was claimed again for its node", "host:n1", "confirmed"},
		"another node does":    {func(s *small) { s.block(empty, "host:n2", nil) }, "was claimed by another node meanwhile", "host:n2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSmall(t, testcluster.CRDv1)
			s.block(second, "host:n1", nil)
			s.affinity("n1", second, blocks.Confirmed)
			kept, a := s.blockRef(second), s.affinityRef("n1", empty)
			deleted := false
			s.before = func(_ int, path string) {
				switch created := path+"/" == s.path(blocks.Blocks, ""); {
				case created && deleted:
					c.meanwhile(s)
				case path == s.path(blocks.Blocks, block):
					deleted = true
					delete(s.objects, s.path(blocks.Blocks, blocks.BlockName(second)))
				}
			}
			err := s.writer(s.group).ReleaseBlock(t.Context(), s.blockRef(empty), &a, &kept)
			var left *repair.LeftBehindError
			if !errors.As(err, &left) || left.Name != kept.Name || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
			spec := func(r blocks.Resource, name, field string) any {
				if o := s.get(s.path(r, name)); o != nil {
					return o["spec"].(map[string]any)[field]
				}
				return nil
			}
			if owner := spec(blocks.Blocks, block, "affinity"); owner != c.owner {
				t.Errorf("the block is %v's, want %v; wrote %v", owner, c.owner, s.writes)
			}
			if is, _ := spec(blocks.Affinities, affinity, "state").(string); is != c.isAffinity {
				t.Errorf("the affinity is %q, want %q", is, c.isAffinity)
			}
		})
	}
	t.Run("its node claims it first", func(t *testing.T) {
		s := newSmall(t, testcluster.CRDv1)
		s.block(second, "host:n1", nil)
		kept, a := s.blockRef(second), s.affinityRef("n1", empty)
		s.before = func(n int, _ string) {
			if n == 3 { // the deletion of the marked block
				delete(s.objects, s.path(blocks.Blocks, blocks.BlockName(second)))
				s.edit(s.path(blocks.Affinities, affinity), func(o map[string]any) { o["spec"].(map[string]any)["state"] = "pending" })
			}
		}
		err := s.writer(s.group).ReleaseBlock(t.Context(), s.blockRef(empty), &a, &kept)
		if err == nil || !strings.Contains(err.Error(), "can claim it again") || s.get(s.path(blocks.Blocks, block)) != nil {
			t.Errorf("got %v, wrote %v", err, s.writes)
		}
	})
}

// TestConfirmedAfterTheDeletion: an affinity that its host confirmed right before the block was
// deleted does not stay, unless its host claims the block again.
func TestConfirmedAfterTheDeletion(t *testing.T) {
	for name, again := range map[string]bool{"and no more": false, "and claims it again": true} {
		s := newSmall(t, testcluster.CRDv1)
		a, at := s.affinityRef("n1", empty), s.path(blocks.Affinities, blocks.AffinityName("n1", empty))
		s.before = func(n int, _ string) {
			if n == 3 { // the deletion of the marked block
				s.edit(at, func(o map[string]any) { o["spec"].(map[string]any)["state"] = "confirmed" })
			}
			if n == 4 && again {
				s.block(empty, "host:n1", nil)
			}
		}
		err := s.writer(s.group).ReleaseBlock(t.Context(), s.blockRef(empty), &a, nil)
		if now := s.get(at); err != nil || (now != nil) != again || again && now["spec"].(map[string]any)["state"] != "confirmed" {
			t.Errorf("%s: got %v, wrote %v; the affinity is %v", name, err, s.writes, now)
		}
	}
}

// TestConfirmedAndUnread: an affinity that its host confirmed after the deletion is not written while
// the block cannot be read.
func TestConfirmedAndUnread(t *testing.T) {
	s, writes := newSmall(t, testcluster.CRDv1), 0
	a, at := s.affinityRef("n1", empty), s.path(blocks.Affinities, blocks.AffinityName("n1", empty))
	s.before = func(n int, _ string) {
		if n == 4 { // the mark of the affinity
			s.edit(at, func(o map[string]any) { o["spec"].(map[string]any)["state"] = "confirmed" })
			writes = n
		}
	}
	ref := s.blockRef(empty)
	k := s.failing(func(r *http.Request) (*http.Response, error) {
		if writes > 0 && r.Method == http.MethodGet && r.URL.Path == s.path(blocks.Blocks, ref.Name) {
			return refusal(http.StatusForbidden, r.URL.Path), nil
		}
		return nil, nil
	})
	err := k.ReleaseBlock(t.Context(), ref, &a, nil)
	if err == nil || errors.Is(err, repair.ErrChanged) || len(s.writes) != writes || s.get(at)["spec"].(map[string]any)["state"] != "confirmed" {
		t.Errorf("got %v, wrote %v", err, s.writes)
	}
}

// TestRecordedInClaimedBlock: an address is recorded in the block that its node has claimed since
// the plan, if its ordinal is still free there.
func TestRecordedInClaimedBlock(t *testing.T) {
	for name, c := range map[string]struct {
		used     map[int]string
		finally  func(s *small, path string)
		recorded bool
		says     string
	}{
		"free there":                     {nil, nil, true, ""},
		"recorded there already":         {map[int]string{3: restored}, nil, true, ""},
		"another pod's there":            {map[int]string{3: "other"}, nil, false, "is left claimed for n3, without the address"},
		"the block is deleted meanwhile": {nil, func(s *small, path string) { delete(s.objects, path) }, false, "was claimed and then deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSmall(t, testcluster.CRDv1)
			at := s.path(blocks.Blocks, blocks.BlockName(noBlock))
			s.block(noBlock, "host:n3", c.used)
			s.before = func(n int, _ string) {
				if n == 3 && c.finally != nil { // the affinity is confirmed, and the block read next
					s.reading = func(string) { c.finally(s, at) }
				}
			}
			ref := repair.ObjectRef{Resource: blocks.Blocks, Name: blocks.BlockName(noBlock)}
			err := s.writer(s.group).RecordIP(t.Context(), ref, 3, recordation(noBlock, "n3"))
			recorded := false
			if o := s.get(at); o != nil {
				spec := o["spec"].(map[string]any)
				if index, ok := spec["allocations"].([]any)[3].(float64); ok {
					recorded = spec["attributes"].([]any)[int(index)].(map[string]any)["handle_id"] == restored
				}
			}
			if recorded != c.recorded || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("recorded %v, %v; wrote %v", recorded, err, s.writes)
			}
			if h := s.get(s.path(blocks.Handles, restored)); recorded != (h != nil) && c.used == nil {
				t.Errorf("its handle is %v", h)
			}
		})
	}
}

// TestFinalizersAreNamed: a deleted object that finalizers keep is not called gone.
func TestFinalizersAreNamed(t *testing.T) {
	s := newSmall(t, testcluster.CRDv1)
	at := s.path(blocks.Affinities, blocks.AffinityName("n3", noBlock))
	k := s.answering(func(r *http.Request) *http.Response {
		if r.Method != http.MethodDelete || r.URL.Path != at {
			return nil
		}
		s.edit(at, func(o map[string]any) {
			o["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-02T12:00:00Z"
			o["metadata"].(map[string]any)["finalizers"] = []any{"example.com/keeps"}
		})
		return response(http.StatusOK, string(s.objects[at]))
	})
	err := k.DeleteAffinity(t.Context(), s.affinityRef("n3", noBlock))
	if err == nil || !strings.Contains(err.Error(), "example.com/keeps") {
		t.Errorf("got %v", err)
	}
}

// TestUnreadableHandleIsNotCreated: a handle that cannot be read may exist.
func TestUnreadableHandleIsNotCreated(t *testing.T) {
	s := newSmall(t, testcluster.CRDv1)
	delete(s.objects, s.path(blocks.Handles, "gone"))
	for _, unread := range []string{s.path(blocks.Handles, "gone"), s.path(blocks.Blocks, blocks.BlockName(inUse))} {
		k := s.answering(func(r *http.Request) *http.Response {
			if r.Method == http.MethodGet && r.URL.Path == unread {
				return refusal(http.StatusForbidden, r.URL.Path)
			}
			return nil
		})
		if err := k.CreateHandle(t.Context(), "gone", []blocks.HandleCount{{CIDR: inUse, Count: 1}}); err == nil || errors.Is(err, repair.ErrChanged) || len(s.writes) > 0 {
			t.Errorf("%s cannot be read: %v, wrote %v", unread, err, s.writes)
		}
	}
}
