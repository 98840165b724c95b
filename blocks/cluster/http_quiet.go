package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

var (
	// errStalled means that a server was silent, also when asked for its health.
	errStalled = errors.New("the API server does not answer")
	// errSlow means that a server is well but did not answer a request.
	errSlow = errors.New("the API server did not answer in time")
)

// watchQuiet ends a request whose server has fallen silent and does not answer
// a question about its health either: a machine that has vanished closes no
// connection, and client-go's pings of HTTP/2 notice that after 45 seconds only. A
// slow server that does answer is waited for. heard is to be called when bytes come.
func (c *apiClient) watchQuiet(ctx context.Context, cancel context.CancelCauseFunc) (heard func()) {
	start := time.Now()
	var last atomic.Int64 // when bytes came, in nanoseconds since the start
	go func() {
		for left := c.wait.quiet; ; {
			pause(ctx, left, nil)
			if ctx.Err() != nil {
				return
			}
			silent := time.Since(start) - time.Duration(last.Load())
			left = c.wait.quiet - silent
			switch {
			case left > 0:
				continue
			case silent >= c.wait.answer:
				cancel(fmt.Errorf("%w: nothing came for %s", errSlow, c.wait.answer))
			case c.alive(ctx) != nil:
				cancel(errStalled)
			}
			left = c.wait.quiet
		}
	}()
	return func() { last.Store(int64(time.Since(start))) }
}

// alive asks the server for its health. Any answer will do, also one that
// forbids the question.
func (c *apiClient) alive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.wait.probe)
	defer cancel()
	body, err := answerOf(ctx, c.rest.Get().AbsPath("/livez").MaxRetries(0), nil)
	if err == nil {
		return body.Close()
	}
	if err = plain(err); codeOf(err) != 0 {
		return nil
	}
	return err
}

// markUnavailable finds out, after a request failed for good, whether the server as a
// whole is away. If so, no other request waits for it again until reset.
func (c *apiClient) markUnavailable(ctx context.Context, failed error) {
	if errors.Is(failed, errStalled) || c.alive(ctx) != nil && ctx.Err() == nil {
		c.errUnavailable.CompareAndSwap(nil, &failed)
	}
}

// apart returns a client whose failures are not those of c.
func (c *apiClient) apart() *apiClient {
	return &apiClient{rest: c.rest, pods: c.pods, clock: c.clock, wait: c.wait}
}

// reset forgets that the server was unavailable, and what its clock showed, for another
// reading.
func (c *apiClient) reset() {
	c.errUnavailable.Store(nil)
	c.clock.reset()
}
