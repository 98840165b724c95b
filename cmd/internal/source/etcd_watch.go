package source

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/blocks/etcd"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
)

// EtcdWatch keeps a snapshot of a cluster with Calico's own etcd current: it joins a watch of etcd
// with one of Kubernetes. It is safe for concurrent use.
type EtcdWatch struct {
	*cluster.Watch // nil without Kubernetes
	calico         *etcd.Watch
	log            *slog.Logger
	changed        chan struct{}

	mu     sync.Mutex
	last   *blocks.Snapshot
	failed error // the error of the latest attempt to join
}

// Watch returns a watch in place of the reader, which must not be used afterwards.
func (e *Etcd) Watch(log *slog.Logger) (*EtcdWatch, error) {
	w := &EtcdWatch{calico: etcd.NewWatch(e.calico, e.kubernetes == nil, log), log: log, changed: make(chan struct{}, 1)}
	if e.kubernetes == nil {
		return w, nil
	}
	var err error
	if w.Watch, err = cluster.NewWatch(e.config, cluster.WatchOptions{Log: log, CalicoElsewhere: true}); err != nil {
		return nil, exit.Unread(err)
	}
	return w, nil
}

// Run watches until ctx ends, and then returns nil. It returns an error if etcd cannot be read at
// first, or belongs to another cluster.
func (w *EtcdWatch) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.calico.Run(ctx) })
	others := make(<-chan struct{})
	if w.Watch != nil {
		others = w.Watch.Changed()
		group.Go(func() error { return w.Watch.Run(ctx) })
	}
	group.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-w.calico.Changed():
			case <-others:
			}
			w.Signal()
			if w.Watch == nil {
				continue
			}
			w.Snapshot()
			w.mu.Lock()
			never, err := w.last == nil, w.failed
			w.mu.Unlock()
			if never && err != nil {
				return err
			}
		}
	})
	return group.Wait()
}

// Changed receives a signal after each change of the snapshot, or of its freshness.
func (w *EtcdWatch) Changed() <-chan struct{} { return w.changed }

// Signal sends the same signal.
func (w *EtcdWatch) Signal() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Snapshot returns the newest state; nil until both etcd and Kubernetes have been read. If they no
// longer belong together, it returns the last consistent state, with gaps.
func (w *EtcdWatch) Snapshot() *blocks.Snapshot {
	if w.Watch == nil {
		return w.calico.Snapshot()
	}
	base := w.Watch.Snapshot()
	if base == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s, err := w.calico.Joined(base, w.Pods().ServerTime)
	switch {
	case err != nil && w.failed == nil:
		w.log.Error("Kubernetes and Calico's etcd do not belong together", "error", err)
	case err == nil && s != nil:
		w.last = s
	}
	if w.failed = err; err == nil || w.last == nil {
		return w.last
	}
	last := *w.last
	last.Gaps = slices.Clone(last.Gaps)
	for _, r := range []blocks.Resource{blocks.Nodes, blocks.Pods, blocks.Blocks, blocks.Affinities} {
		last.Gaps = append(last.Gaps, blocks.Gap{Resource: r, Reason: err.Error(), Stale: true})
	}
	slices.SortStableFunc(last.Gaps, blocks.CompareGaps)
	return &last
}

// Reread reads some resources and all of Calico's kinds again, and returns prev with them. It waits
// before: see [settled].
func (w *EtcdWatch) Reread(ctx context.Context, prev *blocks.Snapshot, resources []blocks.Resource, _ []string) (*blocks.Snapshot, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(settled):
	}
	if err := w.calico.CatchUp(ctx); err != nil {
		return nil, exit.Unread(err)
	}
	if w.Watch == nil {
		s := w.calico.Snapshot()
		s.Cluster.TakenAt = prev.Cluster.TakenAt
		return s, nil
	}
	s, err := w.Watch.Reread(ctx, prev, resources, nil)
	if err != nil {
		return nil, err
	}
	if s, err = w.calico.Onto(s, resources); err != nil {
		return nil, exit.Unread(err)
	}
	return s, nil
}

// Restarts counts, by resource, how often a watch had to start again.
func (w *EtcdWatch) Restarts() map[blocks.Resource]uint64 {
	out := map[blocks.Resource]uint64{}
	if w.Watch != nil {
		out = w.Watch.Restarts()
	}
	out[blocks.Blocks] = w.calico.Restarts() // all of etcd's watches start together
	return out
}
