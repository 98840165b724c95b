//go:build unix

package planner

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/scale/states"
	"github.com/calico-audit/calico-audit/repair"
)

// most is the maximum factor between planning for 5,000 and for 500 nodes. Ten times the objects,
// in maps that no longer fit the processor's cache, take up to thirty times as long; quadratic code
// takes a hundred times.
const most = 50

// BenchmarkGrowth plans all kinds of repair, with every consent, for clusters that are damaged
// uniformly in one way, with and without a bound on the steps. It takes the least processor time of three runs, and fails if that grows
// faster than the cluster.
func BenchmarkGrowth(b *testing.B) {
	for _, layout := range states.Shapes {
		for bound, req := range map[string]func(nodes int) int{"": func(int) int { return 0 }, ", bounded": func(nodes int) int { return 3 * nodes }} {
			times := map[int]time.Duration{}
			for _, nodes := range []int{500, 5000} {
				b.Run(fmt.Sprintf("%s%s/%d", layout.Name, bound, nodes), func(b *testing.B) {
					st := state.New(layout.Make(nodes, 30), state.Options{})
					request := asking(func(*repair.RequestKind) bool { return true })
					request.CordonFull, request.WithoutHostEvidence, request.LastBlocks, request.MaxSteps = true, true, true, req(nodes)
					for _, h := range st.NodeStates {
						if h.Node == nil {
							request.Terminated = append(request.Terminated, h.Name)
						}
					}
					best, steps := time.Duration(0), 0
					for b.Loop() {
						for range 3 {
							began := cpu(b)
							steps = len(Build(st, request).Steps)
							if took := cpu(b) - began; best == 0 || took < best {
								best = took
							}
						}
					}
					b.ReportMetric(float64(best.Microseconds())/1000, "ms-plan")
					b.ReportMetric(float64(steps), "steps")
					times[nodes] = best
				})
			}
			if times[5000] > 20*time.Millisecond && times[5000] > most*times[500] {
				b.Errorf("%s%s: the plan for 5,000 nodes takes %s, for 500 %s", layout.Name, bound, times[5000], times[500])
			}
		}
	}
}

// cpu is the processor time of this process, including garbage collection.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
