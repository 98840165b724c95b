package datastore_test

import (
	"errors"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/datastore"
)

// TestNothingIsPutBackUnderAnybody checks that an undo or repair writes nothing if
// another client has taken over the object. Without the other client it does write (see
// calls).
func TestNothingIsPutBackUnderAnybody(t *testing.T) {
	spec := func(change func(map[string]any)) func(map[string]any) {
		return func(o map[string]any) { change(o["spec"].(map[string]any)) }
	}
	inUsePath := func(s *small) string { return s.path(blocks.Blocks, blocks.BlockName(inUse)) }
	for name, c := range map[string]struct {
		call   string
		change func(s *small)
	}{
		"an address that was assigned again":      {"RecordIP still assigned", func(*small) {}},
		"a state for an affinity without a block": {"PutAffinityState", func(s *small) { delete(s.objects, s.path(blocks.Blocks, blocks.BlockName(contested))) }},
		"a state for an affinity to another's block": {"PutAffinityState", func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(contested)), spec(func(b map[string]any) { b["affinity"] = "host:n1" }))
		}},
		"an affinity for a block that is claimed": {"RestoreAffinity", func(s *small) { s.affinity("n1", lost, blocks.Pending) }},
		"an affinity for a block of nobody": {"RestoreAffinity", func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(lost)), spec(func(b map[string]any) { b["affinity"] = nil }))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSmall(t, testcluster.CRDv1)
			c.change(s)
			call := calls[c.call]
			if call == nil {
				call = func(s *small, k *datastore.Writer) error {
					return k.RecordIP(t.Context(), s.blockRef(inUse), leaked, repair.Allocation{Block: s.objects[inUsePath(s)], Stored: s.objects[s.path(blocks.Handles, "gone")]})
				}
			}
			if err := call(s, s.writer(s.group)); !errors.Is(err, repair.ErrChanged) || len(s.writes) > 0 {
				t.Errorf("got %v, and it wrote %v", err, s.writes)
			}
		})
	}
}
