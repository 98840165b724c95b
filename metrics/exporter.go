package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/runway"
	"github.com/calico-audit/calico-audit/blocks"
)

// Source is a cluster that is watched.
type Source interface {
	// Run watches until ctx ends.
	Run(ctx context.Context) error
	// Changed delivers a signal after anything about the snapshot has changed.
	Changed() <-chan struct{}
	// Snapshot returns what is known now, sorted; nil until everything was listed
	// once. It is not changed afterwards. Cluster.TakenAt is the time as of which it
	// is known, by the API server's clock: it stands still during an outage.
	Snapshot() *blocks.Snapshot
	// Reread reads some resources again, all after the call, and returns prev with
	// them replaced. Where snapshots have host views, it asks for those of some nodes
	// again.
	Reread(ctx context.Context, prev *blocks.Snapshot, resources []blocks.Resource, nodes []string) (*blocks.Snapshot, error)
	// Restarts counts the watches that had to be begun again.
	Restarts() map[blocks.Resource]uint64
}

// Renderer writes a report in some format.
type Renderer func(io.Writer, *audit.Report) error

// ExporterOptions say what an exporter does.
type ExporterOptions struct {
	Source Source
	// Grace is how long a state must have held before it counts as lasting; zero
	// means [state.DefaultGrace].
	Grace time.Duration
	// Interval is how long at most passes from one audit to the next; by default
	// [DefaultInterval]. After a change, and when a state has become older than a verdict
	// asks for, there is one sooner.
	Interval time.Duration
	// MaxAge is how old the state may be known to be before the exporter is not ready
	// any more and its numbers count as incomplete; by default [DefaultMaxAge].
	MaxAge time.Duration
	// Mutes are the findings that do not count; nil for none.
	Mutes *audit.Mutes
	// NodeMetrics serves series for each node.
	NodeMetrics bool
	// JSON and Text write the report; HTML, if it is set, writes it for browsers, and
	// gets it with its Usage.
	JSON, Text, HTML Renderer
	// after, if set, is called after each audit, with the result. Tests follow audits by it.
	after func(context.Context, *Audit)
	// Agents, if set, returns how the asking of the nodes' agents goes.
	Agents func() AgentCounts
	// Past, if set, returns the past of the pools as it was last read, and when; nil while
	// it is not known. By it, it is estimated when they run out.
	Past func() (*runway.History, time.Time)
	// Log tells of what goes wrong, and of its end.
	Log *slog.Logger
	// Pprof serves profiles, too.
	Pprof bool
	// Build says what the program is built from.
	Build Build
}

// AgentCounts say how the asking of the nodes' agents goes.
type AgentCounts struct {
	// Asked counts the questions, Failed those that brought no view.
	Asked, Failed uint64
	// Views are the nodes with a view that is not too old to prove anything, the oldest
	// of which was taken at Oldest. Missing are the Ready Linux nodes without one.
	Views, Missing int
	Oldest         time.Time
}

// DefaultInterval and DefaultMaxAge are the times of an exporter that is given none.
const (
	DefaultInterval = 2 * time.Minute
	DefaultMaxAge   = 5 * time.Minute
)

// Exporter audits a cluster that is watched, again after each change, and serves
// the last audit. A request never reaches the cluster.
type Exporter struct {
	ExporterOptions

	current  atomic.Pointer[Audit]
	audits   atomic.Uint64
	errors   atomic.Uint64
	readings atomic.Uint64
	// pages holds one element for each page that is being written.
	pages chan struct{}
}

// maxPages is how many pages are written at the same time: those of large clusters
// take as much memory as an audit.
const maxPages = 2

// NewExporter returns an exporter.
func NewExporter(o ExporterOptions) *Exporter {
	o.Interval = cmp.Or(o.Interval, DefaultInterval)
	o.MaxAge = cmp.Or(o.MaxAge, DefaultMaxAge)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Exporter{ExporterOptions: o, pages: make(chan struct{}, maxPages)}
}

// Run watches and audits until ctx ends, and returns nil then.
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

// Audit is the result of one audit. It is never changed.
type Audit struct {
	// Report is what "calico-audit report" would say, muted findings set apart.
	Report *audit.Report

	// seen is when the state's TakenAt was first seen, by the clock here.
	seen time.Time
	// scrape is what it fixes of a scrape.
	scrape *rendered
	// usage makes the report's Usage, once, when it is first asked for.
	usage func() audit.Usage
}

// checkRun is how a check went.
type checkRun struct {
	id        string
	took      time.Duration
	evaluated bool
}

// staleFor returns how long nothing newer has been known, if that is longer than it
// may be, else 0.
func (e *Exporter) staleFor(a *Audit) time.Duration {
	if age := time.Since(a.seen); age > e.MaxAge {
		return age
	}
	return 0
}
