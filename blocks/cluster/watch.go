package cluster

import (
	"cmp"
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
	// Patience is how long objects may not be known to be current before that is
	// a gap; 0 means 30 seconds.
	Patience time.Duration
	// PageSize is how many objects a page of a list holds; 0 means 500.
	PageSize int64
}

// pace is how long a watch waits for what. Tests shorten it.
type pace struct {
	patience time.Duration // without proof that a kind is current, until that is a gap
	beat     time.Duration // from one question whether the server still answers to the next
	answer   time.Duration // for its answer
	hurry    time.Duration // to the next question when the last went wrong
	stall    time.Duration // of such trouble, until all connections are closed
	settle   time.Duration // for what is on its way, as after a watch was begun again
	life     time.Duration // of one stream, more or less
	silence  time.Duration // on a stream that had a bookmark before
	header   time.Duration // for a stream's beginning
	discover time.Duration // from one discovery to the next
	confirm  time.Duration // until the discovery of a loss is believed
	denied   time.Duration // to the next try when a right is missing
	retry    time.Duration // first and
	longest  time.Duration // longest pause before a watch is begun again
}

// defaultPace asks little of the server: a question every 5 seconds that reads one
// object, and a stream of each kind, which the server closes and the watch reopens
// after some minutes. Bookmarks come about once a minute.
var defaultPace = pace{
	patience: 30 * time.Second, beat: 5 * time.Second, answer: 5 * time.Second, hurry: time.Second, stall: 12 * time.Second,
	settle: 500 * time.Millisecond, life: 4 * time.Minute, silence: 150 * time.Second, header: 15 * time.Second,
	discover: 30 * time.Second, confirm: 2 * time.Second, denied: 10 * time.Second,
	retry: 250 * time.Millisecond, longest: 5 * time.Second,
}

const watchPageSize = 500

// Watch keeps a snapshot of a cluster current by watching its API server. Its
// methods may be called from several goroutines.
type Watch struct {
	client   *apiClient
	conns    *connrotation.Dialer
	log      *slog.Logger
	pace     pace
	pageSize int64
	override string
	lists    chan struct{} // a token for each list being read
	changed  chan struct{}
	kick     chan struct{} // asks for discovery
	wakeBeat chan struct{}

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
	asked    time.Time    // when the last question was sent that was answered
	trouble  error        // why the last was not
	restarts map[blocks.Resource]uint64
}

// NewWatch prepares to watch the API server that cfg leads to. Neither the rate
// limit nor the timeout of cfg is used.
func NewWatch(cfg *rest.Config, opts WatchOptions) (*Watch, error) {
	w := &Watch{
		log: opts.Log, pace: defaultPace, pageSize: cmp.Or(opts.PageSize, watchPageSize), override: os.Getenv(apiGroupVariable),
		lists: make(chan struct{}, concurrentLists), changed: make(chan struct{}, 1),
		kick: make(chan struct{}, 1), wakeBeat: make(chan struct{}, 1),
		strings: &decode.SharedStrings{}, restarts: map[blocks.Resource]uint64{},
	}
	w.pace.patience = cmp.Or(opts.Patience, w.pace.patience)
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
	var beats sync.WaitGroup
	beats.Go(func() { w.beatFor(ctx) })
	w.discoverFor(ctx)
	beats.Wait()
	w.conns.CloseAll()
	w.client.rest.Client.CloseIdleConnections()
	return nil
}

// Changed delivers a signal after anything about the snapshot has changed: its
// objects, its gaps, or the time up to which it is known to be current. Several
// changes may be one signal.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

func (w *Watch) signal() {
	select {
	case w.changed <- struct{}{}:
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
// prev was read from is not the one to read any more.
func (w *Watch) Reread(ctx context.Context, prev *blocks.Snapshot, rs []blocks.Resource) (*blocks.Snapshot, error) {
	w.rereading.Lock()
	defer w.rereading.Unlock()
	k := &Kubernetes{
		client:   &apiClient{rest: w.client.rest, clock: w.client.clock, wait: w.client.wait},
		pageSize: w.pageSize, report: func(Progress) {}, override: w.override,
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
