package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/calico-audit/calico-audit/blocks/cluster/request"
)

var (
	// errStalled means that a server was silent, and did not answer a health probe either.
	errStalled = errors.New("the API server does not answer")
	// errSlow means that a server is healthy but did not answer a request in time.
	errSlow = errors.New("the API server did not answer in time")
)

// watchQuiet cancels a request if the server falls silent and fails a health probe. A
// machine that vanishes closes no connections, and client-go's HTTP/2 pings take 45 seconds
// to notice. Slow servers that pass the probe get more time. Call heard for arriving bytes.
func (c *apiClient) watchQuiet(ctx context.Context, cancel context.CancelCauseFunc) (heard func()) {
	start := time.Now()
	var last atomic.Int64 // time of the last bytes, in nanoseconds since start
	go func() {
		for left := c.wait.quiet; ; {
			request.Pause(ctx, left, nil)
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

// alive probes the server's health. Any response counts as healthy, even 403.
func (c *apiClient) alive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.wait.probe)
	defer cancel()
	body, err := request.Stream(ctx, c.rest.Get().AbsPath("/livez").MaxRetries(0), nil)
	if err == nil {
		return body.Close()
	}
	if codeOf(err) != 0 {
		return nil
	}
	return err
}

// markUnavailable probes, after a request failed permanently, whether the whole server is
// unavailable. If so, all requests fail immediately until reset.
func (c *apiClient) markUnavailable(ctx context.Context, failed error) {
	if errors.Is(failed, errStalled) || c.alive(ctx) != nil && ctx.Err() == nil {
		c.errUnavailable.CompareAndSwap(nil, &failed)
	}
}
