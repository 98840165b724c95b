//go:build unix

package checks_test

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/scale/states"
)

// most is how many times longer an audit of 5,000 nodes may take than one of 500. Linear growth
// would be 10, but the smaller state fits in the processor's caches.
const most = 25

// BenchmarkAudit measures building a State, all checks on it, and the report with its diagnoses,
// for clusters with one kind of damage throughout. It takes the lowest processor time of several
// runs, and fails if that grows faster than the cluster.
func BenchmarkAudit(b *testing.B) {
	parts := []string{"state", "checks", "report"}
	for _, layout := range states.Shapes {
		times := map[int][]time.Duration{}
		for _, nodes := range []int{500, 1000, 2000, 5000} {
			b.Run(fmt.Sprintf("%s/%d", layout.Name, nodes), func(b *testing.B) {
				snap := layout.Make(nodes, 30)
				best := make([]time.Duration, len(parts))
				lap := func(part int, since time.Duration) time.Duration {
					if took := cpu(b) - since; best[part] == 0 || took < best[part] {
						best[part] = took
					}
					runtime.GC() // so that no part pays for the garbage of the one before
					return cpu(b)
				}
				found := 0
				for b.Loop() {
					for range 3 {
						at := cpu(b)
						st := state.New(snap, state.Options{})
						at = lap(0, at)
						r := audit.Run(st, checks.All)
						at = lap(1, at)
						audit.NewReport(st, r)
						lap(2, at)
						found = len(r.Findings)
					}
				}
				for i, part := range parts {
					b.ReportMetric(float64(best[i].Microseconds())/1000, "ms-"+part)
				}
				b.ReportMetric(float64(found), "findings")
				times[nodes] = best
			})
		}
		small, large := times[500], times[5000]
		for i := range small {
			if len(large) > 0 && large[i] > 20*time.Millisecond && large[i] > most*small[i] {
				b.Errorf("%s: %s of 5,000 nodes takes %s, of 500 %s", layout.Name, parts[i], large[i], small[i])
			}
		}
	}
}

// cpu returns the processor time of the process, including garbage collection.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkChecks measures the time of each check.
func BenchmarkChecks(b *testing.B) {
	for _, layout := range states.Shapes {
		st := state.New(layout.Make(5000, 30), state.Options{})
		for _, c := range checks.All {
			b.Run(layout.Name+"/"+c.ID, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					audit.Run(st, []*audit.Check{c})
				}
			})
		}
	}
}
