package query

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/calico-audit/calico-audit/audit/runway"
)

// How often the past is read, and how long it is used where it cannot be read again: what
// is estimated from a month is hardly another a day later.
const (
	watchInterval = 15 * time.Minute
	retryInterval = time.Minute
	watchMaxAge   = 24 * time.Hour
)

// Watch keeps the past of pools, read again and again.
type Watch struct {
	client *Client
	log    *slog.Logger
	last   atomic.Pointer[reading]
}

type reading struct {
	history *runway.History
	at      time.Time
}

// NewWatch returns a watch of what a client reads.
func NewWatch(c *Client, log *slog.Logger) *Watch { return &Watch{client: c, log: log} }

// Run reads until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	for ctx.Err() == nil {
		next, now := watchInterval, time.Now()
		h, err := w.client.History(ctx, now)
		switch {
		case err == nil:
			w.last.Store(&reading{h, now})
		case ctx.Err() == nil:
			next = retryInterval
			w.log.Warn("no runway is known of what is new: the past of pools could not be read", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(next):
		}
	}
}

// Last returns the past as last read, and when; nil if it is not known.
func (w *Watch) Last() (*runway.History, time.Time) {
	r := w.last.Load()
	if r == nil || time.Since(r.at) > watchMaxAge {
		return nil, time.Time{}
	}
	return r.history, r.at
}
