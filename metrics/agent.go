package metrics

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

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

// unready returns why there is no view, "" if there is one. Where there was no scan, or
// it failed, it makes one.
func (a *Agent) unready(ctx context.Context) string {
	a.mu.Lock()
	well := a.view != nil
	a.mu.Unlock()
	if !well {
		if _, err := a.View(ctx); err != nil {
			return noView(err)
		}
	}
	return ""
}

func noView(err error) string { return "no host view could be made: " + err.Error() }

// Handler serves the view as JSON, and its metrics, which are absent where none can be
// made. It is ready if the last scan succeeded.
func (a *Agent) Handler() http.Handler {
	metrics := metricsOf(a, a.Log, promhttp.HandlerOpts{})
	return site{
		Title: "calico-audit agent", About: "It reads the routes and network namespaces of this node, and changes nothing.",
		what: "agent", ready: "whether the node's kernel can be read", unready: a.unready, pprof: a.Pprof,
		Pages: []page{
			{"/hostview", "the host view: what the kernel of this node says of its routes and network namespaces, as JSON", func(w http.ResponseWriter, r *http.Request) {
				view, err := a.View(r.Context())
				if err != nil {
					writeText(w, http.StatusServiceUnavailable, noView(err))
					return
				}
				w.Header().Set("Last-Modified", view.TakenAt.UTC().Format(http.TimeFormat))
				writeBody(w, r, "application/json", func(out io.Writer) error { return writeView(out, view) })
			}},
			{"/metrics", "metrics of it, for Prometheus", func(w http.ResponseWriter, r *http.Request) {
				// The collector has no context of its own; a scan that fails shows in its counters.
				_, _ = a.View(r.Context())
				metrics(w, r)
			}},
		},
	}.handler()
}

// writeView writes a host view as JSON. A node may have very many routes, and the
// agent little memory: they are written one by one, into the place that they have
// in the rest of the document.
func writeView(w io.Writer, v *blocks.HostView) error {
	rest := *v
	rest.Routes = []blocks.HostRoute{}
	text, err := json.Marshal(rest)
	if err != nil {
		return err
	}
	// Within strings the quotes would be escaped, so that this is the field.
	const field = `"routes":[`
	before, after, ok := bytes.Cut(text, []byte(field))
	if !ok {
		return errors.New("a host view without routes")
	}
	out := bufio.NewWriter(w)
	_, _ = out.Write(before)
	_, _ = out.WriteString(field)
	each := json.NewEncoder(out)
	for i := range v.Routes {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		if err := each.Encode(&v.Routes[i]); err != nil {
			return err
		}
	}
	_, _ = out.Write(after)
	_ = out.WriteByte('\n')
	return out.Flush() // and any error on the way
}
