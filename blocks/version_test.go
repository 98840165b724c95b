package blocks_test

import (
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
)

func TestCalicoAtLeast(t *testing.T) {
	for version, want := range map[string]bool{"v3.32.0": true, "v3.33.0-0.dev": true, "v4.0.0": true, "3.32": true, "v3.31.7": false, "": false, "master": false} {
		if got := blocks.CalicoAtLeast(version, 3, 32); got != want {
			t.Errorf("%q: %t", version, got)
		}
	}
}
