package cli

import (
	"testing"
	"time"
)

// AllowAgentsInterval lets a test choose an --agents-interval as short as d.
func AllowAgentsInterval(t *testing.T, d time.Duration) {
	t.Helper()
	before := minAgentsInterval
	minAgentsInterval = d
	t.Cleanup(func() { minAgentsInterval = before })
}
