package datastore_test

import (
	"net/netip"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// TestHandleCountsOnce: an address that no block records is counted by its handle once,
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
