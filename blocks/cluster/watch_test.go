package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// quickPace is for tests: tenths of seconds instead of seconds.
var quickPace = pace{
	stalenessTimeout: 3 * time.Second, probeInterval: 200 * time.Millisecond, probeTimeout: 2 * time.Second, probeRetry: 100 * time.Millisecond, reconnectAfter: 2 * time.Second,
	propagationDelay: 100 * time.Millisecond, streamLifetime: 4 * time.Second, bookmarkTimeout: time.Minute, openTimeout: 2 * time.Second,
	discover: 500 * time.Millisecond, confirm: 200 * time.Millisecond, denied: 200 * time.Millisecond,
	backoff: 50 * time.Millisecond, maxBackoff: 500 * time.Millisecond,
}

// watching starts a watch that ends with the test, or when the returned function is called.
func watching(t *testing.T, cfg *rest.Config) (*Watch, func()) {
	t.Helper()
	return running(t, newWatch(t, cfg), quickPace)
}

func newWatch(t *testing.T, cfg *rest.Config) *Watch {
	t.Helper()
	w, err := NewWatch(cfg, WatchOptions{Log: slog.New(slog.NewTextHandler(testWriter{t}, nil))})
	must(t, err)
	w.pageSize, w.whole = 7, false
	return w
}

// running starts a watch with a given pace.
func running(t *testing.T, w *Watch, at pace) (*Watch, func()) {
	t.Helper()
	w.pace = at
	w.client.wait.retry = []time.Duration{10 * time.Millisecond, 20 * time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	ended := false
	end := func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the watch ended with %v", err)
		}
	}
	t.Cleanup(end)
	return w, end
}

// testWriter writes to a test's log.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s %s", time.Now().Format("15:04:05.000"), p)
	return len(p), nil
}

// sameState compares snapshots. A watch's snapshot has its own time, and for kinds other
// than Calico's it may have an older resourceVersion and last write.
var sameState = cmp.Options{
	cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(blocks.Cluster{}, "TakenAt"), cmpopts.IgnoreFields(blocks.Gap{}, "Denied"),
	cmpopts.IgnoreFields(blocks.Workload{}, "Meta.Written", "Meta.ByUs"), cmpopts.IgnoreFields(blocks.Node{}, "Meta.Written", "Meta.ByUs"),
	cmpopts.IgnoreFields(blocks.Namespace{}, "Meta.Written", "Meta.ByUs"), cmpopts.IgnoreFields(blocks.VirtualMachine{}, "Meta.Written", "Meta.ByUs"),
	cmp.FilterPath(mayBeOlder, cmp.Comparer(func(a, b blocks.Pin) bool { return a.UID() == b.UID() })),
	cmp.FilterPath(func(p cmp.Path) bool { return !mayBeOlder(p) }, cmp.Comparer(func(a, b blocks.Pin) bool { return a == b })),
}

// mayBeOlder reports whether a path leads through a record of a kind that is not Calico's.
func mayBeOlder(p cmp.Path) bool {
	return slices.ContainsFunc(p, func(s cmp.PathStep) bool {
		switch s.Type() {
		case reflect.TypeFor[blocks.Workload](), reflect.TypeFor[blocks.Node](), reflect.TypeFor[blocks.Namespace](), reflect.TypeFor[blocks.VirtualMachine]():
			return true
		}
		return false
	})
}

// eventually waits until a condition holds for the watch's snapshot.
func eventually(t *testing.T, w *Watch, what string, holds func(*blocks.Snapshot) bool) *blocks.Snapshot {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		s := w.Snapshot()
		if s != nil && holds(s) {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("not so after 30 s: %s; gaps %v", what, gapTextsOf(s))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func foreign(r blocks.Resource) bool { return decode.KindOf(r).Foreign != "" }

// calicoAndCore are the kinds that a cluster without KubeVirt and Whereabouts serves.
var calicoAndCore = slices.DeleteFunc(slices.Clone(blocks.Resources), foreign)

// allGaps waits until exactly the given kinds are gaps.
func allGaps(t *testing.T, w *Watch, kinds []blocks.Resource) *blocks.Snapshot {
	t.Helper()
	want := slices.Sorted(slices.Values(kinds))
	return eventually(t, w, fmt.Sprintf("the gaps are %v", want), func(s *blocks.Snapshot) bool {
		return slices.EqualFunc(want, s.Gaps, func(r blocks.Resource, g blocks.Gap) bool { return g.Resource == r })
	})
}

func gapTextsOf(s *blocks.Snapshot) []string {
	if s == nil {
		return []string{"no snapshot"}
	}
	return gapTexts(s)
}

// becomesEqual waits until the watch's snapshot equals a reading. The cluster must not
// change meanwhile.
func becomesEqual(t *testing.T, w *Watch, cfg *rest.Config) *blocks.Snapshot {
	t.Helper()
	want := readLive(t, cfg, KubernetesOptions{})
	deadline := time.Now().Add(30 * time.Second)
	for {
		got := w.Snapshot()
		if got != nil && cmp.Equal(want, got, sameState) {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("the watch's snapshot differs from a reading after 30 s (-read +watched):\n%s", cmp.Diff(want, got, sameState))
		}
		time.Sleep(50 * time.Millisecond)
	}
}
