package cluster

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// cached returns a cluster whose API server has a watch cache, as usual.
func cached(t *testing.T) *testcluster.Cluster {
	t.Helper()
	return seeded(t, testcluster.Options{WatchCache: true})
}

// auditorRules are the rules that a watch needs, for the given verbs.
func auditorRules(verbs ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "namespaces", "pods"}, Verbs: verbs},
		{APIGroups: []string{"crd.projectcalico.org"}, Resources: []string{"*"}, Verbs: verbs},
	}
}

// Revoking a right makes the kinds it covered unknown, and no others.
func TestWatchLosesRights(t *testing.T) {
	t.Parallel()
	c := cached(t)
	cfg, err := c.UserConfig("watcher")
	must(t, err)
	all := auditorRules("list", "watch")
	must(t, c.Allow(t.Context(), "watcher", all...))
	w, _ := watching(t, cfg)
	whole := becomesEqual(t, w, c.Config)

	must(t, c.Allow(t.Context(), "watcher", all[1]))
	stale := eventually(t, w, "core kinds are stale", func(s *blocks.Snapshot) bool { return len(s.Gaps) > 0 })
	if !stale.Gaps[0].Stale || len(stale.Namespaces) != len(whole.Namespaces) {
		t.Errorf("a refusal made the namespaces %d, and the gap %v", len(stale.Namespaces), stale.Gaps[0])
	}
	s := eventually(t, w, "core kinds are gaps", func(s *blocks.Snapshot) bool {
		return len(s.Gaps) == 3 && !slices.ContainsFunc(s.Gaps, func(g blocks.Gap) bool { return g.Stale })
	})
	diff(t, "gaps", []string{
		"namespaces: forbidden: needs the right to list namespaces",
		"nodes: forbidden: needs the right to list nodes",
		"pods: forbidden: needs the right to list pods",
	}, gapTexts(s))
	if d := cmp.Diff(readLive(t, cfg, KubernetesOptions{}), s, sameState); d != "" {
		t.Errorf("the watch's snapshot differs from a reading (-read +watched):\n%s", d)
	}
	eventually(t, w, "the clock goes on for the rest", func(s *blocks.Snapshot) bool {
		return s.Cluster.TakenAt.After(whole.Cluster.TakenAt.Add(2 * time.Second))
	})

	must(t, c.Allow(t.Context(), "watcher", append(auditorRules("list")[:1], all[1])...))
	s = eventually(t, w, "only watching is forbidden", func(s *blocks.Snapshot) bool {
		return len(s.Gaps) == 3 && s.Gaps[0].Reason == "forbidden: needs the right to watch namespaces"
	})
	if len(s.Nodes) > 0 {
		t.Errorf("%d nodes", len(s.Nodes))
	}
	must(t, c.Allow(t.Context(), "watcher", all...))
	becomesEqual(t, w, c.Config)
}

// Deleting a CRD removes its objects, and a new CRD adds objects.
func TestWatchCRDs(t *testing.T) {
	t.Parallel()
	c := cached(t)
	w, _ := watching(t, c.Config)
	becomesEqual(t, w, c.Config)
	for _, plural := range []string{"ipamblocks", "ipreservations"} {
		deleteCRD(t, c, plural+".crd.projectcalico.org")
	}
	// The watch first sees the blocks deleted; pods with addresses but no blocks are a gap,
	// too.
	s := eventually(t, w, "the blocks are not served", func(s *blocks.Snapshot) bool {
		return slices.ContainsFunc(s.Gaps, func(g blocks.Gap) bool { return strings.Contains(g.Reason, "not served") })
	})
	diff(t, "gaps", []string{"ipamblocks: not served: the cluster has no CRD ipamblocks of crd.projectcalico.org/v1"}, gapTexts(s))
	becomesEqual(t, w, c.Config)

	must(t, c.InstallCRDs(t.Context(), testcluster.CRDv1))
	seeder, err := seeding.New(c)
	must(t, err)
	_, err = seeder.Pod(t.Context(), seeding.Pod{Namespace: "shop", Name: "again", Node: "n1"})
	must(t, err)
	s = becomesEqual(t, w, c.Config)
	if len(s.Blocks) != 1 || len(s.Gaps) != 0 {
		t.Errorf("%d blocks, gaps %v", len(s.Blocks), gapTexts(s))
	}

	// A watch continues without any of Calico's CRDs; a reading would fail.
	must(t, c.RemoveCRDs(t.Context(), testcluster.CRDv1))
	const none = ": not served: the cluster has no CRDs of Calico, neither of crd.projectcalico.org/v1 nor of projectcalico.org/v3"
	want := []string{"blockaffinities" + none, "ipamblocks" + none, "ipamconfigs" + none, "ipamhandles" + none, "ippools" + none}
	eventually(t, w, "no kind of Calico's is served", func(s *blocks.Snapshot) bool { return slices.Equal(gapTexts(s), want) })
	must(t, c.InstallCRDs(t.Context(), testcluster.CRDv1))
	becomesEqual(t, w, c.Config)
}

// If Calico's objects move to the other API group, the watch follows. It shows objects of
// only one group at a time.
func TestWatchMigrates(t *testing.T) {
	t.Parallel()
	c := cached(t)
	w, _ := watching(t, c.Config)
	old := becomesEqual(t, w, c.Config)
	stop := make(chan struct{})
	uids := map[string]bool{}
	for _, b := range old.Blocks {
		uids[b.UID()] = true
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			s := w.Snapshot()
			for _, b := range s.Blocks {
				if uids[b.UID()] != (s.Cluster.APIGroup == decode.GroupCRD) {
					t.Errorf("block %s of the wrong group in a snapshot of %s", b.Name, s.Cluster.APIGroup)
					return
				}
			}
		}
	}()
	must(t, testcluster.MoveToNative(t.Context(), c))
	s := eventually(t, w, "the native group is watched", func(s *blocks.Snapshot) bool { return s.Cluster.APIGroup == decode.GroupNative })
	if len(s.Gaps) > 0 || len(s.Blocks) != len(old.Blocks) {
		t.Errorf("%d blocks, gaps %v", len(s.Blocks), gapTexts(s))
	}
	becomesEqual(t, w, c.Config)
	close(stop)
	<-done

	_, err := w.Reread(t.Context(), old, []blocks.Resource{blocks.Blocks}, nil)
	if err == nil || !strings.Contains(err.Error(), "moved from crd.projectcalico.org/v1 to projectcalico.org/v3") {
		t.Errorf("reread: %v", err)
	}

	// If both groups exist, the watch uses the one that is not locked.
	must(t, c.InstallCRDs(t.Context(), testcluster.CRDv1))
	must(t, c.Create(t.Context(), testcluster.CRDv1.Resource("clusterinformations"), map[string]any{
		"metadata": map[string]any{"name": "default"}, "spec": map[string]any{"datastoreReady": true},
	}))
	must(t, c.Edit(t.Context(), testcluster.NativeV3.Resource("clusterinformations"), "", "default", func(o map[string]any) {
		o["spec"].(map[string]any)["datastoreReady"] = false
	}))
	eventually(t, w, "the older group is watched", func(s *blocks.Snapshot) bool { return s.Cluster.APIGroup == decode.GroupCRD })
	becomesEqual(t, w, c.Config)
}

// A bad object is a gap until it is fixed.
func TestWatchBadObject(t *testing.T) {
	t.Parallel()
	c := cached(t)
	w, _ := watching(t, c.Config)
	s := becomesEqual(t, w, c.Config)
	kind, name := testcluster.CRDv1.Resource("ipamblocks"), s.Blocks[1].Name
	cidr := func(text string) {
		must(t, c.Edit(t.Context(), kind, "", name, func(o map[string]any) { o["spec"].(map[string]any)["cidr"] = text }))
	}
	cidr("10.64.75.0/a")
	s = becomesEqual(t, w, c.Config)
	if len(s.Blocks) != 3 || len(s.Unreadable(blocks.Blocks)) != 1 {
		t.Errorf("%d blocks, gaps %v", len(s.Blocks), gapTexts(s))
	}
	cidr("10.64.75.0/26")
	if s = becomesEqual(t, w, c.Config); len(s.Gaps) != 0 {
		t.Errorf("gaps %v", gapTexts(s))
	}
	cidr("10.64.75.0/b")
	becomesEqual(t, w, c.Config)
	must(t, c.Delete(t.Context(), kind, "", name))
	if s = becomesEqual(t, w, c.Config); len(s.Gaps) != 0 || len(s.Blocks) != 3 {
		t.Errorf("%d blocks, gaps %v", len(s.Blocks), gapTexts(s))
	}
	config := testcluster.CRDv1.Resource("bgpconfigurations")
	must(t, c.Edit(t.Context(), config, "", "default", func(o map[string]any) { o["spec"].(map[string]any)["asNumber"] = int64(1) }))
	becomesEqual(t, w, c.Config)
	must(t, c.Delete(t.Context(), config, "", "default"))
	if s = becomesEqual(t, w, c.Config); s.BGP.Present {
		t.Errorf("configuration %+v", s.BGP)
	}
}

// A watch leaves nothing behind, whenever it ends.
func TestWatchLeavesNothing(t *testing.T) {
	c := cached(t)
	before := goleak.IgnoreCurrent()
	r, cfg := through(t, c.Config)
	_, end := watching(t, cfg)
	end() // at once
	w, end := watching(t, cfg)
	eventually(t, w, "there is a snapshot", func(s *blocks.Snapshot) bool { return len(s.Blocks) == 4 })
	if err := w.Run(t.Context()); err == nil {
		t.Error("a watch ran twice at the same time")
	}
	end()
	if s := w.Snapshot(); len(s.Blocks) != 4 {
		t.Errorf("%d blocks after the end", len(s.Blocks))
	}
	w, end = watching(t, cfg)
	eventually(t, w, "there is a snapshot", func(s *blocks.Snapshot) bool { return len(s.Blocks) == 4 })
	for range 5 {
		r.cut()
		time.Sleep(200 * time.Millisecond)
	}
	r.hush()
	allGaps(t, w, calicoAndCore)
	end()
	r.close()
	goleak.VerifyNone(t, before)
}

// Reread reads the requested resources, and takes over the rest.
func TestWatchReread(t *testing.T) {
	c := cached(t)
	w, _ := watching(t, c.Config)
	s := becomesEqual(t, w, c.Config)
	must(t, c.Delete(t.Context(), testcluster.CRDv1.Resource("ipamblocks"), "", s.Blocks[0].Name))
	must(t, c.Delete(t.Context(), testcluster.Core[1], "", "n1"))
	again, err := w.Reread(t.Context(), s, []blocks.Resource{blocks.Blocks}, nil)
	must(t, err)
	diff(t, "blocks", s.Blocks[1:], again.Blocks)
	diff(t, "nodes, which were not read again", s.Nodes, again.Nodes)
	diff(t, "cluster", s.Cluster, again.Cluster)
}

// A watch only lists and watches, and works through an HTTP/1.1 proxy.
func TestWatchOnlyReads(t *testing.T) {
	t.Parallel()
	c := cached(t)
	proxy, cfg := before(t, c, nil)
	w, _ := watching(t, cfg)
	first := becomesEqual(t, w, c.Config)
	must(t, c.Delete(t.Context(), testcluster.Core[1], "", "n1"))
	becomesEqual(t, w, c.Config)
	eventually(t, w, "the clock goes on", func(s *blocks.Snapshot) bool {
		return s.Cluster.TakenAt.After(first.Cluster.TakenAt.Add(2 * time.Second))
	})
	want := map[string]bool{}
	paths := map[string]bool{"/apis": true, "/apis/" + decode.GroupCRD: true}
	for _, kind := range decode.Kinds {
		if slices.Contains(calicoAndCore, kind.Resource) {
			l := lister{kind: kind, group: decode.GroupCRD}
			want[l.path()], paths[l.path()] = true, true
		}
	}
	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	watched := map[string]bool{}
	for _, r := range proxy.requests {
		if r.Method != http.MethodGet || !paths[r.URL.Path] {
			t.Errorf("request %s %s", r.Method, r.URL)
		}
		if r.URL.Query().Get("watch") == "true" {
			watched[r.URL.Path] = true
		}
	}
	diff(t, "watched", want, watched)
}

// Waiting for the signal misses no change, and returned snapshots do not change.
func TestWatchSignals(t *testing.T) {
	t.Parallel()
	c := cached(t)
	w, _ := watching(t, c.Config)
	s := becomesEqual(t, w, c.Config)
	kept := slices.Clone(s.Nodes)
	for i := range 5 {
		name := fmt.Sprintf("extra-%d", i)
		must(t, c.Create(t.Context(), testcluster.Core[1], map[string]any{"metadata": map[string]any{"name": name}}))
		for there := false; !there; {
			select {
			case <-w.Changed():
				there = slices.ContainsFunc(w.Snapshot().Nodes, func(n blocks.Node) bool { return n.Name == name })
			case <-time.After(30 * time.Second):
				t.Fatalf("no signal for node %s", name)
			}
		}
	}
	diff(t, "the snapshot before", kept, s.Nodes)
	now := w.Snapshot()
	if &now.Blocks[0] != &s.Blocks[0] {
		t.Error("blocks were copied though none has changed")
	}
	// The node is written twice; its record only shows the second write.
	node := func(edit func(metadata map[string]any)) {
		must(t, c.Edit(t.Context(), testcluster.Core[1], "", "extra-0", func(o map[string]any) { edit(o["metadata"].(map[string]any)) }))
	}
	node(func(m map[string]any) { m["annotations"] = map[string]any{"a-controller.example.com/seen": "yes"} })
	time.Sleep(time.Second)
	if !w.Snapshot().SameObjects(now) {
		t.Error("an annotation that no record holds has changed the objects")
	}
	node(func(m map[string]any) { m["labels"] = map[string]any{"zone": "a"} })
	if s = becomesEqual(t, w, c.Config); s.SameObjects(now) {
		t.Error("a label has not changed the objects")
	}
}

// A watch waits for a server that is unavailable at first.
func TestWatchWaitsForServer(t *testing.T) {
	t.Parallel()
	c := cached(t)
	r, cfg := through(t, c.Config)
	r.hush()
	w, _ := watching(t, cfg)
	time.Sleep(time.Second)
	if s := w.Snapshot(); s != nil {
		t.Errorf("a snapshot of a server that was never there: %+v", s.Cluster)
	}
	r.speak()
	becomesEqual(t, w, c.Config)
}
