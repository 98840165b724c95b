package query

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/calico-audit/calico-audit/audit/runway"
)

// How often the history is read, and how long it is used if it cannot be read again. A day
// hardly changes an estimate over a month.
const (
	watchInterval = 15 * time.Minute
	retryInterval = time.Minute
	watchMaxAge   = 24 * time.Hour
)

// Watch reads the history of pools periodically.
type Watch struct {
	client *Client
	log    *slog.Logger
	last   atomic.Pointer[reading]
}

type reading struct {
	history *runway.History
	at      time.Time
}

// NewWatch returns a watch that uses a client.
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

// Last returns the last history and when it was read; nil if it is unknown.
func (w *Watch) Last() (*runway.History, time.Time) {
	r := w.last.Load()
	if r == nil || time.Since(r.at) > watchMaxAge {
		return nil, time.Time{}
	}
	return r.history, r.at
}
