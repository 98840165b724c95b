package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/calico-audit/calico-audit/blocks/cluster/request"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// A stream holds the events of one watch request. It never fails: if it can be resumed, it ends as
// if its time had elapsed. Otherwise it ends as expired (410 Gone), so that the Reflector lists
// again only in that case.
type stream struct {
	k      *reflector
	ctx    context.Context
	cancel context.CancelCauseFunc
	body   io.ReadCloser
	events *eventReader
	guard  *time.Timer
	began  time.Time
	life   time.Duration
	group  string
	last   string // resourceVersion of the last event
	over   bool
}

// watch opens a stream of the events after a resourceVersion. It retries until it succeeds,
// unless only a list can help.
func (k *reflector) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	for ; ; k.failures++ {
		if k.failures > 0 {
			request.Pause(ctx, jitter(min(k.w.pace.backoff<<min(k.failures-1, 10), k.w.pace.maxBackoff)), nil)
		}
		s, err := k.open(ctx, o.ResourceVersion)
		if err == nil {
			return watch.NewStreamWatcherWithLogger(logr.Discard(), s, apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "")), nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		k.ended(err)
		wait := retryAfter(err)
		if k.listed != nil {
			err = fmt.Errorf("%w: %w", errWatch, err)
			wait = k.failed(err)
		}
		if request.Pause(ctx, wait, k.wake); k.needsList(err) {
			k.listed = nil
			return nil, err
		}
	}
}

// needsList reports whether a watch that ended with err cannot be resumed, because its
// resourceVersion is too old (410) or invalid for this server (422: k8s.io/apiserver storage,
// ParseResourceVersion). A refused watch is retried from where it ended until the refusal is
// believed. A watch of an unknown kind is retried until discovery confirms that it is not served.
func (k *reflector) needsList(err error) bool {
	switch code := codeOf(err); code {
	case http.StatusGone, http.StatusUnprocessableEntity:
		return true
	case http.StatusUnauthorized, http.StatusForbidden:
		k.w.mu.Lock()
		defer k.w.mu.Unlock()
		return k.believes(code)
	case http.StatusNotFound:
		k.w.rediscover()
		_, unserved := k.unserved()
		return unserved
	default:
		return errors.Is(err, errRelist) || errors.Is(err, errUnserved)
	}
}

// open starts a stream. From then on, the list before it counts.
func (k *reflector) open(ctx context.Context, from string) (*stream, error) {
	life := max(jitter(k.w.pace.streamLifetime).Round(time.Second), time.Second) // the server expects whole seconds
	s := &stream{k: k, began: time.Now(), life: life, last: from}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	// A connection may die silently, without a start or an end of the stream.
	s.guard = time.AfterFunc(k.w.pace.openTimeout, func() { s.cancel(errSlow) })
	l := k.lister()
	body, conn, err := k.w.client.open(s.ctx, l.path(), url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {from},
		"timeoutSeconds": {strconv.Itoa(int(life / time.Second))},
	}, k.kind.Accept(""))
	if err != nil {
		err = because(s.ctx, err)
		s.guard.Stop()
		s.cancel(nil)
		return nil, err
	}
	s.guard.Reset(life + k.w.pace.openTimeout)
	s.body, s.group, s.events = body, l.group, newEventReader(&attentive{body, &k.reads})

	w := k.w
	w.mu.Lock()
	defer w.mu.Unlock()
	k.pending.Store(0)
	if list := k.listed; list != nil {
		k.listed = nil
		k.store.Replace(list.out)
		k.revision, k.current = list.revision, later(k.current, list.began)
		k.known, k.absent, k.missing = true, false, ""
		w.dirty = true
		k.s.settled()
		w.Signal()
	}
	if k.trouble != nil {
		w.log.Info("a watch is open again", "resource", k.kind.Resource)
	}
	k.opened, k.trouble, k.unmet = s.began, nil, ""
	k.stop, k.conn = s.cancel, conn
	notify(w.wakeProbe)
	return s, nil
}

// Decode returns the next event.
func (s *stream) Decode() (watch.EventType, runtime.Object, error) {
	if s.over {
		return "", nil, io.EOF
	}
	e, err := s.events.next()
	var c *changedObject
	if err == nil {
		c, err = s.change(e)
	}
	if err != nil {
		return s.end(err)
	}
	c.ResourceVersion = cmp.Or(c.ResourceVersion, s.last)
	s.last = c.ResourceVersion
	s.k.pending.Add(1)
	return e.what, c, nil
}

func (s *stream) change(e *event) (*changedObject, error) {
	c := &changedObject{now: decode.NewObjects(s.k.kind)}
	c.ObjectMeta = e.meta
	var err error
	switch e.what {
	case watch.Added, watch.Modified:
		if c.now, err = e.decode(s.k.kind, s.group, s.k.w.sharing()); err != nil {
			return nil, fmt.Errorf("%w: %w", errEvent, err)
		}
	case watch.Deleted, watch.Bookmark:
	default:
		return nil, fmt.Errorf("%w: its type is %q", errEvent, parse.Clip(string(e.what)))
	}
	return c, nil
}

// end returns the last event of a stream. Without it, the Reflector would treat a short stream as a
// failure.
func (s *stream) end(err error) (watch.EventType, runtime.Object, error) {
	s.over = true
	lasted := time.Since(s.began)
	switch cause := context.Cause(s.ctx); {
	case errors.Is(cause, errMoved), errors.Is(err, io.EOF) && cause == nil && lasted >= s.life*9/10:
		err = nil
	case cause == nil && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		err = errEnded
	default:
		err = because(s.ctx, err)
	}
	if lasted > s.k.w.pace.propagationDelay && codeOf(err) == 0 {
		s.k.failures = 0
	}
	if err != nil {
		s.k.failures++
	}
	s.k.ended(err)
	if s.k.needsList(err) {
		return watch.Error, &apierrors.NewResourceExpired(err.Error()).ErrStatus, nil
	}
	s.k.pending.Add(1)
	last := &changedObject{}
	last.ResourceVersion = s.last
	return watch.Bookmark, last, nil
}

// Close ends the stream.
func (s *stream) Close() {
	s.guard.Stop()
	s.cancel(context.Canceled)
	_ = s.body.Close()
}

// ended records that a stream has ended, or could not be opened.
func (k *reflector) ended(err error) {
	w := k.w
	w.mu.Lock()
	defer w.mu.Unlock()
	k.opened, k.stop, k.conn = time.Time{}, nil, nil
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	if k.trouble == nil {
		w.log.Info("a watch ended early", "resource", k.kind.Resource, "error", err)
		w.restarts[k.kind.Resource]++
	}
	k.trouble = err
}
