package checks_test

import (
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// BenchmarkChecks measures all checks over a loaded State, the making of that
// State, and each check's share.
func BenchmarkChecks(b *testing.B) {
	snap := statedsl.Large(1000, 30)
	b.Run("state", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			state.New(snap, state.Options{})
		}
	})
	st := state.New(snap, state.Options{})
	if got := audit.Run(st, checks.All); len(got.Findings) > 0 {
		b.Fatalf("the state is not healthy: %s %s", got.Findings[0].Check, got.Findings[0].Message)
	}
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			audit.Run(st, checks.All)
		}
	})
	for _, c := range checks.All {
		one := []*audit.Check{c}
		b.Run(c.ID, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				audit.Run(st, one)
			}
		})
	}
}
