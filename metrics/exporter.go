package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// Source is a watched cluster.
type Source interface {
	// Run watches until ctx ends.
	Run(ctx context.Context) error
	// Changed receives a signal after each change of the snapshot.
	Changed() <-chan struct{}
	// Snapshot returns the present snapshot, sorted; nil until every kind was listed. The
	// snapshot never changes afterwards. It is known to be current at Cluster.TakenAt, by
	// the API server's clock. TakenAt stands still during an outage.
	Snapshot() *blocks.Snapshot
	// Reread reads some resources again and returns a copy of prev with the results. If
	// snapshots have host views, it also reads those of the given nodes again.
	Reread(ctx context.Context, prev *blocks.Snapshot, resources []blocks.Resource, nodes []string) (*blocks.Snapshot, error)
	// Restarts counts the watches that were restarted.
	Restarts() map[blocks.Resource]uint64
}

// Renderer writes a report in a format.
type Renderer func(io.Writer, *audit.Report) error

// ExporterOptions configures an Exporter.
type ExporterOptions struct {
	Source Source
	// Grace is how long a state must last before it counts as a problem; zero means
	// [state.DefaultGrace].
	Grace time.Duration
	// Interval is the maximum time between audits; the default is [DefaultInterval].
	// Changes, and ages that a verdict depends on, cause an earlier audit.
	Interval time.Duration
	// MaxAge is the maximum age of the state. Beyond it the exporter is not ready, and its
	// numbers count as incomplete; the default is [DefaultMaxAge].
	MaxAge time.Duration
	// Mutes suppresses findings; nil for none.
	Mutes *audit.Mutes
	// NodeMetrics enables the series of single nodes.
	NodeMetrics bool
	// MaxNodes is the largest number of nodes that the cluster may have; 0 if it is unknown.
	MaxNodes int
	// JSON and Text write the report. HTML, if set, writes it for browsers; its report
	// includes Usage.
	JSON, Text, HTML Renderer
	// after, if set, is called with the result of each audit. Tests use it.
	after func(context.Context, *Audit)
	// Agents, if set, returns statistics about requests to the nodes' agents.
	Agents func() AgentCounts
	// Log records errors, and their end.
	Log *slog.Logger
	// Pprof also serves profiles.
	Pprof bool
	// Build identifies the program's version.
	Build Build
}

// AgentCounts holds statistics about requests to the nodes' agents.
type AgentCounts struct {
	// Asked counts requests, Failed those without a view.
	Asked, Failed uint64
	// Views counts the nodes with a view that is recent enough; Oldest is when the oldest
	// of these was taken. Missing counts the Ready Linux nodes without one.
	Views, Missing int
	Oldest         time.Time
}

// The defaults of ExporterOptions.
const (
	DefaultInterval = 2 * time.Minute
	DefaultMaxAge   = 5 * time.Minute
)

// maxPages limits concurrent renderings. A page of a large cluster takes as much memory as
// an audit.
const maxPages = 2

// NewExporter returns an exporter with the defaults filled in.
func NewExporter(o ExporterOptions) *Exporter {
	o.Interval = cmp.Or(o.Interval, DefaultInterval)
	o.MaxAge = cmp.Or(o.MaxAge, DefaultMaxAge)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Exporter{ExporterOptions: o, pages: make(chan struct{}, maxPages)}
}

// Run watches and audits until ctx ends, and then returns nil.
func (e *Exporter) Run(ctx context.Context) error {
	group, inner := errgroup.WithContext(ctx)
	group.Go(func() error {
		err := e.Source.Run(inner)
		if inner.Err() == nil {
			return fmt.Errorf("watching the cluster: %w", cmp.Or(err, errEnded))
		}
		return nil
	})
	group.Go(func() error {
		newLoop(e).run(inner)
		return nil
	})
	return group.Wait()
}

var errEnded = errors.New("it ended by itself")

// Current returns the last audit; nil before the first.
func (e *Exporter) Current() *Audit { return e.current.Load() }

func staleReason(a *Audit, age time.Duration) string {
	return fmt.Sprintf("the data is from %s, %s old: the API server or one of its watches does not respond",
		a.Report.Cluster.TakenAt.String(), age.Round(time.Second))
}

// staleResource is the pseudo-resource of the gap for a stale state.
const staleResource blocks.Resource = "cluster"
