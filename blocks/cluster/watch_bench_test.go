package cluster

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// BenchmarkWatchSnapshot watches a cluster of 1,000 nodes and 30,000 pods. Each iteration
// is a second of a busy cluster: 50 pods, their handles and blocks change, and a snapshot
// is made.
//
//   - snapshot/sort: its time, relative to sorting everything again;
//   - held/list: the memory that the watch holds, relative to that of the same objects in
//     client-go's informers.
func BenchmarkWatchSnapshot(b *testing.B) {
	c := testcluster.Start(b, testcluster.Options{WatchCache: true})
	fill(b, c)
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

// BenchmarkWatchStarts starts watches of a cluster of 1,000 nodes and 30,000 pods. It
// measures, until the first snapshot, the time, the CPU time here and in the API server,
// and the peak heap.
func BenchmarkWatchStarts(b *testing.B) {
	c := testcluster.Start(b, testcluster.Options{WatchCache: true})
	fill(b, c)
	apiserver := c.PIDs()[1]
	start := func() {
		w, err := NewWatch(c.Config, WatchOptions{})
		check(b, err)
		ctx, cancel := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		for w.Snapshot() == nil {
			time.Sleep(5 * time.Millisecond)
		}
		cancel()
		check(b, <-ended)
	}
	start() // warms the server's caches
	var took time.Duration
	var heap uint64
	here, there := processorTime(b, os.Getpid()), processorTime(b, apiserver)
	for b.Loop() {
		t, h := measure(start)
		took, heap = took+t, heap+h
	}
	here, there = processorTime(b, os.Getpid())-here, processorTime(b, apiserver)-there
	n := float64(b.N)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(took.Seconds()/n, "s/start")
	b.ReportMetric(float64(heap)/n/(1<<20), "MiB-peak/start")
	b.ReportMetric(here/n, "cpu-s/start")
	b.ReportMetric(there/n, "server-cpu-s/start")
}

// processorTime returns the CPU time of a process so far, in seconds.
func processorTime(b *testing.B, pid int) float64 {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	check(b, err)
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may contain spaces
	fields := strings.Fields(rest)
	var user, system float64
	_, err = fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	check(b, err)
	return (user + system) / 100 // USER_HZ
}

// change changes 50 pods, their handles and blocks.
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
			default: // rarely changes
			}
		}
	}
	w.dirty = true
}

// listedHeap returns the memory of all objects listed by client-go, in bytes.
func listedHeap(b *testing.B, c *testcluster.Cluster) int64 {
	b.Helper()
	before := liveHeap()
	listed := plainList(b, b.Context(), c.Config)
	after := liveHeap()
	runtime.KeepAlive(listed)
	return after - before
}

// liveHeap returns the heap after a garbage collection, in bytes.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	return int64(heapBytes())
}

// objectsIn returns a snapshot's objects of a kind.
func objectsIn(k *decode.Kind, s blocks.Snapshot) *decode.Objects {
	o := decode.NewObjects(k)
	o.Take(&s)
	return o
}
