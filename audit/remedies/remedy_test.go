package remedies_test

import (
	"encoding/json"
	"testing"

	"github.com/calico-audit/calico-audit/audit/remedies"
)

// TestNoRemedies: without remedies, programs read an empty list, not null.
func TestNoRemedies(t *testing.T) {
	if raw, err := json.Marshal(remedies.Prefer(nil)); err != nil || string(raw) != "[]" {
		t.Errorf("no remedies are written as %s (%v)", raw, err)
	}
}
