package datastore

import (
	"context"
	"crypto/rand"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// term waits for the Lease, writes as long as it is held, and returns when it is
// lost or given back.
func (e *Events) term(ctx context.Context) {
	// The election outlives ctx: the Lease is given back after the last write.
	election, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	leading := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: e.lock, LeaseDuration: e.pace.lease, RenewDeadline: e.pace.renew, RetryPeriod: e.pace.retry,
		ReleaseOnCancel: true, Name: e.opts.Lease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { leading <- ctx },
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
	case held := <-leading:
		writing, cancel := context.WithCancel(held)
		unhook := context.AfterFunc(ctx, cancel)
		e.lead(writing)
		unhook()
		cancel()
	case <-ctx.Done():
	case <-ended:
	}
	e.lock.hurry.Store(ctx.Err() != nil)
	stop()
	<-ended
	select {
	case <-leading: // it was won in the very moment of the end, and given back
	default:
	}
}

// eventLock is the Lease as leader election has it, watched: what fails is said
// once, and when the Lease was last renewed is known.
type eventLock struct {
	*resourcelock.LeaseLock
	events *Events
	// renewed is the time, in Unix nanoseconds, that the last renewal counts from.
	renewed atomic.Int64
	// hurry is set at the end, which must not wait long for a server that is gone.
	hurry atomic.Bool
}

func (e *Events) newLock(cfg *rest.Config) (*eventLock, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // two requests in ten seconds
	c, err := coordination.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &eventLock{events: e, LeaseLock: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: e.opts.Namespace, Name: e.opts.Lease},
		Client:     c,
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.identity},
		Labels:     map[string]string{labelManagedBy: manager},
	}}, nil
}

// held tells whether the Lease is this replica's for certain, and stays so for as
// long as one request may take. Leader election itself notices a loss later: it
// tries to give the Lease back before it says so.
func (l *eventLock) held() bool {
	p := l.events.pace
	return time.Since(time.Unix(0, l.renewed.Load())) < p.lease-p.request
}

// Get is leader election's reading.
func (l *eventLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	r, raw, err := l.LeaseLock.Get(ctx)
	if err == nil && r.HolderIdentity != l.Identity() {
		l.renewed.Store(0)
	}
	if !apierrors.IsNotFound(err) {
		l.note(ctx, "reading", err)
	}
	return r, raw, err
}

// Create is leader election's making of the Lease.
func (l *eventLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	err := l.LeaseLock.Create(ctx, r)
	l.count(&r, err)
	if !apierrors.IsAlreadyExists(err) {
		l.note(ctx, "creating", err)
	}
	return err
}

// Update is leader election's renewing, taking over and giving back.
func (l *eventLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	err := l.LeaseLock.Update(ctx, r)
	l.count(&r, err)
	if !apierrors.IsConflict(err) { // another was faster
		l.note(ctx, "writing", err)
	}
	return err
}

func (l *eventLock) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := l.events.pace.request
	if l.hurry.Load() {
		limit = min(limit, 3*time.Second)
	}
	return context.WithTimeout(ctx, limit)
}

func (l *eventLock) count(r *resourcelock.LeaderElectionRecord, err error) {
	switch {
	case r.HolderIdentity != l.Identity():
		l.renewed.Store(0) // given back, whether or not the answer came
	case err == nil:
		l.renewed.Store(r.RenewTime.UnixNano())
	}
}

func (l *eventLock) note(ctx context.Context, doing string, err error) {
	if err != nil && ctx.Err() != nil && l.hurry.Load() {
		return
	}
	if err != nil {
		l.events.failed.Add(1)
	}
	l.events.troubles.note(troubleLease, doing, string(apierrors.ReasonForError(err)), err,
		"doing", doing, "namespace", l.LeaseMeta.Namespace, "lease", l.LeaseMeta.Name)
}

// randomName tells this process from others on the same host.
func randomName() string { return strings.ToLower(rand.Text()[:10]) }
