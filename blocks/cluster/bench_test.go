package cluster

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// BenchmarkReadKubernetes reads a cluster of 1,000 nodes and 30,000 pods, and compares that
// with two simple ways to LIST the same objects from the same server:
//
//   - time/list, heap/list: client-go's clients list the kinds one after the other, each in
//     one request (typed and in protobuf for Kubernetes' kinds, dynamic for Calico's), and
//     keep all objects, as a simple program would;
//   - time/bytes: the same pages over the same connection with the same concurrency, but
//     objects are only skipped, which is the minimum for following the pages.
func BenchmarkReadKubernetes(b *testing.B) {
	c := testcluster.Start(b, testcluster.Options{WatchCache: true}) // like a real cluster
	fill(b, c)
	ctx := b.Context()
	k, err := NewKubernetes(c.Config, KubernetesOptions{})
	check(b, err)
	var kept any // keeps the result alive while memory is measured
	read := func() { kept, err = k.Read(ctx); check(b, err) }
	list := func() { kept = plainList(b, ctx, c.Config) }
	drop := func() { dropPages(b, ctx, k) }
	read() // warms the server's caches for all three

	var times, heaps [3]float64
	for b.Loop() {
		for i, fn := range []func(){read, list, drop} {
			took, heap := measure(fn)
			times[i] += took.Seconds()
			heaps[i] += float64(heap)
			kept = nil
		}
	}
	runtime.KeepAlive(kept)
	n := float64(b.N)
	b.ReportMetric(0, "ns/op") // would be the sum of all three
	b.ReportMetric(times[0]/n, "s/read")
	b.ReportMetric(heaps[0]/n/(1<<20), "MiB-peak/read")
	b.ReportMetric(times[0]/times[1], "time/list")
	b.ReportMetric(heaps[0]/heaps[1], "heap/list")
	b.ReportMetric(times[0]/times[2], "time/bytes")
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// fill creates 1,000 nodes with 30 pods each.
func fill(b *testing.B, c *testcluster.Cluster) {
	b.Helper()
	ctx := b.Context()
	s, err := seeding.New(c)
	check(b, err)
	check(b, s.Init(ctx))
	check(b, s.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}))
	check(b, s.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: "10.0.0.0/8", BlockSize: 26}))
	check(b, s.Bulk(ctx, seeding.Bulk{Nodes: 1000, PodsPerNode: 30}))
}

// measure returns the run time of fn and the peak growth of the heap, including garbage.
func measure(fn func()) (time.Duration, uint64) {
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // as in the program, whatever GOGC says
	runtime.GC()
	before := heapBytes()
	done, most := make(chan struct{}), make(chan uint64)
	go func() {
		peak := before
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			peak = max(peak, heapBytes())
			select {
			case <-done:
				most <- max(peak, heapBytes()) - before
				return
			case <-tick.C:
			}
		}
	}()
	start := time.Now()
	fn()
	took := time.Since(start)
	close(done)
	return took, <-most
}

func heapBytes() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// plainList lists every kind with client-go.
func plainList(b *testing.B, ctx context.Context, cfg *rest.Config) []any {
	b.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	calico, err := dynamic.NewForConfig(cfg)
	check(b, err)
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	core, err := kubernetes.NewForConfig(cfg)
	check(b, err)
	all := metav1.ListOptions{}
	var kept []any
	for _, kind := range decode.Kinds {
		var list any
		switch kind.Resource {
		case blocks.Pods:
			list, err = core.CoreV1().Pods("").List(ctx, all)
		case blocks.Nodes:
			list, err = core.CoreV1().Nodes().List(ctx, all)
		case blocks.Namespaces:
			list, err = core.CoreV1().Namespaces().List(ctx, all)
		default:
			group, version, _ := strings.Cut(decode.GroupCRD, "/")
			gvr := schema.GroupVersionResource{Group: group, Version: version, Resource: string(kind.Resource)}
			list, err = calico.Resource(gvr).List(ctx, all)
		}
		check(b, err)
		kept = append(kept, list)
	}
	return kept
}

// dropPages fetches the same pages as a reading, and drops the objects.
func dropPages(b *testing.B, ctx context.Context, k *Kubernetes) {
	b.Helper()
	fetch := make([]*decode.Kind, len(decode.Kinds))
	for i, original := range decode.Kinds {
		fetch[i] = &decode.Kind{}
		*fetch[i] = *original
		fetch[i].JSON = func(_ *decode.Decoder, r *parse.Reader) { r.Skip() }
	}
	_, err := k.list(ctx, fetch)
	check(b, err)
}
