package cluster

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// A decodeBarrier delays namespaces between their arrival and their decoding.
type decodeBarrier struct{ blocker atomic.Pointer[blocker] }

// A blocker delays namespaces whose bytes contain a text.
type blocker struct {
	text    []byte
	reached chan struct{} // receives when a namespace waits
	open    chan struct{}
}

// delayNamespaces installs a barrier before the decoder of namespaces until the test ends.
// Call it before starting the watch.
func delayNamespaces(t *testing.T) *decodeBarrier {
	t.Helper()
	s := &decodeBarrier{}
	for _, k := range decode.Kinds {
		if k.Resource != blocks.Namespaces {
			continue
		}
		reading := k.JSON
		k.JSON = func(d *decode.Decoder, r *parse.Reader) {
			if g := s.blocker.Load(); g != nil && bytes.Contains(r.Text, g.text) {
				select {
				case g.reached <- struct{}{}:
				default:
				}
				<-g.open
			}
			reading(d, r)
		}
		t.Cleanup(func() { k.JSON = reading })
	}
	return s
}

// shut delays the namespaces with a text until the returned function is called or the test
// ends.
func (s *decodeBarrier) shut(t *testing.T, text string) (*blocker, func()) {
	t.Helper()
	g := &blocker{text: []byte(text), reached: make(chan struct{}, 1), open: make(chan struct{})}
	s.blocker.Store(g)
	opened := false
	open := func() {
		if !opened {
			opened = true
			s.blocker.CompareAndSwap(g, nil)
			close(g.open)
		}
	}
	t.Cleanup(open)
	return g, open
}

// wait waits until a namespace is delayed.
func (g *blocker) wait(t *testing.T) {
	t.Helper()
	select {
	case <-g.reached:
	case <-time.After(30 * time.Second):
		t.Fatal("no namespace came")
	}
}

// createNamespace creates a namespace, and returns a time when it certainly existed.
func createNamespace(t *testing.T, c *testcluster.Cluster, name string) time.Time {
	t.Helper()
	must(t, c.Create(t.Context(), testcluster.Core[0], map[string]any{"metadata": map[string]any{"name": name}}))
	return time.Now()
}

// neverKnows polls a watch for a while. No snapshot may claim a time after the namespace's
// creation without containing the namespace.
func neverKnows(t *testing.T, w *Watch, name string, created time.Time, during time.Duration) {
	t.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		s := w.Snapshot()
		_, missing := s.Missing(blocks.Namespaces)
		there := slices.ContainsFunc(s.Namespaces, func(n blocks.Namespace) bool { return n.Name == name })
		if !missing && !there && s.Cluster.TakenAt.After(created) {
			t.Fatalf("namespace %s was created at %v, and is not in a snapshot of %v without gaps", name, created, s.Cluster.TakenAt)
		}
	}
}

// Events that have arrived but are not decoded yet do not count as known, whatever other
// kinds report meanwhile.
func TestWatchBacklog(t *testing.T) {
	t.Parallel()
	c := cached(t)
	s := delayNamespaces(t)
	w, _ := watching(t, c.Config)
	g, open := s.shut(t, "latecomer")
	becomesEqual(t, w, c.Config)
	churning := make(chan struct{})
	churned := churn(t, c, churning)
	created := createNamespace(t, c, "latecomer")
	g.wait(t)
	neverKnows(t, w, "latecomer", created, quickPace.stalenessTimeout-time.Second/2)
	got := eventually(t, w, "the namespaces are a gap", func(s *blocks.Snapshot) bool { return len(s.Gaps) > 0 })
	if g := got.Gaps[0]; len(got.Gaps) > 1 || g.Resource != blocks.Namespaces || !g.Stale {
		t.Errorf("gaps %v", gapTexts(got))
	}
	eventually(t, w, "the clock goes on for the rest", func(s *blocks.Snapshot) bool {
		return s.Cluster.TakenAt.After(created.Add(time.Second))
	})
	open()
	eventually(t, w, "no gaps", func(s *blocks.Snapshot) bool { return len(s.Gaps) == 0 })
	close(churning)
	churned.Wait()
	becomesEqual(t, w, c.Config)
}

// A kind that comes back after the others have advanced is a gap until it has reached their
// time.
func TestWatchCatchesUp(t *testing.T) {
	t.Parallel()
	c := cached(t)
	cfg, err := c.UserConfig("watcher")
	must(t, err)
	all, some := auditorRules("list", "watch"), auditorRules("list", "watch")
	some[0].Resources = []string{"nodes", "pods"}
	must(t, c.Allow(t.Context(), "watcher", some...))
	createNamespace(t, c, "early")
	s := delayNamespaces(t)
	w, _ := watching(t, cfg)
	eventually(t, w, "the namespaces are forbidden", func(s *blocks.Snapshot) bool { return len(s.Gaps) == 1 })

	g, listed := s.shut(t, "early")
	must(t, c.Allow(t.Context(), "watcher", all...))
	g.wait(t) // the list has been read
	created := createNamespace(t, c, "latecomer")
	eventually(t, w, "the clock goes on for the rest", func(s *blocks.Snapshot) bool {
		return s.Cluster.TakenAt.After(created)
	})
	late, open := s.shut(t, "latecomer")
	listed()
	late.wait(t) // the watch of namespaces has started
	got := w.Snapshot()
	if len(got.Namespaces) == 0 || len(got.Gaps) != 1 || !got.Gaps[0].Stale {
		t.Errorf("%d namespaces, gaps %v", len(got.Namespaces), gapTexts(got))
	}
	neverKnows(t, w, "latecomer", created, time.Second)
	open()
	eventually(t, w, "no gaps", func(s *blocks.Snapshot) bool { return len(s.Gaps) == 0 })
	becomesEqual(t, w, c.Config)
}
