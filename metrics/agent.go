package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	jsonv1 "github.com/go-json-experiment/json/v1"
	"golang.org/x/sync/singleflight"

	"github.com/calico-audit/calico-audit/blocks"
)

// AgentOptions configures an Agent.
type AgentOptions struct {
	// Scan returns a new host view.
	Scan func(context.Context) (*blocks.HostView, error)
	// MaxAge is the maximum age of a view that is served again. If it is zero or less, a
	// request starts a new scan unless one is running.
	MaxAge time.Duration
	// ScanTimeout limits a scan; the default is 30 s.
	ScanTimeout time.Duration
	// Log records failed scans.
	Log *slog.Logger
	// Pprof also serves profiles.
	Pprof bool
	// Build identifies the program's version.
	Build Build
}

// Build identifies the version of a program, for a metric.
type Build struct{ Version, Revision, GoVersion string }

// Agent scans the node on request and caches the view for a while. Requests during a scan
// share its result. Scans never overlap, and a failed scan never yields an older view.
type Agent struct {
	AgentOptions

	running singleflight.Group // the running scan

	mu sync.Mutex
	// view is the result of the last scan; nil if there was none or it failed.
	view     *blocks.HostView
	began    time.Time
	duration time.Duration
	scans    uint64
	failures uint64
}

// NewAgent returns an agent. The first request starts the first scan.
func NewAgent(o AgentOptions) *Agent {
	o.ScanTimeout = cmp.Or(o.ScanTimeout, 30*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Agent{AgentOptions: o}
}

// View returns a view that is at most MaxAge old and was taken after the given time, or the
// error of the scan for it. If the clock was set back, the view may appear older than that.
// The caller must not change the view.
func (a *Agent) View(ctx context.Context, after time.Time) (*blocks.HostView, error) {
	if view := a.fresh(after); view != nil {
		return view, nil
	}
	// The scan continues if the first caller leaves, because others may be waiting for it.
	scan := a.running.DoChan("", func() (any, error) {
		if view := a.fresh(after); view != nil { // another scan finished in the meantime
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

// fresh returns the last view if it may be served again, else nil.
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

// unready returns why the agent has no view; "" if it has one. After a failed scan, or
// before the first, it starts one.
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

// Handler serves the view as JSON, and metrics. Without a view its metrics are absent. The
// agent is ready if the last scan succeeded.
func (a *Agent) Handler() http.Handler {
	metrics := collector(a.samples).handler(a.Log)
	return site{
		Title: "calico-audit agent", About: "It reads the routes and network namespaces of this node, and changes nothing.",
		what: "agent", ready: "whether the node's kernel can be read", unready: a.unready, pprof: a.Pprof,
		Pages: []page{
			{"/hostview", "the host view as JSON: the routes and network namespaces of this node's kernel; ?blocks=CIDR,… keeps only routes to these blocks and routes that drop traffic; ?newerThan=TIME, such as a view's takenAt, requests a later view", func(w http.ResponseWriter, r *http.Request) {
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
			{"/metrics", "metrics for Prometheus", func(w http.ResponseWriter, r *http.Request) {
				// Collectors have no context, so scan here. A failed scan shows in its
				// counters.
				_, _ = a.View(r.Context(), time.Time{})
				metrics(w, r)
			}},
		},
	}.handler()
}

// parseBlocks parses comma-separated CIDRs.
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

// parseTime parses a time in the format of takenAt; empty is the zero time.
func parseTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	return time.Parse(time.RFC3339Nano, text)
}

// writeView streams a host view as JSON, because a node may have many routes and the agent
// little memory.
func writeView(w io.Writer, v *blocks.HostView) error {
	if err := json.MarshalWrite(w, v, jsonv1.DefaultOptionsV1(), json.FormatNilSliceAsNull(false)); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// samples returns the metrics of the last scan, without starting one.
func (a *Agent) samples() (out samples) {
	a.mu.Lock()
	view, duration, scans, failures := a.view, a.duration, a.scans, a.failures
	a.mu.Unlock()

	out.add(agentBuild, 1, a.Build.Version, a.Build.Revision, a.Build.GoVersion)
	out.add(agentScans, float64(scans))
	out.add(agentFails, float64(failures))
	if scans > 0 {
		out.add(agentTook, duration.Seconds())
	}
	if view == nil {
		return out
	}
	out.add(agentTaken, float64(view.TakenAt.UnixMilli())/1000)
	out.add(agentGaps, float64(len(view.Gaps)))
	routes, blackholes := countRoutes(view.Routes)
	for _, k := range slices.SortedFunc(maps.Keys(routes), func(a, b routeKind) int {
		return cmp.Or(cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.kind, b.kind))
	}) {
		out.add(agentRoutes, float64(routes[k]), k.kind, k.protocol)
	}
	addresses, stuck := countNamespaces(view.Namespaces)
	out.add(agentSpaces, float64(len(view.Namespaces)))
	for _, family := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
		out.add(agentBlackholes, float64(blackholes[family]), family.String())
		out.add(agentAddresses, float64(addresses[family]), family.String())
	}
	out.add(agentStuck, float64(stuck))
	return out
}
