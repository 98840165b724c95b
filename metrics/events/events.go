// Package events tells of findings by Kubernetes Events: on the node that a finding
// concerns, or else on one object for all. A finding has one Event for each severity
// that it had, under a name made of its fingerprint, so that no two writers can tell
// of it twice; as long as the finding stays it is brought up to date rarely. A
// finding that has ended, by an audit whose check gave its verdict, is told of by
// one more.
//
// Of several replicas with the same Lease one writes at a time. The next one goes on
// with the Events that it finds. Nothing that fails here is anybody else's trouble:
// it is logged, counted, and tried again.
package events

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/metrics"
)

// component is who the API server is told writes.
const component = blocks.FieldManager

// Options are choices for writing Events.
type Options struct {
	// Namespace and Lease name the Lease by which replicas agree on the one of them
	// that writes. It is made where it does not exist.
	Namespace, Lease string
	// Severity is the least that a finding must have to be told of; none means
	// [audit.Error].
	Severity state.Severity
	// Object is what Events are about that concern no single node that exists; the
	// zero value is the Lease.
	Object Object
	// Refresh is how long an Event of a finding that stays is left alone before it
	// is written again, so that the API server, which drops Events after an hour
	// unless told otherwise (--event-ttl), keeps it. Zero means [DefaultRefresh].
	Refresh time.Duration
	// Log is told what goes wrong, once until it goes well again.
	Log *slog.Logger
}

// DefaultRefresh is when the Event of a finding that stays is written again: well
// within the hour that API servers keep Events for by default.
const DefaultRefresh = 45 * time.Minute

// pace is how fast Events are written, and how replicas take turns. Tests shorten it.
type pace struct {
	// burst Events are written at once, then one every interval.
	burst    int
	interval time.Duration
	// quiet is the least time between two writes about one finding: what comes and
	// goes within it is not told of.
	quiet time.Duration
	// request bounds one request.
	request time.Duration
	// backoff is the first pause after a failure; it doubles up to most.
	backoff, most time.Duration
	// lease, renew and retry are leader election's: how long a holder is believed
	// that does not renew, how long one tries to renew, and how often.
	lease, renew, retry time.Duration
}

// A Lease renewed every ten seconds costs the API server next to nothing, and that
// an Event comes a minute late when a replica dies hurts no one.
var defaultPace = pace{
	burst: 25, interval: 5 * time.Second, quiet: time.Minute, request: 10 * time.Second,
	backoff: time.Second, most: 2 * time.Minute,
	lease: 60 * time.Second, renew: 40 * time.Second, retry: 10 * time.Second,
}

// Writer writes Events.
type Writer struct {
	events   core.EventsGetter
	leases   coordination.LeasesGetter
	metadata metadata.Interface
	mapper   meta.RESTMapper
	opts     Options
	pace     pace

	instance string // the host that writes
	identity string // the replica, like no other
	limiter  flowcontrol.RateLimiter
	troubles troubles
	wants    atomic.Pointer[wants]
	wake     chan struct{}

	// These are the leader's alone.
	object   target
	conflict key // the Event that turned out to exist

	written, failed atomic.Uint64
	waiting         atomic.Int64
	leading         atomic.Bool
}

// New prepares to write Events to the API server that cfg leads to. Nothing is asked
// of the server yet.
func New(cfg *rest.Config, opts Options) (*Writer, error) { return newWriter(cfg, opts, defaultPace) }

func newWriter(cfg *rest.Config, opts Options, pace pace) (*Writer, error) {
	if opts.Namespace == "" || opts.Lease == "" {
		return nil, errors.New("writing Events: the Lease has no name or no namespace")
	}
	opts.Severity = cmp.Or(opts.Severity, state.Error)
	opts.Refresh = cmp.Or(opts.Refresh, DefaultRefresh)
	opts.Object = cmp.Or(opts.Object, leaseObject(opts.Namespace, opts.Lease))
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	host, _ := os.Hostname()
	host = cmp.Or(host, component)
	w := &Writer{
		opts: opts, pace: pace,
		instance: host, identity: host + "_" + strings.ToLower(rand.Text()[:10]),
		limiter:  flowcontrol.NewTokenBucketRateLimiter(float32(1/pace.interval.Seconds()), pace.burst),
		troubles: troubles{log: opts.Log, now: map[troubleKey]string{}},
		wake:     make(chan struct{}, 1),
	}
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout, cfg.QPS = pace.request, -1 // the limiter above is the limit
	if err := w.connect(cfg); err != nil {
		return nil, fmt.Errorf("writing Events: %w", err)
	}
	return w, nil
}

func (w *Writer) connect(cfg *rest.Config) error {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	if w.events, err = core.NewForConfigAndClient(cfg, client); err != nil {
		return err
	}
	if w.leases, err = coordination.NewForConfigAndClient(cfg, client); err != nil {
		return err
	}
	if w.metadata, err = metadata.NewForConfigAndClient(cfg, client); err != nil {
		return err
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, client)
	if err != nil {
		return err
	}
	served := memory.NewMemCacheClient(d)
	w.mapper = restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(served), served, nil)
	return nil
}

// Tell takes what an audit found, without the muted findings, and returns at once.
// Each call takes the place of the one before. The report must not be changed
// afterwards.
func (w *Writer) Tell(r *audit.Report) {
	w.wants.Store(newWants(r, w.opts.Severity))
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Stats returns what became of Events so far.
func (w *Writer) Stats() metrics.EventCounts {
	return metrics.EventCounts{Written: w.written.Load(), Failed: w.failed.Load(), Waiting: w.waiting.Load(), Leading: w.leading.Load()}
}

// Run writes Events whenever this replica holds the Lease. It returns when ctx
// ends, and has released the Lease by then if the API server could be reached.
func (w *Writer) Run(ctx context.Context) {
	for ctx.Err() == nil {
		w.term(ctx)
	}
}
