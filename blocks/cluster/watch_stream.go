package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/calico-audit/calico-audit/blocks/decode"
)

// stream watches from a resource version on, until the stream ends: nil if it was
// the end that had been asked for. opened is called once it is open.
func (k *keeper) stream(ctx context.Context, from string, opened func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	life := max(jitter(k.w.pace.life).Round(time.Second), time.Second) // the server counts seconds
	// A connection that has died without a word gives neither a beginning nor an end.
	guard := time.AfterFunc(k.w.pace.header, func() { cancel(errSlow) })
	defer guard.Stop()
	stream, conn, err := k.request(ctx, from, life)
	if err != nil {
		return because(ctx, err)
	}
	defer stream.Close()
	k.w.mu.Lock()
	k.stop, k.conn = cancel, conn
	group := k.s.served.group
	k.w.mu.Unlock()
	opened()

	began := time.Now()
	ends := began.Add(life + k.w.pace.header)
	guard.Reset(time.Until(ends))
	events := newEventReader(&attentive{stream, &k.reads})
	for {
		e, err := events.next()
		switch {
		case errors.Is(err, io.EOF) && time.Since(began) >= life*9/10:
			return nil
		case errors.Is(context.Cause(ctx), errMoved):
			return nil
		case ctx.Err() == nil && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
			return errors.New("the API server ended the watch")
		case err != nil:
			return because(ctx, err)
		case e.what == watch.Bookmark:
			// Where there was one, there will be others: silence means that the stream
			// is dead.
			guard.Reset(min(k.w.pace.silence, time.Until(ends)))
		}
		if err := k.apply(e, group); err != nil {
			return err
		}
	}
}

// request begins a watch.
func (k *keeper) request(ctx context.Context, from string, life time.Duration) (io.ReadCloser, net.Conn, error) {
	k.w.mu.Lock()
	l := &lister{kind: k.kind, group: k.s.served.group}
	k.w.mu.Unlock()
	return k.w.client.open(ctx, l.path(), url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {from},
		"timeoutSeconds": {strconv.Itoa(int(life / time.Second))},
	}, k.kind.Accept(""))
}

// open sends a GET request whose answer the caller reads. The connection is the one
// that HTTP/2 sends all requests by; nil for older HTTP.
func (c *apiClient) open(ctx context.Context, path string, query url.Values, accept string) (io.ReadCloser, net.Conn, error) {
	var conn atomic.Pointer[net.Conn]
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { conn.Store(&i.Conn) }})
	stream, err := c.request(path, query, accept).MaxRetries(0).Stream(ctx)
	if err != nil {
		return nil, nil, plain(err)
	}
	if got := conn.Load(); got != nil {
		if t, ok := (*got).(*tls.Conn); ok && t.ConnectionState().NegotiatedProtocol == "h2" {
			return stream, *got, nil
		}
	}
	return stream, nil, nil
}

// apply takes over what an event tells.
func (k *keeper) apply(e *event, group string) error {
	now, err := decode.NewObjects(k.kind), error(nil)
	switch e.what {
	case watch.Added, watch.Modified:
		if now, err = e.decode(k.kind, group, k.w.sharing()); err != nil {
			return fmt.Errorf("%w: %w", errEvent, err)
		}
	case watch.Deleted, watch.Bookmark:
	default:
		return fmt.Errorf("%w: its type is %q", errEvent, decode.Clip(string(e.what)))
	}
	w := k.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.meta.ResourceVersion != "" {
		k.revision = e.meta.ResourceVersion
	}
	if e.what == watch.Bookmark {
		return nil
	}
	k.store.Put(e.key(), now)
	w.dirty = true
	w.signal()
	return nil
}

// open takes note that a stream has begun.
func (k *keeper) open() {
	w := k.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if k.trouble != nil {
		w.log.Info("a watch is open again", "resource", k.kind.Resource)
	}
	k.opened, k.trouble = time.Now(), nil
	select {
	case w.wakeBeat <- struct{}{}:
	default:
	}
}

// close takes note that a stream has ended, or could not be begun.
func (k *keeper) close(ctx context.Context, err error) {
	w := k.w
	w.mu.Lock()
	defer w.mu.Unlock()
	k.opened, k.stop, k.conn = time.Time{}, nil, nil
	if err == nil || ctx.Err() != nil {
		return
	}
	if k.trouble == nil {
		w.log.Info("a watch has ended before its time", "resource", k.kind.Resource, "error", err)
		w.restarts[k.kind.Resource]++
	}
	k.trouble = err
}
