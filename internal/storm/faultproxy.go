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

// FaultProxy is a proxy between one client and the API server. It uses the cluster
// administrator's credentials. It counts writes and can die before or after any of them.
// Then no request and no answer passes, as if the client's process had been killed or its
// machine had lost power.
type FaultProxy struct {
	// URL is the proxy's URL, plain HTTP on the loopback interface.
	URL string
	// Agent is the user agent of all forwarded requests, if not empty, and thus the field
	// manager of their writes. (Calico's client sets no name, so its users cannot be
	// distinguished.)
	Agent string

	server *httptest.Server

	mu     sync.Mutex
	writes []Write
	death  int // number of the fatal write; 0 for never
	after  bool
	dead   bool
	lease  func(n int, w Write) bool
	died   func()
	lag    func() time.Duration
	busy   int // writes in progress
	idle   *sync.Cond
}

// Write is a write that reached the proxy.
type Write struct {
	Verb, Path string
}

func (w Write) String() string { return w.Verb + " " + w.Path }

// Sort returns the verb and resource of a write.
func (w Write) Sort() string {
	parts := strings.Split(strings.Trim(w.Path, "/"), "/")
	if len(parts) > 3 { // apis/GROUP/VERSION/RESOURCE/NAME
		return w.Verb + " " + parts[3]
	}
	return w.String()
}

// NewFaultProxy starts a proxy to the API server of a configuration. It is stopped when
// the test ends.
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
		FlushInterval: -1, // a watch must not be buffered
		ErrorHandler:  broken,
		ErrorLog:      log.New(io.Discard, "", 0), // responses are cut off when the API server is killed
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
	// Read the body first: the request must reach the API server even if the client dies
	// meanwhile.
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
		// The write arrives, but its answer does not.
		proxy.ServeHTTP(&deaf{header: http.Header{}}, r)
		unheard(w)
	case lease != nil && !lease(n, Write{r.Method, r.URL.Path}):
		panic(http.ErrAbortHandler)
	default:
		// Without http.CloseNotifier, a dying sender cannot cancel its requests.
		proxy.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
	}
}

func (g *FaultProxy) isDead() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dead
}

// count records a write. It returns its number, or 0 if the proxy is already dead, and
// whether the proxy dies with it.
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

// Die makes the proxy die with the k-th write from now, from 1: before it is forwarded,
// or after it was carried out but before the answer.
func (g *FaultProxy) Die(k int, after bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.death, g.after = len(g.writes)+k, after
}

// Reset revives a proxy that died or was about to, as for a restarted process. It reports
// whether it had died.
func (g *FaultProxy) Reset() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.dead
	g.dead, g.death = false, 0
	return was
}

// OnDeath sets a function to call when the proxy dies; nil for none.
func (g *FaultProxy) OnDeath(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.died = f
}

// Lag delays each request by the duration that f returns, as on a slow network, so that
// other writes can happen between a read and the write that depends on it. f is called
// concurrently.
func (g *FaultProxy) Lag(f func() time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lag = f
}

// Pause calls f with each write and its number before the write is forwarded; f may
// block. If f returns false, the connection is closed instead.
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

// WaitIdle waits until no write is in progress.
func (g *FaultProxy) WaitIdle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.busy > 0 {
		g.idle.Wait()
	}
}

// Writes returns the writes that reached the proxy while it was alive, including the
// fatal one.
func (g *FaultProxy) Writes() []Write {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]Write(nil), g.writes...)
}
