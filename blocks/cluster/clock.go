package cluster

import (
	"net/http"
	"slices"
	"sync"
	"time"
)

// A serverClock estimates the API server's time from the Date headers of its responses. It
// is never ahead of the server, because a Date header is truncated to seconds and older
// than its arrival. The largest of several estimates is close.
type serverClock struct {
	origin time.Time // reference for differences; unaffected by changes of the local clock
	now    func() time.Time

	mu      sync.Mutex
	met     bool            // the server has answered
	offsets []time.Duration // server's time at origin minus dawn, from the latest responses
	dawn    time.Time       // the first Date header
	// first and last are the first and the latest Date header since reset; zero without
	// any.
	first, last time.Time
}

// clockMemory is the number of responses that a serverClock remembers. Older responses are dropped
// so that the estimate follows a server whose clock is set back.
const clockMemory = 32

func newServerClock(now func() time.Time) *serverClock {
	return &serverClock{origin: time.Now(), now: now}
}

// saw records the Date header of a response.
func (c *serverClock) saw(date string) {
	t, err := http.ParseTime(date)
	t = t.UTC()
	passed := time.Since(c.origin)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.met = true
	if err != nil {
		return
	}
	if c.first.IsZero() {
		c.first = t
	}
	c.last = later(c.last, t)
	if c.dawn.IsZero() {
		c.dawn = t
	}
	if len(c.offsets) == clockMemory {
		c.offsets = slices.Delete(c.offsets, 0, 1)
	}
	c.offsets = append(c.offsets, t.Sub(c.dawn)-passed)
}

func (c *serverClock) answered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.met
}

// dates returns the first and latest Date headers since reset, or the local time without
// any.
func (c *serverClock) dates() (first, last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first.IsZero() {
		now := c.now().UTC()
		return now, now
	}
	return c.first, c.last
}

// reset forgets the first and latest Date headers.
func (c *serverClock) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.first, c.last = time.Time{}, time.Time{}
}

// At converts a local time to the server's time, in whole seconds.
func (c *serverClock) At(local time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.offsets) == 0 {
		return c.now().Add(-time.Since(local)).UTC().Truncate(time.Second)
	}
	return c.dawn.Add(slices.Max(c.offsets) + local.Sub(c.origin)).UTC().Truncate(time.Second)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
