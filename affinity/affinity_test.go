package affinity_test

import (
	"testing"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// TestAffinityStatus: the block's own record of its owner decides an affinity's status.
func TestAffinityStatus(t *testing.T) {
	snap, err := statedsl.Parse(`
block 10.0.0.0/26 a
affinity 10.0.0.0/26 a
affinity 10.0.0.0/26 b
affinity 10.0.0.0/26 a state=pendingDeletion
affinity 10.0.0.64/26 a
`)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []affinity.Status{affinity.Confirmed, affinity.NotOwner, affinity.Unconfirmed} {
		if got := affinity.Classify(&snap.Affinities[i], &snap.Blocks[0]); got != want {
			t.Errorf("affinity %d: %d, want %d", i, got, want)
		}
	}
	if got := affinity.Classify(&snap.Affinities[3], nil); got != affinity.NoBlock {
		t.Errorf("without a block: %d", got)
	}
}
