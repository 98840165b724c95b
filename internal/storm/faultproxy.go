package storm

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// FaultProxy stands between one client and the API server: a proxy that speaks for the
// cluster's administrator. It counts writes, and can die before or after any of
// them: from then on no request gets through and no answer comes back, as if the
// client's process had been killed or its machine had lost power.
type FaultProxy struct {
	// URL is where the client finds the proxy, by plain HTTP on the loopback.
	URL string
	// Agent is the name under which all requests go on, if it is not empty: that
	// is the manager of what they write. (Calico's client gives no name of its own,
	// so that all that use it look alike.)
	Agent string

	server *httptest.Server

	mu     sync.Mutex
	writes []Write
	death  int // counted from now; 0 for never
	after  bool
	dead   bool
	lease  func(n int, w Write) bool
	died   func()
	lag    func() time.Duration
	busy   int // writes on their way
	idle   *sync.Cond
}

// Write is one write that came to a proxy.
type Write struct {
	Verb, Path string
}

func (w Write) String() string { return w.Verb + " " + w.Path }

// Sort is what it does to which resource.
func (w Write) Sort() string {
	parts := strings.Split(strings.Trim(w.Path, "/"), "/")
	if len(parts) > 3 { // apis/GROUP/VERSION/RESOURCE/NAME
		return w.Verb + " " + parts[3]
	}
	return w.String()
}

// NewFaultProxy returns an open proxy to the API server of a configuration. It ends with
// the test.
func NewFaultProxy(tb testing.TB, to *rest.Config, agent string) *FaultProxy {
	tb.Helper()
	target, err := url.Parse(to.Host)
	if err != nil {
		tb.Fatalf("opening a proxy: %v", err)
	}
	transport, err := rest.TransportFor(to)
	if err != nil {
		tb.Fatalf("opening a proxy: %v", err)
	}
	g := &FaultProxy{Agent: agent}
	g.idle = sync.NewCond(&g.mu)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if g.Agent != "" {
				r.Out.Header.Set("User-Agent", g.Agent)
			}
		},
		Transport:     transport,
		FlushInterval: -1, // a watch must not wait for a buffer to fill
		ErrorHandler:  broken,
		ErrorLog:      log.New(io.Discard, "", 0), // of answers that break off when the API server is killed
	}
	g.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(proxy, w, r) }))
	g.URL = g.server.URL
	tb.Cleanup(func() {
		g.server.CloseClientConnections()
		g.server.Close()
	})
	return g
}

func (g *FaultProxy) serve(proxy http.Handler, w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	lag := g.lag
	g.mu.Unlock()
	if lag != nil {
		time.Sleep(lag())
	}
	if !isWrite(r) {
		if g.isDead() {
			unheard(w)
			return
		}
		proxy.ServeHTTP(w, r)
		return
	}
	g.enter(1)
	defer g.enter(-1)
	// What is sent goes on, though its sender may be dead by then.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r = r.WithContext(context.WithoutCancel(r.Context()))
	r.Body = io.NopCloser(bytes.NewReader(body))
	n, last, after, lease := g.count(Write{r.Method, r.URL.Path})
	switch {
	case n == 0, last && !after:
		unheard(w)
	case last:
		// The write arrives; its answer does not.
		proxy.ServeHTTP(&deaf{header: http.Header{}}, r)
		unheard(w)
	case lease != nil && !lease(n, Write{r.Method, r.URL.Path}):
		panic(http.ErrAbortHandler)
	default:
		proxy.ServeHTTP(w, r)
	}
}

func (g *FaultProxy) isDead() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dead
}

// count takes down a write and returns its number, which is 0 for one that comes
// too late, and whether the proxy dies with it.
func (g *FaultProxy) count(w Write) (n int, last, after bool, lease func(int, Write) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead {
		return 0, false, false, nil
	}
	g.writes = append(g.writes, w)
	if n = len(g.writes); n == g.death {
		g.dead = true
		if g.died != nil {
			g.died()
		}
		return n, true, g.after, nil
	}
	return n, false, false, g.lease
}

// Die makes the proxy die with the k-th write from now, counted from 1: before it
// is sent, or after, when it was carried out and the answer has not come.
func (g *FaultProxy) Die(k int, after bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.death, g.after = len(g.writes)+k, after
}

// Reset opens a proxy that died or was about to, as for a process that was started
// again. It reports whether it had died.
func (g *FaultProxy) Reset() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.dead
	g.dead, g.death = false, 0
	return was
}

// OnDeath has f called when the proxy dies; nil for nothing.
func (g *FaultProxy) OnDeath(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.died = f
}

// Lag has each request wait for a while, which f says, before it goes on, as on a slow
// network: there is time for others between a reading and the write that rests on
// it. f is called by several goroutines.
func (g *FaultProxy) Lag(f func() time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lag = f
}

// Pause calls f before each write is let through, with its number; f may wait. The
// write is sent if f returns true, else its connection breaks.
func (g *FaultProxy) Pause(f func(n int, w Write) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lease = f
}

func (g *FaultProxy) enter(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy += n
	g.idle.Broadcast()
}

// WaitIdle waits until no write is on its way any more.
func (g *FaultProxy) WaitIdle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.busy > 0 {
		g.idle.Wait()
	}
}

// Writes are the writes that came to the proxy while it was open, the one it died
// with included.
func (g *FaultProxy) Writes() []Write {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]Write(nil), g.writes...)
}
