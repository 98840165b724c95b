package source

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// TestSecondReadingWaits: etcd records no ages, so its second reading begins only when a claim that
// the first one saw is no longer in flight.
func TestSecondReadingWaits(t *testing.T) {
	const moment = 50 * time.Millisecond // a claim takes milliseconds
	ctx, cancel := context.WithTimeout(t.Context(), moment)
	defer cancel()
	if _, err := new(Etcd).Reread(ctx, &blocks.Snapshot{}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after %s it reads: %v", moment, err)
	}
}
