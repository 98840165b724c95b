package testcluster

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// shared holds the idle clusters by their options.
var shared = struct {
	sync.Mutex
	idle map[string][]*Cluster
}{idle: map[string][]*Cluster{}}

// Shared returns an empty cluster for exclusive use by the test. Tests of the process
// with the same options reuse it in turn; only foreign groups are installed and removed.
// If no cluster is idle, Shared starts one, which ends with the process. "go test -short"
// skips the test.
func Shared(tb testing.TB, opts Options) *Cluster {
	tb.Helper()
	SkipIfShort(tb)
	if len(opts.Groups) == 0 {
		opts.Groups = []Group{CRDv1}
	}
	calico := slices.DeleteFunc(slices.Clone(opts.Groups), func(g Group) bool { return g != CRDv1 && g != NativeV3 })
	key := fmt.Sprintf("%v %v %v", calico, opts.WatchCache, opts.APIServerArgs)
	c := takeIdle(key)
	if c == nil {
		// The context of the first test would end before the other tests.
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
		defer cancel()
		var err error
		if c, err = New(ctx, opts); err != nil {
			tb.Fatalf("starting the shared test cluster: %v", err)
		}
	} else if err := c.reset(tb.Context(), opts); err != nil {
		tb.Fatalf("emptying the shared test cluster: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the API server's log ends with:\n%s", c.apiserver.logTail())
		}
		shared.Lock()
		defer shared.Unlock()
		shared.idle[key] = append(shared.idle[key], c)
	})
	return c
}

// takeIdle returns an idle cluster, or nil.
func takeIdle(key string) *Cluster {
	shared.Lock()
	defer shared.Unlock()
	idle := shared.idle[key]
	if len(idle) == 0 {
		return nil
	}
	shared.idle[key] = idle[1:]
	return idle[0]
}

// played holds the states of scenarios, by the name of the scenario's function.
var played = struct {
	sync.Mutex
	states map[string]*savedState
}{states: map[string]*savedState{}}

// Play creates the state of a scenario on a new or empty cluster, as if it had just
// happened. The scenario must be a top-level function. Only the first call runs it; later
// calls restore the stored objects.
func (c *Cluster) Play(tb testing.TB, scenario func(context.Context, *Cluster) error) {
	tb.Helper()
	played.Lock()
	defer played.Unlock()
	name := runtime.FuncForPC(reflect.ValueOf(scenario).Pointer()).Name()
	var err error
	if s := played.states[name]; s != nil {
		err = c.restore(tb.Context(), s)
	} else if err = scenario(tb.Context(), c); err == nil {
		played.states[name], err = c.save(tb.Context())
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// reset makes a used cluster equal to a new one.
func (c *Cluster) reset(ctx context.Context, opts Options) error {
	c.Groups = opts.Groups
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
	for _, group := range []Group{CRDv1, NativeV3, KubeVirt, Whereabouts, Attachments, Migration} {
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
