package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/calico-audit/calico-audit/blocks"
)

// AgentOptions say what an agent serves.
type AgentOptions struct {
	// Scan makes a host view.
	Scan func(context.Context) (*blocks.HostView, error)
	// MaxAge is how old a view may be that is handed out again; zero or less means
	// that each request that finds no scan under way makes one.
	MaxAge time.Duration
	// ScanTimeout is how long a scan may take; by default 30 s.
	ScanTimeout time.Duration
	// Log tells of scans that fail.
	Log *slog.Logger
	// Pprof serves profiles, too.
	Pprof bool
	// Build says what the program is built from.
	Build Build
}

// Build says what a program is built from, for a metric.
type Build struct{ Version, Revision, GoVersion string }

// Agent makes host views when they are asked for and hands each out for a while.
// Requests that come while a scan goes on get that scan's view. Scans never overlap,
// and a view is never handed out in place of one that could not be made.
type Agent struct {
	AgentOptions

	mu sync.Mutex
	// view is the last scan's; nil before the first scan and after one that failed.
	view     *blocks.HostView
	began    time.Time
	duration time.Duration
	err      error
	scans    uint64
	failures uint64
	running  *scanning
}

// scanning is a scan under way.
type scanning struct {
	done chan struct{}
	view *blocks.HostView
	err  error
}

// NewAgent returns an agent. It scans when it is first asked.
func NewAgent(o AgentOptions) *Agent {
	o.ScanTimeout = cmp.Or(o.ScanTimeout, 30*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Agent{AgentOptions: o}
}

// View returns a view that is not older than MaxAge, or the error of the scan that
// should have made one. It is not to be changed.
func (a *Agent) View(ctx context.Context) (*blocks.HostView, error) {
	a.mu.Lock()
	if a.view != nil && time.Since(a.began) < a.MaxAge {
		defer a.mu.Unlock()
		return a.view, nil
	}
	if a.running == nil {
		a.running = &scanning{done: make(chan struct{})}
		// It goes on if the first who asked leaves: others may wait for it by then.
		go a.scan(context.WithoutCancel(ctx), a.running)
	}
	s := a.running
	a.mu.Unlock()
	select {
	case <-s.done:
		return s.view, s.err
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for a scan: %w", context.Cause(ctx))
	}
}

func (a *Agent) scan(ctx context.Context, s *scanning) {
	ctx, cancel := context.WithTimeout(ctx, a.ScanTimeout)
	defer cancel()
	began := time.Now()
	s.view, s.err = a.Scan(ctx)
	if s.err == nil && s.view == nil {
		s.err = errors.New("the scan gave no view")
	}
	duration := time.Since(began)
	if s.err != nil {
		s.view = nil
		a.Log.Error("scanning failed", "error", s.err, "duration", duration)
	}
	a.mu.Lock()
	a.view, a.err, a.began, a.duration = s.view, s.err, began, duration
	a.scans++
	if s.err != nil {
		a.failures++
	}
	a.running = nil
	a.mu.Unlock()
	close(s.done)
}

// ready returns why the last scan failed, nil if it did not. Where there was none,
// or it failed, it makes one.
func (a *Agent) ready(ctx context.Context) error {
	a.mu.Lock()
	well := a.view != nil
	a.mu.Unlock()
	if well {
		return nil
	}
	_, err := a.View(ctx)
	return err
}

// Handler serves the view and its metrics:
//
//	/hostview  the host view as JSON; 503 with the reason where none can be made
//	/metrics   metrics; those of the view are absent where none can be made
//	/healthz   200 as long as the program answers
//	/readyz    200 if the last scan succeeded, else 503 with the reason
//	/          what is served where
func (a *Agent) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(a, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hostview", func(w http.ResponseWriter, r *http.Request) {
		view, err := a.View(r.Context())
		if err != nil {
			writeText(w, http.StatusServiceUnavailable, "no host view could be made: "+err.Error())
			return
		}
		w.Header().Set("Last-Modified", view.TakenAt.UTC().Format(http.TimeFormat))
		writeBody(w, r, "application/json", func(out io.Writer) error { return writeView(out, view) })
	})
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(a.Log.Handler(), slog.LevelError)})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		// The collector has no context of its own; a scan that fails shows in its counters.
		_, _ = a.View(r.Context())
		metrics.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := a.ready(r.Context()); err != nil {
			writeText(w, http.StatusServiceUnavailable, "no host view could be made: "+err.Error())
			return
		}
		writeText(w, http.StatusOK, "ok")
	})
	pages := []Page{
		{"/hostview", "the host view: what the kernel of this node says of its routes and network namespaces, as JSON"},
		{"/metrics", "metrics of it, for Prometheus"},
		{"/healthz", "whether the agent answers"},
		{"/readyz", "whether the node's kernel can be read"},
	}
	if a.Pprof {
		HandlePprof(mux)
		pages = append(pages, Page{"/debug/pprof/", "profiles of the agent"})
	}
	HandleLanding(mux, "calico-audit agent", "It reads the routes and network namespaces of this node, and changes nothing.", pages)
	return mux
}
