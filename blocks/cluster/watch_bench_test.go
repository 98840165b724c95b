package cluster

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// BenchmarkWatchSnapshot watches a cluster of 1,000 nodes and 30,000 pods. Each turn
// is a second of a busy cluster: 50 pods, their handles and blocks have changed, and
// a snapshot is made.
//
//   - snapshot/sort: its time, compared with sorting everything anew;
//   - held/list: the memory that the watch holds, compared with that of the same
//     objects as client-go's informers would hold them.
func BenchmarkWatchSnapshot(b *testing.B) {
	c := testcluster.Start(b, testcluster.Options{WatchCache: true})
	fill(b, c, 1000, 30)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()

	informers := listedHeap(b, c)
	before := liveHeap()
	w, err := NewWatch(c.Config, WatchOptions{})
	check(b, err)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for w.Snapshot() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	held := liveHeap() - before

	var busy, anew time.Duration
	for turn := 0; b.Loop(); turn++ {
		s := w.Snapshot()
		shuffled := *s
		shuffled.Workloads, shuffled.Handles = slices.Clone(s.Workloads), slices.Clone(s.Handles)
		shuffled.Blocks, shuffled.Affinities = slices.Clone(s.Blocks), slices.Clone(s.Affinities)
		slices.Reverse(shuffled.Workloads)
		slices.Reverse(shuffled.Handles)
		slices.Reverse(shuffled.Blocks)
		slices.Reverse(shuffled.Affinities)
		start := time.Now()
		shuffled.Sort()
		anew += time.Since(start)

		change(w, s, turn)
		start = time.Now()
		if now := w.Snapshot(); now == s || len(now.Workloads) != len(s.Workloads) {
			b.Fatalf("%d pods, had %d", len(now.Workloads), len(s.Workloads))
		}
		busy += time.Since(start)
	}
	cancel()
	check(b, <-ended)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(busy.Seconds()*1000/float64(b.N), "ms/snapshot")
	b.ReportMetric(busy.Seconds()/anew.Seconds(), "snapshot/sort")
	b.ReportMetric(float64(held)/(1<<20), "MiB-held")
	b.ReportMetric(float64(held)/float64(informers), "held/list")
}

// change makes 50 pods, their handles and blocks others than they were.
func change(w *Watch, s *blocks.Snapshot, turn int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.active.kinds {
		for i := range 50 {
			at := (turn*50 + i) * 7
			switch k.kind.Resource {
			case blocks.Pods:
				p := s.Workloads[at%len(s.Workloads)]
				k.store.Put(p.Key(), objectsIn(k.kind, blocks.Snapshot{Workloads: []*blocks.Workload{p}}))
			case blocks.Handles:
				h := s.Handles[at%len(s.Handles)]
				k.store.Put(h.Key(), objectsIn(k.kind, blocks.Snapshot{Handles: []*blocks.Handle{h}}))
			case blocks.Blocks:
				o := s.Blocks[at%len(s.Blocks)]
				k.store.Put(o.Key(), objectsIn(k.kind, blocks.Snapshot{Blocks: []blocks.Block{o}}))
			default: // hardly ever change
			}
		}
	}
	w.dirty = true
}

// listedHeap is what all objects take that client-go has listed.
func listedHeap(b *testing.B, c *testcluster.Cluster) int64 {
	b.Helper()
	before := liveHeap()
	listed := plainList(b, b.Context(), c.Config)
	after := liveHeap()
	runtime.KeepAlive(listed)
	return after - before
}

// liveHeap is what is left after a garbage collection.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	return int64(heapBytes())
}

// objectsIn returns the objects that a snapshot has of a kind.
func objectsIn(k *decode.Kind, s blocks.Snapshot) *decode.Objects {
	o := decode.NewObjects(k)
	o.Take(&s)
	return o
}
