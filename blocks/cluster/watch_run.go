package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/calico-audit/calico-audit/blocks"
)

// Run watches until ctx ends, and then returns nil. It retries forever. It returns an error
// only if the watch is already running or has run.
func (w *Watch) Run(ctx context.Context) error {
	w.mu.Lock()
	ran := w.running
	w.running = true
	w.mu.Unlock()
	if ran {
		return errors.New("watching the cluster: this watch runs already, or has run")
	}
	var probes sync.WaitGroup
	probes.Go(func() { w.probeFor(ctx) })
	w.discoverFor(ctx)
	probes.Wait()
	w.conns.CloseAll()
	w.client.rest.Client.CloseIdleConnections()
	return nil
}

// Reread is [Kubernetes.Reread]: it lists the given resources, and returns prev with their
// objects replaced. It returns an error if Calico's API group has changed since prev.
// Nodes' agents are not asked.
func (w *Watch) Reread(ctx context.Context, prev *blocks.Snapshot, rs []blocks.Resource, _ []string) (*blocks.Snapshot, error) {
	w.rereading.Lock()
	defer w.rereading.Unlock()
	k := &Kubernetes{
		client:   w.client.apart(),
		pageSize: w.pageSize, whole: w.whole, override: w.override, elsewhere: w.elsewhere,
	}
	if err := k.discover(ctx); err != nil {
		return nil, err
	}
	if !w.elsewhere && k.served.group != prev.Cluster.APIGroup {
		w.rediscover()
		return nil, fmt.Errorf("reading the cluster again: Calico's objects have moved from %s to %s", prev.Cluster.APIGroup, k.served.group)
	}
	return k.Reread(ctx, prev, rs)
}
