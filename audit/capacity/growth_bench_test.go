//go:build unix

package capacity_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit/capacity"
)

// BenchmarkGrowth starts 100 more pods per node on 500 and on 5,000 nodes, in blocks of
// four addresses with a limit of 20 blocks a node. It measures processor time, the least of
// three rounds, and fails if the time grows much faster than the cluster. Ten times the
// objects may take up to thirty times as long, because the maps no longer fit into the
// processor's cache; quadratic growth takes a hundred times.
func BenchmarkGrowth(b *testing.B) {
	times := map[int]time.Duration{}
	for _, nodes := range []int{500, 5000} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			st := clusterOf("v3.31.0", "10.0.0.0/8", nodes, 30)
			st.IPAM.StrictAffinity = true // otherwise Calico rejects a limit
			for b.Loop() {
				for range 3 {
					began := cpu(b)
					o := ask(b, st, capacity.Scenario{Pods: 100 * nodes}).Outcome
					if took := cpu(b) - began; times[nodes] == 0 || took < times[nodes] {
						times[nodes] = took
					}
					if want := "raise maxBlocksPerHost from 20 to 33"; len(o.Changes) != 1 || o.Changes[0].Title != want {
						b.Errorf("the changes are %+v, and should be to %s", o.Changes, want)
					}
				}
			}
			b.ReportMetric(times[nodes].Seconds(), "s-answer")
		})
	}
	if times[5000] > 50*times[500] {
		b.Errorf("the answer for 5,000 nodes takes %s, for 500 %s", times[5000], times[500])
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
