package cluster

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// A serverClock tells the API server's time from the Date headers of its answers.
// It is never ahead of the server: a Date header has whole seconds, and was true
// before it arrived. The largest of several comes close.
type serverClock struct {
	origin time.Time // local time from which differences are counted, unmoved by anyone who sets the clock
	now    func() time.Time

	mu      sync.Mutex
	met     bool            // whether the server has ever answered
	offsets []time.Duration // server's time at origin, counted from dawn, as the last answers tell it
	dawn    time.Time       // the first Date header
	// first and last are the Date header of the first answer since reset, and the
	// greatest; zero if no answer had one.
	first, last time.Time
}

// clockMemory is how many answers a serverClock remembers, so that it follows a
// server whose clock is set back.
const clockMemory = 32

func newServerClock(now func() time.Time) *serverClock {
	return &serverClock{origin: time.Now(), now: now}
}

// saw records the Date header of an answer that has just come.
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

// dates returns the Date headers of the first and the last answer since reset; what
// stands in for the server's clock if they had none.
func (c *serverClock) dates() (first, last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first.IsZero() {
		now := c.now().UTC()
		return now, now
	}
	return c.first, c.last
}

// reset forgets the first and the last answer.
func (c *serverClock) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.first, c.last = time.Time{}, time.Time{}
}

// At returns the server's time at a local time, in whole seconds as the server
// tells it.
func (c *serverClock) At(local time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.offsets) == 0 {
		return c.now().Add(-time.Since(local)).UTC().Truncate(time.Second)
	}
	return c.dawn.Add(slices.Max(c.offsets) + local.Sub(c.origin)).UTC().Truncate(time.Second)
}

// clockTransport lets a clock and an exchange see the answers that pass through, and
// limits what an error may hold and for how long it may ask to wait.
type clockTransport struct {
	http.RoundTripper
	clock *serverClock // nil for what pods answer: the API server passes on their Date header
}

// maxError limits the body of an answer that is an error.
const maxError = 1 << 20

func (t clockTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if t.clock != nil {
		t.clock.saw(resp.Header.Get("Date"))
	}
	after, most := 0, int(maxRetryAfter/time.Second)
	switch seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); {
	case err != nil || seconds < 0: // one out of range would be taken for a wait of its greatest value
		resp.Header.Del("Retry-After")
	case seconds > most:
		after = most
		resp.Header.Set("Retry-After", strconv.Itoa(most))
	default:
		after = seconds
	}
	if x, ok := r.Context().Value(exchangeKey{}).(*exchange); ok {
		x.code.Store(int32(resp.StatusCode)) //nolint:gosec // three digits
		x.retryAfter.Store(int32(after))     //nolint:gosec // no more than maxRetryAfter
		if x.heard != nil {
			x.heard()
		}
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxError)
	}
	return resp, nil
}
