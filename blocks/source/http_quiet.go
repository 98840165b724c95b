package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

var (
	// errStalled means that a server was silent, also when asked for its health.
	errStalled = errors.New("the API server does not answer")
	// errSlow means that a server is well but did not answer a request.
	errSlow = errors.New("the API server did not answer in time")
)

// quietWatch ends a request whose server has fallen silent and does not answer
// a question about its health either: a machine that has vanished closes no
// connection. A slow server that does answer is waited for.
type quietWatch struct {
	client *apiClient
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	last   atomic.Int64 // when the last byte came, in nanoseconds since the start
	start  time.Time
}

func (c *apiClient) watchQuiet(parent context.Context) (*quietWatch, context.Context) {
	ctx, cancel := context.WithCancelCause(parent)
	w := &quietWatch{client: c, ctx: ctx, cancel: cancel, start: time.Now()}
	w.timer = time.AfterFunc(c.wait.quiet, w.check)
	return w, ctx
}

// check runs when the server may have been silent for too long.
func (w *quietWatch) check() {
	silent := time.Since(w.start) - time.Duration(w.last.Load())
	if silent < w.client.wait.quiet {
		w.timer.Reset(w.client.wait.quiet - silent)
		return
	}
	switch {
	case silent >= w.client.wait.answer:
		w.cancel(fmt.Errorf("%w: nothing came for %s", errSlow, w.client.wait.answer))
	case w.client.alive(w.ctx) != nil:
		w.cancel(errStalled)
	default:
		w.timer.Reset(w.client.wait.quiet)
	}
}

func (w *quietWatch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// cause says why a request failed: because it was ended here, if so.
func (w *quietWatch) cause(err error) error {
	if c := context.Cause(w.ctx); errors.Is(c, errStalled) || errors.Is(c, errSlow) {
		return c
	}
	return plain(err)
}

// reader wraps a body so that its bytes count as signs of life.
func (w *quietWatch) reader(body io.Reader) io.Reader { return &livelyReader{body, w} }

type livelyReader struct {
	io.Reader
	watch *quietWatch
}

func (r *livelyReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.watch.last.Store(int64(time.Since(r.watch.start)))
	}
	return n, err
}

// alive asks the server for its health. Any answer will do, also one that
// forbids the question.
func (c *apiClient) alive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.wait.probe)
	defer cancel()
	u := *c.base
	u.Path = strings.TrimSuffix(u.Path, "/") + "/livez"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return plain(err)
	}
	return resp.Body.Close()
}

// mourn finds out, after a request failed for good, whether the server as a
// whole is gone. If so, no other request waits for it again.
func (c *apiClient) mourn(ctx context.Context, failed error) error {
	if errors.Is(failed, errStalled) || c.alive(ctx) != nil {
		if ctx.Err() != nil {
			return errors.Join(failed, ctx.Err())
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.dead == nil {
			c.dead = failed
		}
	}
	return failed
}

// gone returns why the server is taken for gone; nil if it is not.
func (c *apiClient) gone() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// revive forgets that the server was gone, for another reading.
func (c *apiClient) revive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead, c.date, c.last = nil, time.Time{}, time.Time{}
}
