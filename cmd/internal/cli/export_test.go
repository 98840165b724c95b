package cli

import (
	"testing"
	"time"
)

// AllowAgentsInterval lowers the minimum of --agents-interval for a test.
func AllowAgentsInterval(t *testing.T, d time.Duration) {
	t.Helper()
	before := minAgentsInterval
	minAgentsInterval = d
	t.Cleanup(func() { minAgentsInterval = before })
}
