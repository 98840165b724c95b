package metrics

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// BenchmarkExporter measures the cost of one audit for clusters of increasing size: the
// State, the checks, the confirmation of findings about absent objects, the report and the
// rendered metrics. It also measures a scrape.
func BenchmarkExporter(b *testing.B) {
	for _, nodes := range []int{500, 1000, 2000, 5000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			s := statedsl.Large(nodes, 30)
			s.Cluster.Live = true
			e := NewExporter(ExporterOptions{Source: still{s}, NodeMetrics: true})
			l := newLoop(e)
			l.look(b.Context(), s)
			b.Run("audit", func(b *testing.B) {
				b.ReportAllocs()
				var evaluating time.Duration
				for b.Loop() {
					began := time.Now()
					j, err := e.evaluate(s, checks.All)
					if err != nil {
						b.Fatal(err)
					}
					j.result = l.tracker.Observe(j.result, s.Cluster.TakenAt)
					evaluating += time.Since(began)
					if err := e.publish(b.Context(), j, 0, 0); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(evaluating.Seconds()*1000/float64(b.N), "ms-evaluating")
			})
			for _, encoding := range []string{"identity", "gzip"} {
				b.Run("scrape/"+encoding, func(b *testing.B) {
					b.ReportAllocs()
					r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
					r.Header.Set("Accept-Encoding", encoding)
					h, size := e.Handler(), 0
					for b.Loop() {
						w := httptest.NewRecorder()
						h.ServeHTTP(w, r)
						size = w.Body.Len()
					}
					b.ReportMetric(float64(size)/1000, "kB")
				})
			}
			b.Run("held", func(b *testing.B) {
				for b.Loop() {
					e.current.Store(nil)
					before := live()
					if err := auditOnce(b, e, s); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(live()-before)/(1<<20), "MiB")
				}
				runtime.KeepAlive(s)
			})
		})
	}
}

// auditOnce audits once, and keeps only what the exporter keeps.
func auditOnce(b *testing.B, e *Exporter, s *blocks.Snapshot) error {
	j, err := e.evaluate(s, checks.All)
	if err != nil {
		return err
	}
	return e.publish(b.Context(), j, 0, 0)
}

// live returns the size of the reachable heap.
func live() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// still is a source that never changes.
type still struct{ s *blocks.Snapshot }

func (s still) Run(ctx context.Context) error        { <-ctx.Done(); return nil }
func (s still) Changed() <-chan struct{}             { return nil }
func (s still) Snapshot() *blocks.Snapshot           { return s.s }
func (s still) Restarts() map[blocks.Resource]uint64 { return nil }
func (s still) Reread(context.Context, *blocks.Snapshot, []blocks.Resource, []string) (*blocks.Snapshot, error) {
	return nil, io.EOF
}
