package testcluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

var shared = struct {
	sync.Mutex
	clusters map[string]*Cluster
}{clusters: map[string]*Cluster{}}

// Shared returns a cluster that all tests of the process share which ask for
// the same options, and empties it first (see [Cluster.Reset]). Tests that use
// it must not run beside each other. The first call starts it; it ends with the
// process. "go test -short" skips the test.
func Shared(tb testing.TB, opts Options) *Cluster {
	tb.Helper()
	SkipIfShort(tb)
	shared.Lock()
	defer shared.Unlock()
	key := fmt.Sprintf("%+v", opts)
	c := shared.clusters[key]
	if c == nil {
		// The first test's own context would end before the others'.
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
		defer cancel()
		var err error
		if c, err = New(ctx, opts); err != nil {
			tb.Fatalf("starting the shared test cluster: %v", err)
		}
		shared.clusters[key] = c
	} else if err := c.reset(tb.Context(), opts); err != nil {
		tb.Fatalf("emptying the shared test cluster: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the API server's log ends with:\n%s", c.apiserver.logTail())
		}
	})
	return c
}

// reset makes a used cluster one that could be new.
func (c *Cluster) reset(ctx context.Context, opts Options) error {
	if err := c.SetWatchCache(ctx, opts.WatchCache); err != nil {
		return err
	}
	if !c.apiserver.running() {
		if err := c.StartAPIServer(ctx); err != nil {
			return err
		}
	}
	if err := c.Reset(ctx); err != nil {
		return err
	}
	for _, group := range []Group{CRDv1, NativeV3, KubeVirt, Whereabouts, Attachments} {
		served, err := c.served(group)
		if err != nil {
			return err
		}
		switch {
		case slices.Contains(c.Groups, group):
			err = c.InstallCRDs(ctx, group)
		case len(served) > 0:
			err = c.RemoveCRDs(ctx, group)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
