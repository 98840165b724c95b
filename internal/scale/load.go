package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// A load is a steady stream of changes.
type load struct {
	cancel context.CancelFunc
	began  time.Time
	done   atomic.Int64
	wait   sync.WaitGroup
	mu     sync.Mutex
	err    error
	clean  func(context.Context) error // removes leftovers of the load
}

// workers is the maximum number of concurrent changes.
const workers = 10

// startLoad performs the given number of changes per second, if the cluster can keep up.
// Each worker numbers its own changes.
func startLoad(ctx context.Context, perSecond int, do func(ctx context.Context, worker, n int) error) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{cancel: cancel, began: time.Now()}
	turns := make(chan struct{})
	l.wait.Go(func() {
		defer close(turns)
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			select {
			case turns <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	})
	for worker := range workers {
		l.wait.Go(func() {
			n := 0
			for range turns {
				// Finish a started change even after cancellation, so that the load
				// leaves no half-done changes.
				if err := do(context.WithoutCancel(ctx), worker, n); err != nil {
					l.mu.Lock()
					l.err = errors.Join(l.err, err)
					l.mu.Unlock()
					cancel()
				}
				n++
				l.done.Add(1)
			}
		})
	}
	return l
}

// stop ends the load and returns the real rate of changes per second.
func (l *load) stop() (float64, error) {
	l.cancel()
	did := float64(l.done.Load()) / time.Since(l.began).Seconds()
	l.wait.Wait()
	return did, l.err
}

// patchPods changes an annotation of pods that affects no verdict.
func (r *run) patchPods(ctx context.Context, c *cluster) *load {
	began := time.Now().UnixNano() // makes each value new, because an unchanged value is not a change
	return startLoad(ctx, r.rate, func(ctx context.Context, worker, n int) error {
		at := n*workers + worker
		pod := c.bulk.PodAt(1+at%(c.bulk.Nodes-1), at/c.bulk.Nodes%c.bulk.PodsPerNode)
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.org/touched":"%d-%d"}}}`, began, at)
		_, err := c.Kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// churnPods creates and deletes pods in equal numbers. Calico's own IPAM client assigns
// their addresses.
func (r *run) churnPods(ctx context.Context, c *cluster) *load {
	const live = 10 // per worker
	var pods [workers][]seeding.Pod
	l := startLoad(ctx, r.rate, func(ctx context.Context, worker, n int) error {
		mine := &pods[worker]
		if len(*mine) < live || n%2 == 0 {
			at := n*workers + worker
			pod := c.bulk.PodAt(1+at%(c.bulk.Nodes-1), 0)
			pod.Name = fmt.Sprintf("churn-%02d-%06d", worker, n)
			*mine = append(*mine, pod)
			_, err := c.seeder.Pod(ctx, pod)
			return err
		}
		oldest := (*mine)[0]
		*mine = (*mine)[1:]
		return c.seeder.DeletePod(ctx, oldest.Namespace, oldest.Name, true)
	})
	l.clean = func(ctx context.Context) error {
		var errs []error
		for _, mine := range pods {
			for _, pod := range mine {
				errs = append(errs, c.seeder.DeletePod(ctx, pod.Namespace, pod.Name, true))
			}
		}
		return errors.Join(errs...)
	}
	return l
}

// A probe measures how long the metrics take to show a new pod. It has its own pool.
type probe struct {
	c    *cluster
	pods []seeding.Pod
}

const probePool = "172.30.0.0/22"

func newProbe(ctx context.Context, c *cluster) (*probe, error) {
	onlyByName := apiv3.Manual
	spec := apiv3.IPPoolSpec{CIDR: probePool, BlockSize: blockSize, AssignmentMode: &onlyByName}
	return &probe{c: c}, c.seeder.Pool(ctx, "probe", spec)
}

// latencies creates pods one after the other, and measures how long the metrics take to
// count each pod's address.
func (p *probe) latencies(ctx context.Context, e *exporter, count int, pause time.Duration) (series, error) {
	var out series
	for range count {
		time.Sleep(pause)
		pod := p.c.bulk.PodAt(1, 0)
		pod.Name = fmt.Sprintf("probe-%03d", len(p.pods))
		pod.Annotations = map[string]string{"cni.projectcalico.org/ipv4pools": `["probe"]`}
		if _, err := p.c.seeder.Pod(ctx, pod); err != nil {
			return out, err
		}
		p.pods = append(p.pods, pod)
		began := time.Now()
		for {
			_, _, text, err := e.scrape(ctx)
			if err != nil {
				return out, err
			}
			if v := sample(text, `calico_audit_pool_in_use_addresses{ip_family="IPv4",ippool="probe"}`); v >= float64(len(p.pods)) {
				out.time(time.Since(began))
				break
			}
			if time.Since(began) > 5*time.Minute {
				return out, fmt.Errorf("the metrics do not count pod %s", pod.Name)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	return out, nil
}

// remove deletes the probe's pods, blocks and pool.
func (p *probe) remove(ctx context.Context) error {
	var errs []error
	for _, pod := range p.pods {
		errs = append(errs, p.c.seeder.DeletePod(ctx, pod.Namespace, pod.Name, true))
	}
	errs = append(errs,
		p.c.seeder.ReleaseBlocks(ctx, p.c.node(1), netip.MustParsePrefix(probePool), true),
		p.c.Delete(ctx, testcluster.CRDv1.Resource("ippools"), "", "probe"))
	return errors.Join(errs...)
}
