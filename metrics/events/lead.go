package events

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// giveBack bounds giving the Lease back at the end, which must not wait long for an
// API server that is gone.
const giveBack = 6 * time.Second

// term waits for the Lease, writes as long as it is held, and returns when it is
// lost or given back.
func (w *Writer) term(ctx context.Context) {
	// The election outlives ctx: the Lease is given back after the last write.
	election, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	won := make(chan context.Context, 1)
	lease := &lock{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: w.opts.Namespace, Name: w.opts.Lease},
			Client:     w.leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: w.identity},
			Labels:     map[string]string{labelManagedBy: component},
		},
		writer: w, run: ctx,
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          lease,
		LeaseDuration: w.pace.lease, RenewDeadline: w.pace.renew, RetryPeriod: w.pace.retry, ReleaseOnCancel: true, Name: w.opts.Lease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { won <- ctx },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		panic(err) // the settings are constants
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// What it logs by itself says every failure every time.
		elector.Run(klog.NewContext(election, logr.Discard()))
	}()
	select {
	case current := <-won:
		writing, cancel := context.WithCancel(current)
		defer context.AfterFunc(ctx, cancel)()
		w.lead(writing, func() bool { return elector.IsLeader() && lease.current() })
		cancel()
	case <-ctx.Done():
	}
	stop()
	var late <-chan time.Time
	if ctx.Err() != nil {
		late = time.After(giveBack)
	}
	select {
	case <-ended:
	case <-late:
	}
}

// lock is the Lease as leader election has it. What fails is counted, and said once.
type lock struct {
	resourcelock.Interface
	writer  *Writer
	run     context.Context           // at its end there is no other try
	renewed atomic.Pointer[time.Time] // when the last renewal that succeeded was sent
}

// current reports whether no other replica can have the Lease for as long as a request may
// take, since the renewal deadline has not passed. The elector itself is later to notice a
// loss: it counts from when it last read a Lease that had changed, by its own renewal as
// well (LeaderElector.Check), and tries to give the Lease back before it says so.
func (l *lock) current() bool {
	renewed := l.renewed.Load()
	return renewed != nil && time.Since(*renewed) < l.writer.pace.renew
}

// Get is leader election's reading.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, raw, err := l.Interface.Get(ctx)
	l.note("reading", err, apierrors.IsNotFound)
	return r, raw, err
}

// Create is leader election's making of the Lease.
func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write("creating", l.Interface.Create(ctx, r), r, apierrors.IsAlreadyExists)
}

// Update is leader election's renewing, taking over and giving back.
func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write("writing", l.Interface.Update(ctx, r), r, apierrors.IsConflict) // another was faster
}

// write records how a write of the Lease went. The record has the time before it was sent.
func (l *lock) write(doing string, err error, r resourcelock.LeaderElectionRecord, usual func(error) bool) error {
	if err == nil && r.HolderIdentity != "" { // else it was given back
		l.renewed.Store(&r.RenewTime.Time)
	}
	l.note(doing, err, usual)
	return err
}

func (l *lock) note(doing string, err error, usual func(error) bool) {
	if !usual(err) {
		o := l.writer.opts
		l.writer.went(l.run, troubleLease, doing, err, "doing", doing, "namespace", o.Namespace, "lease", o.Lease)
	}
}

// lead writes Events while the Lease is held, until ctx ends, which is when it is lost or
// given back.
func (w *Writer) lead(ctx context.Context, current func() bool) {
	w.leading.Store(true)
	w.opts.Log.Info("This replica writes Events now", "identity", w.identity)
	defer func() {
		w.leading.Store(false)
		w.waiting.Store(0)
		w.opts.Log.Info("This replica writes no Events any more", "identity", w.identity)
	}()
	var (
		b     *board // nil until it is read
		pause = w.pace.backoff
		token bool // the rate limit allows one Event
		said  bool // it was said that Events are held back
	)
	fail := func() {
		sleep(ctx, pause)
		pause = min(2*pause, w.pace.most)
	}
	for ctx.Err() == nil {
		wants := w.wants.Load()
		if wants == nil || !current() {
			w.idle(ctx, w.pace.retry/4)
			continue
		}
		if b == nil {
			if b = w.load(ctx); b == nil {
				fail()
				continue
			}
		}
		task, due, wait := b.next(wants, w.pace, w.opts.Refresh, time.Now())
		w.waiting.Store(int64(due))
		if task == nil {
			said = false
			w.idle(ctx, wait)
			continue
		}
		if token = token || w.limiter.TryAccept(); !token {
			if !said {
				said = true
				w.opts.Log.Info("The rate limit holds Events back; the worst are written first", "waiting", due)
			}
			token = w.limiter.Wait(ctx) == nil
			continue // something worse may have come meanwhile
		}
		token = false
		switch w.write(ctx, b, task) {
		case done:
			pause = w.pace.backoff
		case lost:
			b = nil
			fail()
		case failed:
			fail()
		}
	}
}

// idle waits for another audit, but no longer than d.
func (w *Writer) idle(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(max(d, time.Millisecond))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-w.wake:
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
