package storm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// Storm runs all disturbances at once for a while, and then waits until all have ended.
// It fails the test for each violation. [World.Heal] and [World.Inspect] handle the
// resulting state.
func Storm(tb testing.TB, c *testcluster.Cluster, config Config) *World {
	tb.Helper()
	seeder, err := seeding.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	seeder.Calico = NewClient(tb, c, "calico-node").Calico
	w := &World{Config: config, tb: tb, cluster: c, seeder: seeder}
	etcdHistory, err := Follow(tb.Context(), c)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, halt := context.WithCancelCause(tb.Context())
	w.halt = halt
	defer w.halt(nil)
	w.checker = NewInvariantChecker(etcdHistory, w.violation)
	if err := w.prepare(tb.Context()); err != nil {
		tb.Fatalf("preparing the storm: %v", err)
	}
	controllers := c.StartKubeControllers(tb)
	w.raging = time.Now()
	w.runAll(ctx, controllers)
	controllers.Stop()
	if err := w.layOrphans(tb.Context()); err != nil {
		tb.Fatalf("ending what no object shows: %v", err)
	}
	if err := w.checker.Check(tb.Context()); err != nil {
		tb.Fatalf("judging the storm: %v", err)
	}
	w.Report()
	return w
}

// Report fails the test for problems since the last report, and logs the events.
func (w *World) Report() {
	w.tb.Helper()
	if err := w.troubles.take(); err != nil {
		w.tb.Errorf("what the storm itself could not do:\n%v", err)
	}
	for _, f := range w.checker.TakeViolations() {
		w.tb.Errorf("FOUL: %s", f)
	}
	leases, moments := w.checker.Counts()
	w.tb.Logf("%d uses of addresses, %d of them ended by Calico's collector, %d recorded for another pod and again for their own, %d recorded again after the collector freed them, %d changes of allocations; %s", leases, w.checker.Collected(), w.checker.Again(), w.checker.Regained(), moments, &w.made)
	if err := w.failures.take(); err != nil {
		w.tb.Logf("steps that failed:\n%v", err)
	}
}

// Leave properly tears down everything that still runs.
func (w *World) Leave(ctx context.Context) error {
	for _, k := range w.workers.all {
		for p := k.take(); p != nil; p = k.take() {
			k.teardown(ctx, p, false)
		}
	}
	if err := w.leaveOrphans(ctx); err != nil {
		return err
	}
	for _, n := range w.nodes {
		if err := w.checker.Release(ctx, n.tunnels); err != nil {
			return err
		}
		for _, h := range n.tunnels {
			if err := w.seeder.ReleaseHandle(ctx, h.Handle); err != nil {
				return err
			}
		}
		n.tunnels = nil
		if err := w.stopNode(ctx, n, false); err != nil {
			return err
		}
	}
	return nil
}

// workers holds the workers of a storm.
type workers struct {
	mu  sync.Mutex
	all []*worker
}

func (w *workers) add(k *worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, k)
}

var errTime = errors.New("the storm's time is over")

// violation ends the storm, so that the cluster keeps the state of the violation.
func (w *World) violation(f Violation) {
	if !w.raging.IsZero() {
		w.tb.Logf("a violation %s after the storm began, by %s", time.Since(w.raging).Round(time.Second), f.Manager)
	}
	w.halt(errors.New(f.What))
}

// runAll runs all participants until the context ends.
func (w *World) runAll(ctx context.Context, controllers *testcluster.KubeControllers) {
	var all sync.WaitGroup
	run := func(stream uint64, f func(r *rand.Rand)) {
		all.Go(func() { f(rand.New(rand.NewPCG(w.Seed, stream))) })
	}
	for i := range w.Clients {
		client := NewClient(w.tb, w.cluster, fmt.Sprintf("cni-%d", i))
		run(uint64(i), func(r *rand.Rand) {
			k := &worker{World: w, id: i, node: w.nodes[i%len(w.nodes)], client: client, r: r}
			w.workers.add(k)
			k.run(ctx)
		})
	}
	client := NewClient(w.tb, w.cluster, "cni-windows")
	run(999, func(r *rand.Rand) {
		k := &worker{World: w, id: 999, node: w.windows, client: client, r: r}
		w.workers.add(k)
		k.run(ctx)
	})
	crasher := NewClient(w.tb, w.cluster, "crasher")
	run(1000, func(r *rand.Rand) { w.crash(ctx, crasher, r) })
	for i := range w.Repairs {
		proxy := NewFaultProxy(w.tb, w.cluster.Config, fmt.Sprintf("repair-%d", i))
		proxy.Lag(lag(w.Seed, uint64(3000+i)))
		run(uint64(2000+i), func(r *rand.Rand) { w.repairs(ctx, i, proxy, r) })
	}
	run(1001, func(r *rand.Rand) { w.nodesComeAndGo(ctx, r) })
	run(1006, func(r *rand.Rand) { w.nodesComeAndGo(ctx, r) })
	run(1002, func(r *rand.Rand) { w.killAPIServer(ctx, r) })
	run(1003, func(r *rand.Rand) { w.keepControllers(ctx, controllers, r) })
	run(1004, func(*rand.Rand) { w.keepChecking(ctx) })
	run(1005, func(*rand.Rand) { w.keepTime(ctx) })
	w.makeOrphans(ctx, run)
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	<-ctx.Done()
	select {
	case <-ended:
	case <-time.After(maxEnding):
		panic(fmt.Sprintf("%s after the storm was over, somebody has not come to an end", maxEnding)) // with all goroutines' stacks
	}
}

// lag returns the delays of a network on which one request in six is slow.
func lag(seed, stream uint64) func() time.Duration {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, stream))
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if r.IntN(6) > 0 {
			return 0
		}
		return time.Duration(r.IntN(300)) * time.Millisecond
	}
}

// maxEnding limits the time until everything started in the storm has ended. Repairs
// finish their current object, pods retry their writes, and Calico's client may use its
// callTimeout four times.
const maxEnding = 8 * time.Minute

// maxLonger limits the extension of a storm on a machine where repairs have not completed
// enough steps.
const maxLonger = 8 * time.Minute

// keepTime ends the storm when its time is over and repairs have completed enough steps.
func (w *World) keepTime(ctx context.Context) {
	pause(ctx, w.For)
	for end := time.Now().Add(maxLonger); w.lacks() != "" && ctx.Err() == nil && time.Now().Before(end); {
		pause(ctx, 100*time.Millisecond)
	}
	w.halt(errTime)
}

// killAPIServer kills and restarts the API server at random times.
func (w *World) killAPIServer(ctx context.Context, r *rand.Rand) {
	for {
		pause(ctx, time.Duration(12+r.IntN(12))*time.Second)
		if ctx.Err() != nil {
			return
		}
		w.cluster.StopAPIServer()
		pause(ctx, time.Duration(r.IntN(1500))*time.Millisecond)
		if err := w.cluster.StartAPIServer(context.WithoutCancel(ctx)); err != nil {
			w.troubles.add(err)
			w.halt(err)
			return
		}
		w.made.add("API server killed")
	}
}

// keepControllers restarts kube-controllers when it exits, as the kubelet does. It also
// stops it at times, because it would otherwise collect most of the orphans' addresses
// before repairs could.
func (w *World) keepControllers(ctx context.Context, k *testcluster.KubeControllers, r *rand.Rand) {
	for ctx.Err() == nil {
		pause(ctx, time.Second)
		if r.IntN(15) == 0 {
			k.Stop()
			w.made.add("kube-controllers stopped")
			pause(ctx, time.Duration(8+r.IntN(8))*time.Second)
		}
		if ctx.Err() == nil && !k.Running() {
			w.made.add("kube-controllers started again")
			w.tb.Logf("kube-controllers ended, having said:\n%s", lastWords(k.Log()))
			_ = k.Start(ctx) // it needs the API server; retried in a second
		}
	}
}

// lastWords returns the last messages of a program: its panic, or its last line.
func lastWords(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	for i := len(lines) - 1; i >= max(0, len(lines)-2000); i-- {
		if strings.HasPrefix(lines[i], "panic:") || strings.HasPrefix(lines[i], "fatal error:") || strings.Contains(lines[i], "[FATAL]") {
			return strings.Join(lines[i:min(len(lines), i+12)], "\n")
		}
	}
	return lines[len(lines)-1]
}

// keepChecking regularly compares all uses with the history.
func (w *World) keepChecking(ctx context.Context) {
	for {
		pause(ctx, 2*time.Second)
		if ctx.Err() != nil {
			return
		}
		if err := w.checker.Check(context.WithoutCancel(ctx)); err != nil {
			w.halt(fmt.Errorf("judging: %w", err))
			w.troubles.add(err)
		}
	}
}
