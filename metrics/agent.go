package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/singleflight"

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

	running singleflight.Group // the scan under way

	mu sync.Mutex
	// view is the last scan's; nil before the first scan and after one that failed.
	view     *blocks.HostView
	began    time.Time
	duration time.Duration
	scans    uint64
	failures uint64
}

// NewAgent returns an agent. It scans when it is first asked.
func NewAgent(o AgentOptions) *Agent {
	o.ScanTimeout = cmp.Or(o.ScanTimeout, 30*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Agent{AgentOptions: o}
}

// View returns a view that is not older than MaxAge and was taken after a time, or the
// error of the scan that should have made one. Where the clock was set back, what is
// returned may be of before that time all the same. It is not to be changed.
func (a *Agent) View(ctx context.Context, after time.Time) (*blocks.HostView, error) {
	if view := a.fresh(after); view != nil {
		return view, nil
	}
	// It goes on if the first who asked leaves: others may wait for it by then.
	scan := a.running.DoChan("", func() (any, error) {
		if view := a.fresh(after); view != nil { // made while this was on its way
			return view, nil
		}
		return a.scan(context.WithoutCancel(ctx))
	})
	select {
	case r := <-scan:
		view, _ := r.Val.(*blocks.HostView)
		return view, r.Err
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for a scan: %w", context.Cause(ctx))
	}
}

// fresh returns the last view if it may be handed out again, else nil.
func (a *Agent) fresh(after time.Time) *blocks.HostView {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.view != nil && a.view.TakenAt.After(after) && time.Since(a.began) < a.MaxAge {
		return a.view
	}
	return nil
}

func (a *Agent) scan(ctx context.Context) (*blocks.HostView, error) {
	ctx, cancel := context.WithTimeout(ctx, a.ScanTimeout)
	defer cancel()
	began := time.Now()
	view, err := a.Scan(ctx)
	if err == nil && view == nil {
		err = errors.New("the scan gave no view")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.view, a.began, a.duration = view, began, time.Since(began)
	a.scans++
	if err != nil {
		a.view = nil
		a.failures++
		a.Log.Error("scanning failed", "error", err, "duration", a.duration)
	}
	return a.view, err
}

// unready returns why there is no view, "" if there is one. Where there was no scan, or
// it failed, it makes one.
func (a *Agent) unready(ctx context.Context) string {
	a.mu.Lock()
	well := a.view != nil
	a.mu.Unlock()
	if !well {
		if _, err := a.View(ctx, time.Time{}); err != nil {
			return noView(err)
		}
	}
	return ""
}

func noView(err error) string { return "no host view could be made: " + err.Error() }

// Handler serves the view as JSON, and its metrics, which are absent where none can be
// made. It is ready if the last scan succeeded.
func (a *Agent) Handler() http.Handler {
	metrics := metricsOf(a.Log, processMetrics(), func() ([]*dto.MetricFamily, error) { return parse(a.samples().text()) })
	return site{
		Title: "calico-audit agent", About: "It reads the routes and network namespaces of this node, and changes nothing.",
		what: "agent", ready: "whether the node's kernel can be read", unready: a.unready, pprof: a.Pprof,
		Pages: []page{
			{"/hostview", "the host view: what the kernel of this node says of its routes and network namespaces, as JSON; ?blocks=CIDR,… names the node's blocks and leaves out the routes that have to do neither with them nor with one that drops traffic; ?newerThan=TIME, such as its takenAt, wants a view that was taken later", func(w http.ResponseWriter, r *http.Request) {
				after, err := parseTime(r.URL.Query().Get("newerThan"))
				if err != nil {
					writeText(w, http.StatusBadRequest, "parameter newerThan: "+err.Error())
					return
				}
				view, err := a.View(r.Context(), after)
				if err != nil {
					writeText(w, http.StatusServiceUnavailable, noView(err))
					return
				}
				if r.URL.Query().Has("blocks") {
					own, err := parseBlocks(r.URL.Query().Get("blocks"))
					if err != nil {
						writeText(w, http.StatusBadRequest, "parameter blocks: "+err.Error())
						return
					}
					telling := *view
					telling.Routes = view.TellingRoutes(own)
					view = &telling
				}
				w.Header().Set("Last-Modified", view.TakenAt.UTC().Format(http.TimeFormat))
				writeBody(w, r, "application/json", func(out io.Writer) error { return writeView(out, view) })
			}},
			{"/metrics", "metrics of it, for Prometheus", func(w http.ResponseWriter, r *http.Request) {
				// The collector has no context of its own; a scan that fails shows in its counters.
				_, _ = a.View(r.Context(), time.Time{})
				metrics(w, r)
			}},
		},
	}.handler()
}

// parseBlocks reads CIDRs with commas between them.
func parseBlocks(text string) (own []netip.Prefix, err error) {
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		p, err := netip.ParsePrefix(part)
		if err != nil {
			return nil, err
		}
		own = append(own, p.Masked())
	}
	return own, nil
}

// parseTime reads a time as a view's takenAt is written; empty is the zero time.
func parseTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	return time.Parse(time.RFC3339Nano, text)
}

// writeView writes a host view as JSON, as it goes: a node may have very many routes, and
// the agent little memory.
func writeView(w io.Writer, v *blocks.HostView) error {
	if err := json.MarshalWrite(w, v, jsonv1.DefaultOptionsV1(), json.FormatNilSliceAsNull(false)); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
