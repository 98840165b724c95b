package cluster

import (
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/files"
	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// BenchmarkRecord reads a cluster of 1,000 nodes and 30,000 pods with and without a
// Recorder, and saves the recorded objects:
//
//   - time/read, heap/read: a reading with a Recorder, relative to one without;
//   - save/read, anonymized/read: saving, plain and anonymized, relative to a reading without a
//     Recorder.
func BenchmarkRecord(b *testing.B) {
	c := testcluster.Start(b, testcluster.Options{WatchCache: true})
	fill(b, c)
	ctx := b.Context()
	r, err := files.NewRecorder()
	check(b, err)
	defer func() { check(b, r.Close()) }()
	plain, err := NewKubernetes(c.Config, KubernetesOptions{})
	check(b, err)
	recording, err := NewKubernetes(c.Config, KubernetesOptions{Record: r})
	check(b, err)
	var s *blocks.Snapshot
	written := 0
	save := func(o files.SaveOptions) func() {
		return func() {
			written = 0
			_, err := r.Save(s, o, func(object []byte) error {
				written += len(object)
				return nil
			})
			check(b, err)
		}
	}
	_, err = plain.Read(ctx) // warms the server's caches for both
	check(b, err)
	var times, heaps [4]float64
	for b.Loop() {
		for i, fn := range []func(){
			func() { s, err = plain.Read(ctx); check(b, err) },
			func() { s, err = recording.Read(ctx); check(b, err) },
			save(files.SaveOptions{}), save(files.SaveOptions{Anonymize: true}),
		} {
			took, heap := measure(fn)
			times[i] += took.Seconds()
			heaps[i] += float64(heap)
		}
	}
	n := float64(b.N)
	b.ReportMetric(0, "ns/op") // would be the sum of all
	b.ReportMetric(times[1]/n, "s/recording")
	b.ReportMetric(times[1]/times[0], "time/read")
	b.ReportMetric(heaps[1]/heaps[0], "heap/read")
	b.ReportMetric(times[2]/times[0], "save/read")
	b.ReportMetric(times[3]/times[0], "anonymized/read")
	b.ReportMetric(heaps[2]/n/(1<<20), "MiB-peak/save")
	b.ReportMetric(heaps[3]/n/(1<<20), "MiB-peak/anonymized")
	b.ReportMetric(float64(written)/(1<<20), "MiB-written")
}
