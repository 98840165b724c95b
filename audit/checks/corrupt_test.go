package checks_test

import (
	"testing"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// TestCorruptBlockStays: an empty block that contradicts itself may hold addresses that it does
// not record, so it is not releasable.
func TestCorruptBlockStays(t *testing.T) {
	for _, corrupt := range []bool{false, true} {
		snap, err := statedsl.Parse("pool pods 10.0.0.0/24\nnode n1\nblock 10.0.0.0/26 n1\nuse 10.0.0.1 shop/a n1\nblock 10.0.0.64/26 n1\n")
		if err != nil {
			t.Fatal(err)
		}
		b := &snap.Blocks[1]
		if corrupt {
			b.Unallocated = b.Unallocated[1:]
		}
		r := state.New(snap, state.Options{}).BlockOf(b.CIDR).Releasability
		if r.OK == corrupt || corrupt && r.Code != state.RetainCorrupt {
			t.Errorf("corrupt: %t; releasable: %t, %s", corrupt, r.OK, r.Reason)
		}
	}
}
