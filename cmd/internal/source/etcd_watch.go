package source

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// The pace of an EtcdWatch. Kubernetes' part is listed each time, so readings are not closer
// together than readApart; they are at most readAgain apart, for Kubernetes' changes and as proof
// that the state is current.
const (
	readApart = 5 * time.Second
	readAgain = 30 * time.Second
)

// EtcdWatch keeps a snapshot of a cluster with Calico's own etcd current. It reads everything
// again when etcd's watches report a change, and at the latest after [readAgain]. A watch that
// ends, such as after a compaction, leads to a reading, too. It is safe for concurrent use.
type EtcdWatch struct {
	log     *slog.Logger
	changed chan struct{}

	reading sync.Mutex // while etcd is read
	etcd    *Etcd

	mu       sync.Mutex
	last     *blocks.Snapshot
	restarts uint64
}

// NewEtcdWatch returns a watch that reads with e.
func NewEtcdWatch(e *Etcd, log *slog.Logger) *EtcdWatch {
	return &EtcdWatch{log: log, changed: make(chan struct{}, 1), etcd: e}
}

// Run reads and watches until ctx ends, and then returns nil. After a failed reading it tries
// again, and the last snapshot stays. It returns the error of a failed first reading.
func (w *EtcdWatch) Run(ctx context.Context) error {
	defer func() {
		w.reading.Lock()
		defer w.reading.Unlock()
		_ = w.etcd.calico.Close()
	}()
	for {
		began := time.Now()
		watching, stop := context.WithCancel(ctx)
		again, err := w.read(ctx, watching)
		switch {
		case ctx.Err() != nil:
			stop()
			return nil
		case err != nil && w.Snapshot() == nil:
			stop()
			return err
		case err != nil:
			w.log.Warn("reading Calico's etcd failed", "error", err)
		}
		wait(ctx, time.Until(began.Add(readAgain)), again)
		stop() // or the watches of a quiet etcd would add up
		wait(ctx, time.Until(began.Add(readApart)), nil)
		if ctx.Err() != nil {
			return nil
		}
	}
}

// wait waits for a time, a signal or the end of ctx.
func wait(ctx context.Context, d time.Duration, signal <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-signal:
	case <-timer.C:
	}
}

// read reads everything, and returns a channel that is closed when something in etcd has changed
// since, or may have. The watches end with watching.
func (w *EtcdWatch) read(ctx, watching context.Context) (<-chan struct{}, error) {
	w.reading.Lock()
	defer w.reading.Unlock()
	_, err := w.etcd.calico.Connect(ctx)
	var s *blocks.Snapshot
	if err == nil {
		s, err = w.etcd.Read(ctx)
	}
	if err != nil {
		w.mu.Lock()
		w.restarts++
		w.mu.Unlock()
		return nil, err
	}
	w.mu.Lock()
	w.last = s
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
	return w.etcd.calico.Changed(watching, w.etcd.reading)
}

// Changed receives a signal after each reading.
func (w *EtcdWatch) Changed() <-chan struct{} { return w.changed }

// Snapshot returns the last snapshot; nil before the first.
func (w *EtcdWatch) Snapshot() *blocks.Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// Reread reads some resources again.
func (w *EtcdWatch) Reread(ctx context.Context, prev *blocks.Snapshot, resources []blocks.Resource, _ []string) (*blocks.Snapshot, error) {
	w.reading.Lock()
	defer w.reading.Unlock()
	return w.etcd.Reread(ctx, prev, resources)
}

// Restarts counts failed readings.
func (w *EtcdWatch) Restarts() map[blocks.Resource]uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return map[blocks.Resource]uint64{blocks.Blocks: w.restarts}
}
