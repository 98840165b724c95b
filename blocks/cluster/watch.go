package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// WatchOptions are choices for watching an API server. The zero value is good for
// all.
type WatchOptions struct {
	// Log is told of outages and their ends; nil is silence.
	Log *slog.Logger
	// Now stands in for the API server's clock if that sends no Date header;
	// nil means time.Now.
	Now func() time.Time
}

// pace is how long a watch waits for what. Tests shorten it.
type pace struct {
	stalenessTimeout time.Duration // without proof that a kind is current, until that is a gap
	probeInterval    time.Duration // from one probe of freshness to the next
	probeTimeout     time.Duration // for its answer
	probeRetry       time.Duration // to the next probe when the last went wrong
	reconnectAfter   time.Duration // without any answer, until all connections are closed
	propagationDelay time.Duration // for what is on its way
	streamLifetime   time.Duration // of one watch request, more or less
	bookmarkTimeout  time.Duration // for a bookmark to reach what a list showed
	openTimeout      time.Duration // for a stream's beginning
	discover         time.Duration // from one discovery to the next
	confirm          time.Duration // until the discovery of a loss, or a refusal, is believed
	denied           time.Duration // to the next try when a right is missing
	backoff          time.Duration // first and
	maxBackoff       time.Duration // longest pause before a watch is begun again
}

// defaultPace asks little of the server: a list without objects of each kind every 5
// seconds, and a stream of each, which the server closes and the watch reopens after
// some minutes. Bookmarks come about once a minute.
var defaultPace = pace{
	stalenessTimeout: 30 * time.Second, probeInterval: 5 * time.Second, probeTimeout: 5 * time.Second, probeRetry: time.Second,
	reconnectAfter: 12 * time.Second, propagationDelay: 500 * time.Millisecond, streamLifetime: 4 * time.Minute,
	bookmarkTimeout: 150 * time.Second, openTimeout: 15 * time.Second,
	discover: 30 * time.Second, confirm: 2 * time.Second, denied: 10 * time.Second,
	backoff: 250 * time.Millisecond, maxBackoff: 5 * time.Second,
}

// Watch keeps a snapshot of a cluster current by watching its API server. Its
// methods may be called from several goroutines.
type Watch struct {
	client   *apiClient
	conns    *connrotation.Dialer
	log      *slog.Logger
	pace     pace
	pageSize int64
	whole    bool // long lists are read whole where the API server streams them
	override string
	lists    chan struct{} // a token for each list being read
	changed  chan struct{}
	// Something in them asks for discovery, and for a probe.
	rediscovery, wakeProbe chan struct{}

	rereading sync.Mutex

	mu       sync.Mutex
	running  bool
	active   *session // whose objects the snapshot holds; nil at first
	next     *session // that takes its place once it is whole; nil if none
	strings  *decode.SharedStrings
	cached   *blocks.Snapshot
	dirty    bool         // cached lacks something
	absences []blocks.Gap // the gaps of whole kinds in cached
	taken    time.Time    // up to when the whole was known to be current
	answered time.Time    // when the server last answered a probe
	trouble  error        // why the last were not answered well
	restarts map[blocks.Resource]uint64
}

// NewWatch prepares to watch the API server that cfg leads to. Neither the rate
// limit nor the timeout of cfg is used.
func NewWatch(cfg *rest.Config, opts WatchOptions) (*Watch, error) {
	w := &Watch{
		log: opts.Log, pace: defaultPace, pageSize: defaultPageSize, whole: true, override: os.Getenv(apiGroupVariable),
		lists: make(chan struct{}, concurrentLists), changed: make(chan struct{}, 1),
		rediscovery: make(chan struct{}, 1), wakeProbe: make(chan struct{}, 1),
		strings: &decode.SharedStrings{}, restarts: map[blocks.Resource]uint64{},
	}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	// The connections are this watch's own, to be closed when they are dead and
	// when it ends.
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = 0
	dial := cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	}
	w.conns = connrotation.NewDialer(dial)
	cfg.Dial = w.conns.DialContext
	client, err := newAPIClient(cfg, opts.Now)
	if err != nil {
		return nil, err
	}
	w.client = client
	return w, nil
}

// Run watches until ctx ends, and returns nil then. It tries again for ever
// whatever the server does. An error means that it runs already.
func (w *Watch) Run(ctx context.Context) error {
	w.mu.Lock()
	ran := w.running
	w.running = true
	w.mu.Unlock()
	if ran {
		return errors.New("watching the cluster: this watch runs already, or has run")
	}
	var probes sync.WaitGroup
	probes.Go(func() { w.probeFor(ctx) })
	w.discoverFor(ctx)
	probes.Wait()
	w.conns.CloseAll()
	w.client.rest.Client.CloseIdleConnections()
	return nil
}

// Changed delivers a signal after anything about the snapshot has changed: its
// objects, its gaps, or the time up to which it is known to be current. Several
// changes may be one signal.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Signal delivers such a signal for what is kept beside the snapshot.
func (w *Watch) Signal() { notify(w.changed) }

// notify puts a signal into a channel, unless there is one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Restarts counts, for each resource, how often its watch broke and had to be begun
// again.
func (w *Watch) Restarts() map[blocks.Resource]uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.restarts)
}

// Reread is [Kubernetes.Reread]: it lists the given resources, and returns prev with
// these in the place of what it held of them. It is an error if the API group that
// prev was read from is not the one to read any more. No nodes are asked.
func (w *Watch) Reread(ctx context.Context, prev *blocks.Snapshot, rs []blocks.Resource, _ []string) (*blocks.Snapshot, error) {
	w.rereading.Lock()
	defer w.rereading.Unlock()
	k := &Kubernetes{
		client:   w.client.apart(),
		pageSize: w.pageSize, whole: w.whole, override: w.override,
	}
	if err := k.discover(ctx); err != nil {
		return nil, err
	}
	if k.served.group != prev.Cluster.APIGroup {
		w.rediscover()
		return nil, fmt.Errorf("reading the cluster again: Calico's objects have moved from %s to %s", prev.Cluster.APIGroup, k.served.group)
	}
	return k.Reread(ctx, prev, rs)
}

// jitter returns a duration between three quarters of d and d, so that many
// watches that lose one server do not come back at once.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/4+1) }

// pause waits, unless ctx ends or wake has something.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
	}
}
