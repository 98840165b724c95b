package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/files"
	"github.com/calico-audit/calico-audit/metrics"
)

// saved is a source that serves a fixed snapshot.
type saved struct{ s *blocks.Snapshot }

func (s saved) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (s saved) Changed() <-chan struct{}      { return nil }
func (s saved) Snapshot() *blocks.Snapshot    { return s.s }
func (s saved) Restarts() map[blocks.Resource]uint64 {
	return map[blocks.Resource]uint64{blocks.Pods: 1}
}
func (s saved) Reread(context.Context, *blocks.Snapshot, []blocks.Resource, []string) (*blocks.Snapshot, error) {
	return s.s, nil
}

// secondary is a secondary network.
const secondary = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: fast, namespace: shop}
spec: {config: '{"type":"macvlan","ipam":{"type":"whereabouts","range":"10.9.0.0/24"}}'}
---
apiVersion: whereabouts.cni.cncf.io/v1alpha1
kind: IPPool
metadata: {name: 10.9.0.0-24, namespace: multus, uid: w1, resourceVersion: "7"}
spec: {range: 10.9.0.0/24, allocations: {}}
`

// exportSaved serves the exporter of an example snapshot, with a secondary network, and
// returns its address.
func exportSaved(t *testing.T, snapshot string) string {
	t.Helper()
	beside := filepath.Join(t.TempDir(), "secondary.yaml")
	if err := os.WriteFile(beside, []byte(secondary), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := files.ReadFiles([]string{filepath.Join("..", "..", "examples", "snapshots", snapshot), beside}, files.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// It stands for a live cluster, which also serves the kinds that the files lack.
	s.Cluster.TakenAt, s.Cluster.Live, s.Gaps = time.Now(), true, nil
	write := func(w io.Writer, r *audit.Report) error { return json.NewEncoder(w).Encode(r) }
	e := metrics.NewExporter(metrics.ExporterOptions{Source: saved{s}, NodeMetrics: true, JSON: write, Text: write})
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	server := httptest.NewServer(e.Handler())
	t.Cleanup(func() {
		server.Close()
		end()
		if err := <-ended; err != nil {
			t.Errorf("the exporter of %s ended: %v", snapshot, err)
		}
	})
	return strings.TrimPrefix(server.URL, "http://")
}

// TestTwoClusters: one Prometheus scrapes the exporters of a troubled and a healthy
// cluster, and adds the label cluster to each. Each panel of the dashboard shows both
// clusters, separately or in sum, and each alert has the label of its cluster. A Prometheus
// without that label works as well.
func TestTwoClusters(t *testing.T) {
	job := func(name string, labels string) string {
		return fmt.Sprintf("- job_name: %s\n  static_configs:\n%s", name, labels)
	}
	east, west := exportSaved(t, "story"), exportSaved(t, "healthy")
	m := monitor(t, filepath.Join("..", ".."), east,
		job("many", fmt.Sprintf("  - {targets: [%q], labels: {cluster: east}}\n  - {targets: [%q], labels: {cluster: west}}", east, west)))
	m.await("both have been scraped for long enough to know rates", func() bool {
		return m.query(`count_over_time(calico_audit_snapshot_complete{job=~"many|calico-audit"}[5m]) >= 3`) == 3
	})
	m.await("there are alerts", func() bool { return m.query(`ALERTS{alertname="CalicoPoolOutOfBlocks", cluster="east"}`) == 1 })

	at := time.Now()
	of := func(cluster, job string) []dashboardQuery { return dashboardQueries(t, cluster, job) }
	alone, ofEast, ofWest, ofBoth := of(".*", "calico-audit"), of("east", "many"), of("west", "many"), of(".*", "many")
	for i, q := range ofBoth {
		if strings.Contains(q.expr, "runway") || askAgents(q.expr) {
			continue // it takes days of history, or agents
		}
		both, one, other := m.series(q.expr, at), m.series(ofEast[i].expr, at), m.series(ofWest[i].expr, at)
		if len(one) == 0 || len(m.series(alone[i].expr, at)) != len(one) {
			t.Errorf("panel %q shows nothing of one cluster, or without the label another number of series: %s", q.panel, q.expr)
		}
		want := maps.Clone(one)
		for labels, value := range other {
			before, shared := want[labels]
			switch {
			case shared && q.panel == "Complete":
				want[labels] = min(before, value)
			case shared && q.panel == "Age":
				want[labels] = max(before, value)
			default:
				want[labels] = before + value
			}
		}
		if k := 5; strings.HasPrefix(q.expr, "topk(5,") {
			largest := slices.Sorted(maps.Values(want))
			maps.DeleteFunc(want, func(_ string, v float64) bool { return v < largest[len(largest)-k] })
		}
		same := func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }
		if !maps.EqualFunc(both, want, same) {
			t.Errorf("panel %q shows of both clusters\n%v\nand of each\n%v\n%v\nby %s", q.panel, both, one, other, q.expr)
		}
	}
	for series := range m.series(`ALERTS{job="many", cluster!="east"}`, at) {
		t.Errorf("an alert that is not of the cluster in trouble: %s", series)
	}
}
