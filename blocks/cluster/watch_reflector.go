package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster/request"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

var (
	// errRelist means that a watch cannot resume where it ended.
	errRelist = errors.New("410 Gone: the watch cannot be resumed where it ended")
	// errUnserved means that a stream was ended because its kind is not served.
	errUnserved = errors.New("not served")
	// errWatch means that a kind may be listed, but not watched.
	errWatch = errors.New("watching")
	// errEnded means that a stream ended early.
	errEnded = errors.New("the API server ended the watch")
	// errMoved means that a stream was ended to restart on another connection.
	errMoved = errors.New("the connection has changed")
)

func (k *reflector) run(ctx context.Context) {
	p := k.w.pace
	r := cache.NewReflectorWithOptions(pages{&cache.ListWatch{ListWithContextFunc: k.listAll, WatchFuncWithContext: k.watch}}, nil, k, cache.ReflectorOptions{
		Name:    string(k.kind.Resource),
		Backoff: &wait.Backoff{Duration: p.backoff, Cap: p.maxBackoff, Steps: 20, Factor: 2, Jitter: 0.25},
	})
	r.RunWithContext(klog.NewContext(ctx, logr.Discard()))
}

// pages keeps the Reflector from using watch-list (client-go tools/cache, watchList), which
// costs more than lists: see the package comment.
type pages struct{ *cache.ListWatch }

func (pages) IsWatchListSemanticsUnSupported() bool { return true }

// listAll lists all objects, once the server serves the kind.
func (k *reflector) listAll(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	for ctx.Err() == nil {
		reason, unserved := k.unserved()
		if !unserved {
			break
		}
		k.drop(reason)
		request.Pause(ctx, time.Hour, k.wake)
	}
	began := time.Now()
	l, err := k.list(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err() // the end of a session is not a failure of the server
	}
	if err != nil {
		request.Pause(ctx, k.failed(err), k.wake)
		return nil, err
	}
	return &metav1.List{
		ListMeta: metav1.ListMeta{ResourceVersion: l.revision},
		Items:    []runtime.RawExtension{{Object: &listedObjects{lister: l, began: began}}},
	}, nil
}

func (k *reflector) list(ctx context.Context) (*lister, error) {
	select {
	case k.w.lists <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-k.w.lists }()
	k.w.client.reset()
	l := k.lister()
	if err := l.run(ctx); err != nil {
		return nil, err
	}
	if l.cause == nil && l.revision == "" {
		l.cause = fmt.Errorf("%w with a resource version", decode.ErrPage)
	}
	return l, l.cause
}

func (k *reflector) lister() *lister {
	strings := k.w.sharing()
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	return &lister{
		client: k.w.client, kind: k.kind, group: k.s.served.group, pageSize: k.w.pageSize, strings: strings, whole: k.s.streams,
	}
}

// unserved reports whether the server is known not to serve the kind, with the reason for
// the gap; "" for no gap.
func (k *reflector) unserved() (string, bool) {
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

// Replace receives a list. It takes effect when its watch is open.
func (k *reflector) Replace(list []any, _ string) error {
	k.listed = list[0].(*listedObjects)
	return nil
}

// Add, Update and Delete receive an event.
func (k *reflector) Add(o any) error    { return k.take(o) }
func (k *reflector) Update(o any) error { return k.take(o) }
func (k *reflector) Delete(o any) error { return k.take(o) }

// Bookmark receives a resourceVersion: all events up to it have been delivered.
func (k *reflector) Bookmark(revision string) error {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	k.pending.Add(-1)
	if k.revision != revision && k.unmet != "" && reached(revision, k.unmet) {
		k.bookmarks = k.bookmarks || time.Since(k.unmetAt) < k.w.pace.bookmarkTimeout
	}
	k.revision = revision
	return nil
}

// Resync does nothing.
func (k *reflector) Resync() error { return nil }

func (k *reflector) take(o any) error {
	c, w := o.(*changedObject), k.w
	w.mu.Lock()
	defer w.mu.Unlock()
	k.pending.Add(-1)
	k.revision = c.ResourceVersion
	if k.store.Put(blocks.Key{Namespace: c.Namespace, Name: c.Name}, c.now) {
		w.dirty = true
		w.Signal()
	}
	return nil
}

// drop discards all objects: the kind is not served, or may not be read.
func (k *reflector) drop(reason string) {
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
	w.Signal()
}

// failed handles a failed list, or the failure of its watch, and returns how long to wait.
func (k *reflector) failed(err error) time.Duration {
	w, code := k.w, codeOf(err)
	l := k.lister()
	w.mu.Lock()
	k.trouble = err
	believed := k.believes(code)
	hopeless := !k.known && time.Since(k.s.began) > w.pace.stalenessTimeout
	w.mu.Unlock()
	switch code {
	case http.StatusForbidden, http.StatusUnauthorized:
		if !believed {
			return w.pace.confirm
		}
		reason := l.reason(err)
		if code == http.StatusForbidden && errors.Is(err, errWatch) {
			reason = "forbidden: needs the right to watch " + l.name()
		}
		k.drop(reason)
		return jitter(w.pace.denied)
	case http.StatusNotFound:
		w.rediscover()
	}
	if hopeless {
		// The other kinds do not have to wait for this one.
		k.drop(l.reason(err))
	}
	return retryAfter(err)
}

// believes reports whether a refusal is believed, so that objects may be discarded. A 403
// is believed only after the staleness timeout, because a starting API server denies
// requests until it has loaded its roles. A 401 says nothing about the objects. Without
// objects, any refusal is believed. The watch must be locked.
func (k *reflector) believes(code int) bool {
	return !k.known || k.absent || code == http.StatusForbidden && k.stale()
}

// trigger ends a pause. If the kind is not served anymore, it also ends the stream.
func (k *reflector) trigger() {
	notify(k.wake)
	if k.stop != nil && !k.s.served.has(k.kind) {
		k.stop(errUnserved)
	}
}

// behind reports whether the objects are older than the snapshot's time: the kind was a gap
// while the others advanced, and has not caught up yet.
func (k *reflector) behind() bool {
	return k.known && !k.absent && k.current.Before(k.w.taken)
}

// stale reports whether the objects have not been known to be current for too long.
func (k *reflector) stale() bool {
	return k.known && !k.absent && time.Since(k.current) > k.w.pace.stalenessTimeout
}

// reached reports whether a resourceVersion is at least as new as another.
func reached(revision, other string) bool {
	order, err := resourceversion.CompareResourceVersion(revision, other)
	return err == nil && order >= 0
}
