package datastore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/calico-audit/calico-audit/audit"
)

// EventOptions are choices for writing Events.
type EventOptions struct {
	// Namespace and Lease name the Lease by which replicas agree on the one of them
	// that writes. It is made where it does not exist.
	Namespace, Lease string
	// Severity is the least that a finding must have to be told of; none means
	// [audit.Error].
	Severity audit.Severity
	// Object is what Events are about that concern no single node that exists; the
	// zero value is the Lease.
	Object EventObject
	// Refresh is how long an Event of a finding that stays is left alone before it
	// is written again, so that the API server, which drops Events after an hour
	// unless told otherwise (--event-ttl), keeps it. Zero means
	// [DefaultEventRefresh].
	Refresh time.Duration
	// Log is told what goes wrong, once until it goes well again.
	Log *slog.Logger
}

// DefaultEventRefresh is when the Event of a finding that stays is written again:
// well within the hour that API servers keep Events for by default.
const DefaultEventRefresh = 45 * time.Minute

// eventPace is how fast Events are written, and how replicas take turns. Tests
// shorten it.
type eventPace struct {
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
// an Event comes a minute late when a replica dies hurts nobody.
var defaultEventPace = eventPace{
	burst: 25, interval: 5 * time.Second, quiet: time.Minute, request: 10 * time.Second,
	backoff: time.Second, most: 2 * time.Minute,
	lease: 60 * time.Second, renew: 40 * time.Second, retry: 10 * time.Second,
}

// EventStats is what became of Events so far.
type EventStats struct {
	// Written counts the Events created or brought up to date, Failed the requests
	// for Events or for the Lease that failed.
	Written, Failed uint64
	// Waiting is how many the rate limit holds back now.
	Waiting int64
	// Leading is true while this replica is the one that writes.
	Leading bool
}

// Events tells of findings by Kubernetes Events: on the node that a finding
// concerns, or else on one object for all. A finding has one Event for each severity
// that it had, under a name made of its fingerprint, so that no two writers can tell
// of it twice; as long as the finding stays it is brought up to date rarely. A
// finding that has ended, by an audit whose check gave its verdict, is told of by
// one more.
//
// Of several replicas with the same Lease one writes at a time. The next one goes on
// with the Events that it finds. Nothing that fails here is anybody else's trouble:
// it is logged, counted, and tried again.
type Events struct {
	client *client
	config *rest.Config
	opts   EventOptions
	pace   eventPace

	instance string // the host that writes
	identity string // the replica, like no other
	limiter  flowcontrol.RateLimiter
	lock     *eventLock
	troubles troubles
	wants    atomic.Pointer[eventWants]
	wake     chan struct{}

	// These are the leader's alone.
	object   eventTarget
	conflict eventKey // the Event that turned out to exist

	written, failed atomic.Uint64
	waiting         atomic.Int64
	leading         atomic.Bool
}

// NewEvents prepares to write Events to the API server that cfg leads to. Nothing
// is asked of the server yet.
func NewEvents(cfg *rest.Config, opts EventOptions) (*Events, error) {
	return newEvents(cfg, opts, defaultEventPace)
}

func newEvents(cfg *rest.Config, opts EventOptions, pace eventPace) (*Events, error) {
	if opts.Namespace == "" || opts.Lease == "" {
		return nil, errors.New("writing Events: the Lease has no name or no namespace")
	}
	opts.Severity = cmp.Or(opts.Severity, audit.Error)
	opts.Refresh = cmp.Or(opts.Refresh, DefaultEventRefresh)
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Object == (EventObject{}) {
		opts.Object = leaseObject(opts.Namespace, opts.Lease)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = pace.request
	c, err := newClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("writing Events: %w", err)
	}
	c.wait.request = pace.request
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = manager
	}
	e := &Events{
		client: c, config: cfg, opts: opts, pace: pace,
		instance: host, identity: host + "_" + randomName(),
		limiter:  flowcontrol.NewTokenBucketRateLimiter(float32(1/pace.interval.Seconds()), pace.burst),
		troubles: troubles{log: opts.Log},
		wake:     make(chan struct{}, 1),
	}
	if e.lock, err = e.newLock(cfg); err != nil {
		return nil, fmt.Errorf("writing Events: %w", err)
	}
	return e, nil
}

// Tell takes what an audit found, without the muted findings, and returns at once.
// Each call takes the place of the one before. The report must not be changed
// afterwards.
func (e *Events) Tell(r *audit.Report) {
	e.wants.Store(newEventWants(r, e.opts.Severity))
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Stats returns what became of Events so far.
func (e *Events) Stats() EventStats {
	return EventStats{Written: e.written.Load(), Failed: e.failed.Load(), Waiting: e.waiting.Load(), Leading: e.leading.Load()}
}

// Run writes Events whenever this replica holds the Lease. It returns when ctx
// ends, and has released the Lease by then if the API server could be reached.
func (e *Events) Run(ctx context.Context) {
	for ctx.Err() == nil {
		e.term(ctx)
	}
	e.client.rest.Client.CloseIdleConnections()
}
