package workloads

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster/request"
	"github.com/calico-audit/calico-audit/repair"
)

// leases is the API path of the Lease of the run that moves pods.
const leases = "/apis/coordination.k8s.io/v1/namespaces/" + repair.LeaseNamespace + "/leases"

// lease is a run's Lease, which is renewed until it is released.
type lease struct {
	*Client
	holder string
	end    func()
	// writing is locked during a renewal.
	writing sync.Mutex

	mu      sync.Mutex
	now     *coordinationv1.Lease // as last written
	renewed time.Time             // when that write was sent
	lost    error
	ended   chan struct{} // closed when the Lease is lost
}

// AcquireLease acquires the Lease. If another run holds it, AcquireLease watches it for the
// duration within which that run must renew it. If the run renews it, the error is
// [repair.ErrOtherRun]; otherwise AcquireLease takes it over. Only this machine's clock measures
// how long the Lease stays unchanged, because other machines' clocks may be wrong.
func (c *Client) AcquireLease(ctx context.Context, say func(string)) (repair.Lease, error) {
	host, _ := os.Hostname() // without a hostname, the rest of the name suffices
	l := &lease{Client: c, holder: fmt.Sprintf("%s, process %d (%s)", host, os.Getpid(), rand.Text()[:8]), ended: make(chan struct{})}
	var first *coordinationv1.Lease
	var since time.Time
	for {
		now, err := l.read(ctx)
		switch {
		case err != nil:
			return nil, fmt.Errorf("reading the Lease of runs that move pods: %w", err)
		case now == nil || holderOf(now) == "", first != nil && now.ResourceVersion == first.ResourceVersion && time.Since(since) > termOf(now):
			if err = l.write(ctx, now); err == nil {
				l.start()
				c.lease = l
				return l, nil
			}
			if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
				return nil, fmt.Errorf("taking the Lease of the run that moves pods: %w", request.WithoutURL(err))
			}
		case first == nil:
			first, since = now, time.Now()
			say(fmt.Sprintf("%s has the Lease %s/%s, which lets only one run at a time move pods: waiting up to %s to see whether that run is alive",
				holderOf(now), repair.LeaseNamespace, repair.LeaseName, (termOf(now) + c.retry).Round(time.Second)))
		case now.ResourceVersion != first.ResourceVersion:
			return nil, otherRun(now)
		}
		if !c.pause(ctx) {
			return nil, ctx.Err()
		}
	}
}

func otherRun(now *coordinationv1.Lease) error {
	return fmt.Errorf("%w: that of %s (Lease %s/%s)", repair.ErrOtherRun, holderOf(now), repair.LeaseNamespace, repair.LeaseName)
}

func holderOf(now *coordinationv1.Lease) string {
	if now.Spec.HolderIdentity == nil {
		return ""
	}
	return *now.Spec.HolderIdentity
}

// termOf returns how long a Lease may stay unchanged before its holder counts as dead.
func termOf(now *coordinationv1.Lease) time.Duration {
	if now.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	return time.Duration(*now.Spec.LeaseDurationSeconds) * time.Second
}

// start renews the Lease in the background, several times within its duration.
func (l *lease) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var renewing sync.WaitGroup
	renewing.Go(func() {
		tick := time.NewTicker(l.term / 5)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = l.renew(ctx) // Check reports the error if later renewals fail, too
			}
		}
	})
	l.end = func() { cancel(); renewing.Wait() }
}

// left returns how long no other run can take the Lease over. It returns an error if the
// Lease is lost.
func (l *lease) left() (time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term - time.Since(l.renewed), l.lost
}

// Check returns nil if the run certainly held the Lease just now.
func (l *lease) Check(ctx context.Context) error {
	if left, err := l.left(); err == nil && left > l.term/2 {
		return nil
	}
	return l.confirm(ctx)
}

// confirm renews the Lease now. It returns nil if the run still holds it.
func (l *lease) confirm(ctx context.Context) error {
	for try := 1; ; try++ {
		err := l.renew(ctx)
		switch {
		case err == nil, errors.Is(err, repair.ErrOtherRun):
			return err
		case try > 1 && (apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err)):
			return fmt.Errorf("%w to renew its Lease: %w", blocks.ErrDenied, err)
		case try >= tries || !l.pause(ctx):
			return fmt.Errorf("whether another run now moves pods is not known: %w", err)
		}
	}
}

// errExpired means that a request was cancelled.
var errExpired = errors.New("the Lease was not renewed in time, and another run may hold it now")

// holding returns a context that ends with ctx, or as soon as another run may hold the Lease.
func (l *lease) holding(ctx context.Context) (context.Context, context.CancelFunc) {
	own, cancel := context.WithCancelCause(ctx)
	go func() {
		for own.Err() == nil {
			left, err := l.left()
			if err == nil && left <= 0 {
				err = errExpired
			}
			if err != nil {
				cancel(err)
				return
			}
			timer := time.NewTimer(left)
			select {
			case <-timer.C: // it may have been renewed meanwhile
			case <-l.ended:
			case <-own.Done():
			}
			timer.Stop()
		}
	}()
	return own, func() { cancel(nil) }
}

// renew writes the Lease. If another run holds it, the Lease is lost for good.
func (l *lease) renew(ctx context.Context) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.lost != nil { // set only below
		return l.lost
	}
	err := l.write(ctx, l.now)
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return request.WithoutURL(err)
	}
	now, err := l.read(ctx)
	switch {
	case err != nil:
		return err
	case now != nil && holderOf(now) != l.holder:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lost = otherRun(now)
		close(l.ended)
		return l.lost
	}
	return request.WithoutURL(l.write(ctx, now)) // it was written but the answer was lost, or someone deleted it
}

// write creates the Lease, or takes over the given version.
func (l *lease) write(ctx context.Context, over *coordinationv1.Lease) error {
	next := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: repair.LeaseNamespace, Name: repair.LeaseName}}
	r := l.rest.Post().AbsPath(leases)
	if over != nil {
		next = over.DeepCopy()
		r = l.rest.Put().AbsPath(leases, repair.LeaseName)
	}
	at, seconds := metav1.NowMicro(), int32(max(l.term.Seconds(), 1))
	if holderOf(next) != l.holder {
		next.Spec.AcquireTime = &at
	}
	next.Spec.HolderIdentity, next.Spec.LeaseDurationSeconds, next.Spec.RenewTime = &l.holder, &seconds, &at
	sent, got := time.Now(), &coordinationv1.Lease{}
	err := r.Body(next).MaxRetries(0).Timeout(l.term).Do(ctx).Into(got)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.now, l.renewed = got, sent
	}
	return err
}

// read reads the Lease. It returns nil if it does not exist.
func (l *lease) read(ctx context.Context) (*coordinationv1.Lease, error) {
	now := &coordinationv1.Lease{}
	err := l.try(ctx, now, func() *rest.Request { return l.rest.Get().AbsPath(leases, repair.LeaseName) })
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return now, err
}

// Release deletes the Lease. If that fails, the next run waits until it expires.
func (l *lease) Release() {
	l.end()
	l.lease = nil
	if l.lost != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.term)
	defer cancel()
	for range tries {
		err := l.rest.Delete().AbsPath(leases, repair.LeaseName).MaxRetries(0).Body(&metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &l.now.UID, ResourceVersion: &l.now.ResourceVersion},
		}).Do(ctx).Error()
		if !apierrors.IsConflict(err) {
			return
		}
		// A concurrent renewal succeeded after all.
		now, err := l.read(ctx)
		if err != nil || now == nil || holderOf(now) != l.holder {
			return
		}
		l.now = now
	}
}
