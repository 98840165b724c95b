package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
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
	resp, conn, err := k.request(ctx, from, life)
	if err != nil {
		return because(ctx, err)
	}
	defer resp.Body.Close()
	k.w.mu.Lock()
	k.stop, k.conn = cancel, conn
	group := k.s.served.group
	k.w.mu.Unlock()
	opened()

	began := time.Now()
	ends := began.Add(life + k.w.pace.header)
	guard.Reset(time.Until(ends))
	body := &attentive{resp.Body, &k.reads}
	var events eventReader = &jsonEvents{in: json.NewDecoder(body)}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), protobufType) && k.kind.protobuf() {
		events = &protoEvents{in: body}
	}
	for {
		e, err := events.next()
		switch {
		case errors.Is(err, io.EOF) && time.Since(began) >= life*9/10:
			return nil
		case errors.Is(context.Cause(ctx), errMoved):
			return nil
		case err != nil:
			return because(ctx, err)
		case e.what == "ERROR":
			return e.err()
		case e.what == "BOOKMARK":
			// Where there was one, there will be others: silence means that the stream
			// is dead.
			guard.Reset(min(k.w.pace.silence, time.Until(ends)))
		}
		if err := k.apply(&e, group); err != nil {
			return err
		}
	}
}

// because returns why a request ended: what it was cancelled for, if it was.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the API server ended the watch")
	}
	return plain(err)
}

// request begins a watch.
func (k *keeper) request(ctx context.Context, from string, life time.Duration) (*http.Response, net.Conn, error) {
	k.w.mu.Lock()
	l := &lister{kind: k.kind, group: k.s.served.group}
	k.w.mu.Unlock()
	resp, conn, err := k.w.client.open(ctx, l.path(), url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {from},
		"timeoutSeconds": {strconv.Itoa(int(life / time.Second))},
	}, k.kind.accept(""))
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, nil, answerError(resp)
	}
	return resp, conn, nil
}

// open sends a GET request whose answer the caller reads. The connection is the one
// that HTTP/2 sends all requests by; nil for older HTTP.
func (c *apiClient) open(ctx context.Context, path string, query url.Values, accept string) (*http.Response, net.Conn, error) {
	u := *c.base
	u.Path = strings.TrimSuffix(u.Path, "/") + path
	u.RawQuery = query.Encode()
	var conn atomic.Pointer[net.Conn]
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { conn.Store(&i.Conn) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Accept", accept)
	resp, err := c.http.Do(req)
	if got := conn.Load(); err == nil && resp.ProtoMajor > 1 && got != nil {
		return resp, *got, nil
	}
	return resp, nil, err
}

// answerError is the error that an answer tells.
func answerError(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	a := answer{body: body, mimeType: resp.Header.Get("Content-Type")}
	return &statusError{resp.StatusCode, a.message()}
}

// apply takes over what an event tells.
func (k *keeper) apply(e *event, group string) error {
	meta, err := e.meta()
	if err != nil {
		return fmt.Errorf("%w: %w", errEvent, err)
	}
	now := newObjects(k.kind)
	switch e.what {
	case "ADDED", "MODIFIED":
		if now, err = e.decode(k.kind, group, k.w.sharing()); err != nil {
			return fmt.Errorf("%w: %w", errEvent, err)
		}
	case "DELETED", "BOOKMARK":
	default:
		return fmt.Errorf("%w: its type is %q", errEvent, clip(e.what))
	}
	w := k.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if meta.revision != "" {
		k.revision = meta.revision
	}
	if e.what == "BOOKMARK" {
		return nil
	}
	k.store.put(meta.key, now)
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
		w.log.Info("a watch is open again", "resource", k.kind.resource)
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
		w.log.Info("a watch has ended before its time", "resource", k.kind.resource, "error", err)
		w.restarts[k.kind.resource]++
	}
	k.trouble = err
}
