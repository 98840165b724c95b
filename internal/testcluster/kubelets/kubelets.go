// Package kubelets plays the kubelets of a test cluster, so that its scheduler and
// controllers (testcluster's StartScheduler and StartControllerManager) have nodes to
// work with. No container runs, but other components see the same objects as in a real
// cluster:
//
//   - A pod bound to an existing node gets its addresses from Calico's own IPAM client, in
//     its own sandbox, as from the node's CNI plugin. A node handles one pod at a time.
//     Then the pod is Running and Ready. Without an address it stays Pending and is
//     retried.
//   - A deleted pod ends after its grace period, which is shortened. Its addresses are
//     released by handle, then it is removed.
//   - Nodes report heartbeats.
//
// Kubelets that come after others ([Options].After) know the sandboxes that run, as from their
// container runtimes. They end a sandbox whose pod the API server does not know, and start one for
// a pod that has none, whatever its status says.
package kubelets

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// Options sets durations. Zero means the default.
type Options struct {
	// StartUp is the time from a pod's address until it is ready; default 200ms.
	StartUp time.Duration
	// Grace limits a pod's grace period; default 200ms.
	Grace time.Duration
	// Retry is the time until a pod without an address is retried; default 500ms.
	Retry time.Duration
	// After are stopped kubelets of the same nodes, whose sandboxes still run. Without it, the
	// pods' annotations show which sandboxes run.
	After *Kubelets
}

// Kubelets plays the kubelets of all nodes.
type Kubelets struct {
	seeder *seeding.Seeder
	opts   Options
	pods   cache.Indexer
	nodes  cache.Indexer
	queue  workqueue.TypedRateLimitingInterface[podID]

	restarts  int // how many kubelets came before ([Options].After)
	mu        sync.Mutex
	sandboxes map[types.UID]*sandbox
	locks     map[string]*sync.Mutex // by node
	errors    []string

	stop func()
}

// podID identifies a pod, unlike a later pod with the same name.
type podID struct {
	name cache.ObjectName
	uid  types.UID
}

// sandbox is the record of a pod on its node. Only one worker uses it at a time.
type sandbox struct {
	id    string
	pod   *corev1.Pod
	addrs []netip.Addr
	// up is when the network was set up; ending is when the deletion was seen. Zero means
	// not yet.
	up, ending time.Time
	running    bool
	waiting    bool // the pod's status shows it
	down       bool // the network was torn down for good
	ended      bool
}

// workers is the maximum number of pods processed at a time.
const workers = 8

// Start plays the kubelets of all nodes, including later ones, until the test ends or
// Stop is called. If the test fails, it logs their last errors.
func Start(tb testing.TB, s *seeding.Seeder, opts Options) *Kubelets {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	factory := informers.NewSharedInformerFactory(s.Cluster.Kube, 0)
	pods, nodes := factory.Core().V1().Pods().Informer(), factory.Core().V1().Nodes().Informer()
	k := &Kubelets{
		seeder: s, pods: pods.GetIndexer(), nodes: nodes.GetIndexer(),
		opts: Options{
			StartUp: orDefault(opts.StartUp, 200*time.Millisecond), Grace: orDefault(opts.Grace, 200*time.Millisecond),
			Retry: orDefault(opts.Retry, 500*time.Millisecond),
		},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[podID](50*time.Millisecond, 5*time.Second)),
		sandboxes: map[types.UID]*sandbox{}, locks: map[string]*sync.Mutex{},
	}
	if before := opts.After; before != nil {
		k.restarts = before.restarts + 1
		for uid, box := range before.sandboxes {
			if !box.down && !box.up.IsZero() {
				k.sandboxes[uid] = box
			}
		}
	}
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    k.enqueue,
		UpdateFunc: func(_, object any) { k.enqueue(object) },
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			k.enqueue(object)
		},
	})
	if err != nil {
		cancel()
		tb.Fatalf("playing kubelets: %v", err)
	}
	factory.Start(ctx.Done())
	var work sync.WaitGroup
	k.stop = sync.OnceFunc(func() {
		cancel()
		k.queue.ShutDown()
		work.Wait()
		factory.Shutdown()
	})
	tb.Cleanup(func() {
		k.Stop()
		if tb.Failed() {
			tb.Logf("the kubelets' last errors: %q", k.Errors())
		}
	})
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced, nodes.HasSynced) {
		tb.Fatal("playing kubelets: pods and nodes could not be read")
	}
	for uid, box := range k.sandboxes {
		k.queue.Add(podID{cache.MetaObjectToName(box.pod), uid})
	}
	for range workers {
		work.Go(func() { k.work(ctx) })
	}
	work.Go(func() { k.heartbeats(ctx) })
	return k
}

func orDefault(d, other time.Duration) time.Duration {
	if d == 0 {
		return other
	}
	return d
}

// Stop stops the kubelets and waits for their goroutines. Pods stay as they are. Stop may
// be called twice.
func (k *Kubelets) Stop() { k.stop() }

// Errors returns the last errors of retried operations.
func (k *Kubelets) Errors() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string(nil), k.errors...)
}

func (k *Kubelets) enqueue(object any) {
	if pod, ok := object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		k.queue.Add(podID{cache.MetaObjectToName(pod), pod.UID})
	}
}

func (k *Kubelets) work(ctx context.Context) {
	for {
		id, shutdown := k.queue.Get()
		if shutdown {
			return
		}
		if err := k.sync(ctx, id); err == nil {
			k.queue.Forget(id)
		} else if ctx.Err() == nil {
			k.note(fmt.Errorf("pod %s: %w", id.name, err))
			k.queue.AddRateLimited(id)
		}
		k.queue.Done(id)
	}
}

func (k *Kubelets) note(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.errors = append(k.errors[max(0, len(k.errors)-9):], err.Error())
}

// heartbeats renews the nodes' heartbeats every ten seconds, as kubelets do.
func (k *Kubelets) heartbeats(ctx context.Context) {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		if err := k.seeder.Cluster.Heartbeat(ctx); err != nil && ctx.Err() == nil {
			k.note(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// newID returns the ID of a new sandbox of a pod. Without [Options].After it depends only on the
// pod, so that restarted kubelets recognise earlier sandboxes.
func (k *Kubelets) newID(uid types.UID) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s%d", uid, k.restarts))
	return hex.EncodeToString(sum[:])
}
