package source

import (
	"net/http"
	"slices"
	"sync"
	"time"
)

// A serverClock tells the API server's time from the Date headers of its answers.
// It is never ahead of the server: a Date header has whole seconds, and was true
// before it arrived. The largest of several comes close.
type serverClock struct {
	origin time.Time // local time from which differences are counted, unmoved by whoever sets the clock
	now    func() time.Time

	mu      sync.Mutex
	offsets []time.Duration // server's time at origin, counted from dawn, as the last answers tell it
	dawn    time.Time       // the first Date header
}

// clockMemory is how many answers a serverClock remembers, so that it follows a
// server whose clock is set back.
const clockMemory = 32

func newServerClock(now func() time.Time) *serverClock {
	return &serverClock{origin: time.Now(), now: now}
}

// saw takes note of a Date header that has just come.
func (c *serverClock) saw(date string) {
	t, err := http.ParseTime(date)
	if err != nil {
		return
	}
	passed := time.Since(c.origin)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dawn.IsZero() {
		c.dawn = t
	}
	if len(c.offsets) == clockMemory {
		c.offsets = slices.Delete(c.offsets, 0, 1)
	}
	c.offsets = append(c.offsets, t.Sub(c.dawn)-passed)
}

// at returns the server's time at a local time, in whole seconds as the server
// tells it.
func (c *serverClock) at(local time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.offsets) == 0 {
		return c.now().Add(-time.Since(local)).UTC().Truncate(time.Second)
	}
	return c.dawn.Add(slices.Max(c.offsets) + local.Sub(c.origin)).UTC().Truncate(time.Second)
}

// clockTransport lets a clock see the answers that pass through.
type clockTransport struct {
	http.RoundTripper
	clock *serverClock
}

func (t clockTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err == nil {
		t.clock.saw(resp.Header.Get("Date"))
	}
	return resp, err
}
