package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/calico-audit/calico-audit/blocks/decode"
)

// A keeper keeps the objects of one kind current: it lists them, follows the watch
// that begins where the list ended, and begins again when that breaks.
type keeper struct {
	w    *Watch
	s    *session
	kind *decode.Kind
	wake chan struct{} // ends a pause
	// reads counts when the stream began to wait for bytes and when it had some, so
	// that it is odd while it waits.
	reads atomic.Uint64

	// What follows is guarded by the watch's mutex.
	store    *decode.ObjectStore
	known    bool                    // listed once, or known not to be there
	absent   bool                    // known not to be there, or not to be read
	missing  string                  // why not; empty for a kind that need not be there
	revision string                  // resource version of the last event
	opened   time.Time               // when the stream began; zero if there is none
	current  time.Time               // up to when the objects are known to be current
	trouble  error                   // what keeps the stream from being open
	stalled  string                  // the gap of being out of date for too long, while it lasts
	stop     context.CancelCauseFunc // ends the stream
	conn     net.Conn                // that carries the stream, for HTTP/2
}

var (
	// errExpired means that a watch cannot be taken up where it ended.
	errExpired = errors.New("the watch cannot be taken up where it ended")
	// errUnserved means that a stream was ended because its kind is not served.
	errUnserved = errors.New("not served")
	// errWatch means that a kind may be listed, but not watched.
	errWatch = errors.New("watching")
	// errMoved means that a stream was ended to be begun on another connection.
	errMoved = errors.New("the connection has changed")
)

func (k *keeper) run(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		if reason, unserved := k.unserved(); unserved {
			k.drop(reason)
			pause(ctx, time.Hour, k.wake)
			continue
		}
		opened, err := k.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if opened {
			failures = 0
		}
		failures++
		wait := jitter(min(k.w.pace.retry<<min(failures-1, 10), k.w.pace.longest))
		if k.refused(err) {
			wait = jitter(k.w.pace.denied)
		}
		pause(ctx, wait, k.wake)
	}
}

// unserved tells whether the server is known not to serve the kind, and the gap that
// this makes.
func (k *keeper) unserved() (string, bool) {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	if k.s.served.has(k.kind) {
		return "", false
	}
	if gaps := k.s.served.absence(k.kind).Gaps; len(gaps) > 0 {
		return gaps[0].Reason, true
	}
	return "", true
}

// follow lists the objects and follows their changes until only another list helps.
// It tells whether a watch was open at all.
func (k *keeper) follow(ctx context.Context) (opened bool, err error) {
	began := time.Now()
	l, err := k.list(ctx)
	if err != nil {
		return false, err
	}
	from, failures := l.revision, 0
	for {
		stream := time.Now()
		err = k.stream(ctx, from, func() {
			if l != nil {
				k.Take(l, began)
				l, opened = nil, true
			}
			k.open()
		})
		k.close(ctx, err)
		switch code := codeOf(err); {
		case ctx.Err() != nil:
			return opened, ctx.Err()
		case err == nil:
			failures = 0
		case l != nil:
			return opened, fmt.Errorf("%w: %w", errWatch, err)
		case errors.Is(err, errUnserved), code >= 400 && code < 500 && code != http.StatusTooManyRequests:
			return opened, errExpired // the list will tell
		case time.Since(stream) > k.w.pace.settle && code == 0:
			failures = 0
		}
		if err != nil {
			pause(ctx, jitter(min(k.w.pace.retry<<min(failures, 10), k.w.pace.longest)), nil)
			failures++
		}
		k.w.mu.Lock()
		from = k.revision
		stale := k.stale()
		k.w.mu.Unlock()
		if stale {
			// Whoever was away for long reads everything again, and then knows that
			// nothing is left to come.
			return opened, errExpired
		}
	}
}

// list reads all objects.
func (k *keeper) list(ctx context.Context) (*lister, error) {
	select {
	case k.w.lists <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-k.w.lists }()
	k.w.mu.Lock()
	group := k.s.served.group
	k.w.mu.Unlock()
	k.w.client.reset()
	l := &lister{
		client: k.w.client, kind: k.kind, group: group, pageSize: k.w.pageSize, strings: k.w.sharing(), progress: func(Progress) {},
	}
	if err := l.run(ctx); err != nil {
		return nil, err
	}
	if l.cause == nil && l.revision == "" {
		l.cause = fmt.Errorf("%w with a resource version", decode.ErrPage)
	}
	return l, l.cause
}

// Take puts what a list holds in the place of all objects. It was begun at a time.
func (k *keeper) Take(l *lister, began time.Time) {
	w := k.w
	w.mu.Lock()
	defer w.mu.Unlock()
	k.store.Replace(l.out)
	k.revision, k.current = l.revision, later(k.current, began)
	k.known, k.absent, k.missing = true, false, ""
	w.dirty = true
	k.s.settled()
	w.signal()
}

// drop forgets all objects: the kind is not there, or must not be read.
func (k *keeper) drop(reason string) {
	w := k.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if k.known && k.absent && k.missing == reason {
		return
	}
	if reason != "" {
		w.log.Warn("a resource cannot be watched", "resource", k.kind.Resource, "reason", reason)
	}
	k.store.Replace(decode.NewObjects(k.kind))
	k.revision = ""
	k.known, k.absent, k.missing = true, true, reason
	w.dirty = true
	k.s.settled()
	w.signal()
}

// refused deals with an error that made the keeper begin again. It tells whether the
// server refuses to serve the kind, so that there is no hurry.
func (k *keeper) refused(err error) bool {
	w := k.w
	w.mu.Lock()
	l := &lister{kind: k.kind, group: k.s.served.group}
	k.trouble = err
	hopeless := !k.known && time.Since(k.s.began) > w.pace.patience
	w.mu.Unlock()
	switch code := codeOf(err); {
	case code == http.StatusForbidden && errors.Is(err, errWatch):
		k.drop("forbidden: needs the right to watch " + l.name())
		return true
	case code == http.StatusForbidden, code == http.StatusUnauthorized:
		k.drop(l.reason(err))
		return true
	case code == http.StatusNotFound:
		w.rediscover()
	}
	if hopeless {
		// The other kinds need not wait for this one.
		k.drop(l.reason(err))
	}
	return false
}

// poke ends a pause, and a stream whose kind is not served any more.
func (k *keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
	if k.stop != nil && !k.s.served.has(k.kind) {
		k.stop(errUnserved)
	}
}

// behind tells whether the objects are those of an older time than the snapshot's:
// the kind was a gap while the others went on, and has yet to catch up.
func (k *keeper) behind() bool {
	return k.known && !k.absent && k.current.Before(k.w.taken)
}

// stale tells whether the objects have not been known to be current for too long.
func (k *keeper) stale() bool {
	return k.known && !k.absent && time.Since(k.current) > k.w.pace.patience
}
