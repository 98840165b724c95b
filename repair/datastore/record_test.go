package datastore_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair"
)

// TestHandleCountsOnce checks that the handle counts a newly recorded address once,
// whether the handle counted it before, counted too few, or did not exist.
func TestHandleCountsOnce(t *testing.T) {
	for name, before := range map[string]int{"no handle": 0, "a handle that counts it": 1, "a handle that counts two": 2} {
		t.Run(name, func(t *testing.T) {
			s := newSmall(t, testcluster.CRDv1)
			if before > 0 {
				s.handle(restored, inUse, before)
			}
			must(t, s.writer(s.group).RecordIP(t.Context(), s.blockRef(inUse), restoredAt, recordation(netip.Prefix{}, "")))
			counts := s.get(s.path(blocks.Handles, restored))["spec"].(map[string]any)["block"].(map[string]any)
			if got := counts[inUse.String()]; got != float64(max(1, before)) {
				t.Errorf("it counts %v", got)
			}
		})
	}
}

// TestReplaced checks that an address which is recorded for another pod gets the handle of the
// pod that uses it in one write, and that the old handle no longer counts it.
func TestReplaced(t *testing.T) {
	s := newSmall(t, testcluster.CRDv1)
	err := s.writer(s.group).RecordIP(t.Context(), s.blockRef(inUse), leaked, replacement("gone", leaked+1))
	if !errors.Is(err, repair.ErrChanged) || s.get(s.path(blocks.Handles, restored)) != nil {
		t.Errorf("assigned again since: %v", err)
	}
	must(t, s.writer(s.group).RecordIP(t.Context(), s.blockRef(inUse), leaked, replacement("gone", leaked)))
	spec := s.get(s.path(blocks.Blocks, blocks.BlockName(inUse)))["spec"].(map[string]any)
	list := spec["attributes"].([]any)
	index := int(spec["allocations"].([]any)[leaked].(float64))
	if got := list[index].(map[string]any)["handle_id"]; got != restored || len(list) != 2 {
		t.Errorf("the address is recorded under %v; attributes: %v", got, list)
	}
	if s.get(s.path(blocks.Handles, "gone")) != nil {
		t.Error("the old handle exists")
	}
	if counts := s.get(s.path(blocks.Handles, restored))["spec"].(map[string]any)["block"].(map[string]any); counts[inUse.String()] != float64(1) {
		t.Errorf("the new handle counts %v", counts)
	}
}

// TestReplacedAlone: of two addresses that share their attributes, only the given one is replaced.
func TestReplacedAlone(t *testing.T) {
	s := newSmall(t, testcluster.CRDv1)
	at := s.path(blocks.Blocks, blocks.BlockName(inUse))
	s.edit(at, func(o map[string]any) {
		list := o["spec"].(map[string]any)["allocations"].([]any)
		list[1] = list[leaked]
	})
	must(t, s.writer(s.group).RecordIP(t.Context(), s.blockRef(inUse), leaked, replacement("gone", leaked)))
	spec := s.get(at)["spec"].(map[string]any)
	of := func(ordinal int) any {
		index := int(spec["allocations"].([]any)[ordinal].(float64))
		return spec["attributes"].([]any)[index].(map[string]any)["handle_id"]
	}
	if of(leaked) != restored || of(1) != "gone" {
		t.Errorf("recorded under %v, and the other address under %v", of(leaked), of(1))
	}
}

// TestCreatedForNothing checks that a handle whose address is released while it is created does not stay.
func TestCreatedForNothing(t *testing.T) {
	s := newSmall(t, testcluster.CRDv1)
	s.before = func(_ int, path string) {
		if path+"/" == s.path(blocks.Handles, "") {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(contested)), func(o map[string]any) {
				o["spec"].(map[string]any)["allocations"].([]any)[1] = nil
			})
		}
	}
	err := s.writer(s.group).CreateHandle(t.Context(), "c", []blocks.HandleCount{{CIDR: contested, Count: 1}})
	if !errors.Is(err, repair.ErrChanged) || s.get(s.path(blocks.Handles, "c")) != nil {
		t.Errorf("got %v, and the handle is %v", err, s.get(s.path(blocks.Handles, "c")))
	}
}

// TestFinishedBesideAnother checks that a deletion is finished although another client creates the
// affinity again.
func TestFinishedBesideAnother(t *testing.T) {
	s := newSmall(t, testcluster.CRDv1)
	at := s.path(blocks.Affinities, blocks.AffinityName("n1", inUse))
	s.edit(at, func(o map[string]any) { o["spec"].(map[string]any)["deleted"] = "true" })
	ref := s.affinityRef("n1", inUse)
	s.before = func(_ int, path string) {
		if path+"/" == s.path(blocks.Affinities, "") {
			s.affinity("n1", inUse, blocks.Confirmed)
		}
	}
	must(t, s.writer(s.group).FinishDelete(t.Context(), ref))
	if s.get(at) == nil {
		t.Error("the affinity is gone")
	}
}

// TestBlockIsCreatedWithWhatIsInUse checks that a block which is claimed for an address
// records all addresses in use in the write that creates it, so that none of them is
// assigned.
func TestBlockIsCreatedWithWhatIsInUse(t *testing.T) {
	s := newSmall(t, testcluster.CRDv1)
	a := recordation(noBlock, "n3")
	a.Beside = []repair.Beside{{Ordinal: 0, Handle: "k8s-pod-network.x"}, {Ordinal: 1, Handle: "k8s-pod-network.y"}}
	must(t, s.writer(s.group).RecordIP(t.Context(), repair.ObjectRef{Resource: blocks.Blocks, Name: blocks.BlockName(noBlock)}, 3, a))
	spec := s.get(s.path(blocks.Blocks, blocks.BlockName(noBlock)))["spec"].(map[string]any)
	var used []int
	for ordinal, index := range spec["allocations"].([]any) {
		if index != nil {
			used = append(used, ordinal)
		}
	}
	free, size := spec["unallocated"].([]any), len(spec["allocations"].([]any))
	if !slices.Equal(used, []int{0, 1, 3}) || len(free) != size-3 || free[0] != float64(2) {
		t.Errorf("in use are %v, free %v", used, free)
	}
	for _, id := range []string{restored, "k8s-pod-network.x", "k8s-pod-network.y"} {
		counts := s.get(s.path(blocks.Handles, id))["spec"].(map[string]any)["block"].(map[string]any)
		if counts[noBlock.String()] != float64(1) {
			t.Errorf("%s counts %v", id, counts)
		}
	}
}

// TestNothingCountsWhatWasNotRecorded checks that the new handles are deleted again if another node
// creates the block first.
func TestNothingCountsWhatWasNotRecorded(t *testing.T) {
	s := newSmall(t, testcluster.CRDv1)
	a, counted := recordation(noBlock, "n3"), 0
	a.Beside = []repair.Beside{{Ordinal: 0, Handle: "k8s-pod-network.x"}}
	handles := []string{s.path(blocks.Handles, restored), s.path(blocks.Handles, "k8s-pod-network.x")}
	s.before = func(_ int, path string) {
		if path+"/" == s.path(blocks.Blocks, "") && s.get(s.path(blocks.Blocks, blocks.BlockName(noBlock))) == nil {
			for _, h := range handles {
				if s.get(h) != nil {
					counted++
				}
			}
			s.block(noBlock, "host:n2", nil)
		}
	}
	ref := repair.ObjectRef{Resource: blocks.Blocks, Name: blocks.BlockName(noBlock)}
	if err := s.writer(s.group).RecordIP(t.Context(), ref, 3, a); !errors.Is(err, repair.ErrChanged) {
		t.Errorf("got %v", err)
	}
	if counted != 2 {
		t.Errorf("%d handles counted before the block was written", counted)
	}
	for _, h := range handles {
		if s.get(h) != nil {
			t.Errorf("%s is there", h)
		}
	}
}

// TestCountsStayWhileUnknown checks that a handle keeps counting an address if it is unknown
// whether the block that records it was written, because the write may still arrive.
func TestCountsStayWhileUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		block netip.Prefix
		a     repair.Allocation
	}{
		"a block that is created": {noBlock, recordation(noBlock, "n3")},
		"a block that exists":     {inUse, recordation(netip.Prefix{}, "")},
	} {
		t.Run(name, func(t *testing.T) {
			s, written := newSmall(t, testcluster.CRDv1), ""
			s.before = func(_ int, path string) { written = path }
			s.lost = func(int) (bool, bool) { return strings.HasPrefix(written+"/", s.path(blocks.Blocks, "")), false }
			ref := repair.ObjectRef{Resource: blocks.Blocks, Name: blocks.BlockName(c.block)}
			if !c.a.Claim.IsValid() {
				ref = s.blockRef(c.block)
			}
			if err := s.writer(s.group).RecordIP(t.Context(), ref, restoredAt, c.a); err == nil {
				t.Error("no error, although no write of the block arrived")
			}
			if s.get(s.path(blocks.Handles, restored)) == nil {
				t.Error("the handle is gone")
			}
		})
	}
}

// TestHandleBeingDeletedIsLeft checks that the count of a handle that is being deleted is not
// lowered: the deletion waits for the handle's finalizers, and the step would wait, too.
func TestHandleBeingDeletedIsLeft(t *testing.T) {
	s := newSmall(t, testcluster.CRDv1)
	at := s.path(blocks.Handles, "gone")
	s.edit(at, func(o map[string]any) { o["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-02T12:00:00Z" })
	must(t, s.writer(s.group).RecordIP(t.Context(), s.blockRef(inUse), leaked, replacement("gone", leaked)))
	for _, w := range s.writes {
		if strings.HasSuffix(w.what, at) {
			t.Errorf("it wrote %s", w.what)
		}
	}
}
