package source

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// TestSecondReadingWaits: a second reading of etcd, which records no ages, does not begin while a
// claim that the first has seen may still be in flight.
func TestSecondReadingWaits(t *testing.T) {
	const moment = 50 * time.Millisecond // a claim takes milliseconds
	ctx, cancel := context.WithTimeout(t.Context(), moment)
	defer cancel()
	if _, err := new(Etcd).Reread(ctx, &blocks.Snapshot{}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after %s it reads: %v", moment, err)
	}
}
