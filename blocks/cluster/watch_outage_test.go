package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// After any changes, the watch's snapshot equals a reading, and the watch never claims a
// time whose state it does not know.
func TestWatchFollows(t *testing.T) {
	for _, cache := range testenv.Sample(t, 1, []bool{true, false}) {
		t.Run(fmt.Sprintf("cache=%v", cache), func(t *testing.T) {
			c := seeded(t, testcluster.Options{WatchCache: cache})
			w, _ := watching(t, c.Config)
			becomesEqual(t, w, c.Config)
			v, finish := underChurn(t, w, c)
			time.Sleep(churnTime(t) / 4)
			early := liveHeap()
			time.Sleep(churnTime(t) * 3 / 4)
			finish()
			if grown := liveHeap() - early; grown > 16<<20 {
				t.Errorf("memory has grown by %d MiB", grown>>20)
			}
			if v.looks < 10 || len(v.n.acts) < 10 {
				t.Errorf("%d looks at %d numbers", v.looks, len(v.n.acts))
			}
			for r, times := range w.Restarts() {
				t.Errorf("the watch of %s was begun again %d times", r, times)
			}
		})
	}
}

// Connections that break every second lose no changes.
func TestWatchIsCut(t *testing.T) {
	t.Parallel()
	c := cached(t)
	r, cfg := through(t, c.Config)
	w, _ := watching(t, cfg)
	becomesEqual(t, w, c.Config)
	_, finish := underChurn(t, w, c)
	first := w.Snapshot().Cluster.TakenAt
	for end := time.Now().Add(churnTime(t)); time.Now().Before(end); {
		time.Sleep(time.Second)
		r.cut()
	}
	s := finish()
	if !s.Cluster.TakenAt.After(first.Add(2 * time.Second)) {
		t.Errorf("the clock went from %v to %v", first, s.Cluster.TakenAt)
	}
	if w.Restarts()[blocks.Blocks] < 3 {
		t.Errorf("restarts %v", w.Restarts())
	}
}

// outage checks an API server outage longer than the watch's stalenessTimeout: the snapshot
// keeps the last state, its time stops, and then the server's kinds become gaps.
func outage(t *testing.T, w *Watch, v *witness, kinds []blocks.Resource) {
	t.Helper()
	away := time.Now()
	before := w.Snapshot()
	s := allGaps(t, w, kinds)
	for _, g := range s.Gaps {
		if !g.Whole() || !g.Stale || !strings.HasPrefix(g.Reason, "not current since 2") {
			t.Errorf("gap %v", g)
		}
	}
	if len(s.Blocks) != len(before.Blocks) || len(s.Nodes) != len(before.Nodes) {
		t.Errorf("%d blocks and %d nodes, had %d and %d", len(s.Blocks), len(s.Nodes), len(before.Blocks), len(before.Nodes))
	}
	if s.Cluster.TakenAt.After(away.Add(time.Second)) {
		t.Errorf("the snapshot claims to be of %v, and the server went away at %v", s.Cluster.TakenAt, away)
	}
	if took := time.Since(away); took < quickPace.stalenessTimeout-time.Second {
		t.Errorf("a gap after only %v", took)
	}
	v.look()
}

func TestWatchOutlivesServers(t *testing.T) {
	t.Parallel()
	type outside struct {
		name  string
		kinds []blocks.Resource
		away  func(*testcluster.Cluster, *relay)
		back  func(context.Context, *testcluster.Cluster, *relay) error
	}
	for _, outside := range testenv.Sample(t, 1, []outside{
		{"API server killed", calicoAndCore, func(c *testcluster.Cluster, _ *relay) { c.StopAPIServer() },
			func(ctx context.Context, c *testcluster.Cluster, _ *relay) error { return c.StartAPIServer(ctx) }},
		{"etcd killed", calicoAndCore, func(c *testcluster.Cluster, _ *relay) { c.StopEtcd() },
			func(ctx context.Context, c *testcluster.Cluster, _ *relay) error { return c.StartEtcd(ctx) }},
		{"silence, with KubeVirt", blocks.Resources, func(_ *testcluster.Cluster, r *relay) { r.hush() },
			func(_ context.Context, _ *testcluster.Cluster, r *relay) error { r.speak(); return nil }},
	}) {
		t.Run(outside.name, func(t *testing.T) {
			c := cached(t)
			if slices.ContainsFunc(outside.kinds, foreign) {
				for _, group := range []testcluster.Group{testcluster.KubeVirt, testcluster.Whereabouts, testcluster.Attachments, testcluster.Migration} {
					must(t, c.InstallCRDs(t.Context(), group))
				}
			}
			r, cfg := through(t, c.Config)
			w, _ := watching(t, cfg)
			becomesEqual(t, w, c.Config)
			v, finish := underChurn(t, w, c)
			time.Sleep(time.Second)
			outside.away(c, r)
			t.Cleanup(func() { // the cluster is shared
				if !c.Running() {
					_ = outside.back(context.Background(), c, r)
				}
			})
			outage(t, w, v, outside.kinds)
			must(t, outside.back(t.Context(), c, r))
			eventually(t, w, "no gaps", func(s *blocks.Snapshot) bool { return len(s.Gaps) == 0 })
			time.Sleep(time.Second)
			finish()
		})
	}
}

// If the datastore has forgotten the resourceVersion, the kind is listed again.
func TestWatchExpires(t *testing.T) {
	c := cluster(t) // a cache would still have the revision
	r, cfg := through(t, c.Config)
	w, _ := watching(t, cfg)
	becomesEqual(t, w, c.Config)
	r.hush()
	s, err := seeding.New(c)
	must(t, err)
	must(t, s.DeletePod(t.Context(), "shop", "n1-0", true))
	must(t, s.Node(t.Context(), seeding.Node{Name: "n5"}))
	status, err := c.Etcd.Get(t.Context(), "x")
	must(t, err)
	_, err = c.Etcd.Compact(t.Context(), status.Header.Revision)
	must(t, err)
	r.speak()
	got := becomesEqual(t, w, c.Config)
	if slices.ContainsFunc(got.Workloads, func(p *blocks.Workload) bool { return p.FullName() == "shop/n1-0" }) || len(got.Nodes) != 5 {
		t.Errorf("%d nodes, pods %d", len(got.Nodes), len(got.Workloads))
	}
	if w.Restarts()[blocks.Pods] == 0 {
		t.Errorf("restarts %v", w.Restarts())
	}
}
