package cluster

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// WatchOptions are options for watching an API server. The zero value is valid.
type WatchOptions struct {
	// Log receives outages and their ends; may be nil.
	Log *slog.Logger
	// Now replaces the API server's clock if that sends no Date header; nil means time.Now.
	Now func() time.Time
	// CalicoElsewhere is true if Calico keeps its objects in another datastore. Only other
	// kinds are watched then.
	CalicoElsewhere bool
}

// pace holds the timeouts and intervals of a watch. Tests shorten them.
type pace struct {
	stalenessTimeout time.Duration // without proof that a kind is current, before it is a gap
	probeInterval    time.Duration // between probes of freshness
	probeTimeout     time.Duration // for the response to a probe
	probeRetry       time.Duration // before the next probe after a failed one
	reconnectAfter   time.Duration // without any response, before all connections are closed
	propagationDelay time.Duration // for events on their way
	streamLifetime   time.Duration // of one watch request, approximately
	bookmarkTimeout  time.Duration // for a bookmark to reach the revision of a list
	openTimeout      time.Duration // for opening a stream
	discover         time.Duration // between discoveries
	confirm          time.Duration // before a loss or a refusal is accepted as real
	denied           time.Duration // before the next try if a right is missing
	backoff          time.Duration // first pause before a watch restarts
	maxBackoff       time.Duration // longest pause before a watch restarts
}

// defaultPace puts little load on the server: every 5 seconds, a list without objects for
// each kind, and one stream per kind, which the server closes and the watch reopens after
// some minutes. Bookmarks come about once a minute.
var defaultPace = pace{
	stalenessTimeout: 30 * time.Second, probeInterval: 5 * time.Second, probeTimeout: 5 * time.Second, probeRetry: time.Second,
	reconnectAfter: 12 * time.Second, propagationDelay: 500 * time.Millisecond, streamLifetime: 4 * time.Minute,
	bookmarkTimeout: 150 * time.Second, openTimeout: 15 * time.Second,
	discover: 30 * time.Second, confirm: 2 * time.Second, denied: 10 * time.Second,
	backoff: 250 * time.Millisecond, maxBackoff: 5 * time.Second,
}

// Watch keeps a snapshot of a cluster current by watching its API server. It is safe for
// concurrent use.
type Watch struct {
	client   *apiClient
	conns    *connrotation.Dialer
	log      *slog.Logger
	pace     pace
	pageSize int64
	whole    bool // long lists are read whole if the API server streams them
	override string
	// elsewhere is the option CalicoElsewhere.
	elsewhere bool
	lists     chan struct{} // one token per list being read
	changed   chan struct{}
	// Signals for discovery and for a probe.
	rediscovery, wakeProbe chan struct{}

	rereading sync.Mutex

	mu       sync.Mutex
	running  bool
	active   *session // the session whose objects the snapshot holds; nil at first
	next     *session // replaces active once it is complete; may be nil
	strings  *decode.SharedStrings
	cached   *blocks.Snapshot
	dirty    bool         // cached is outdated
	absences []blocks.Gap // gaps of whole kinds in cached
	taken    time.Time    // freshness time: all kinds are current at least as of it
	answered time.Time    // the last response to a probe
	trouble  error        // the error of the last failed probes
	restarts map[blocks.Resource]uint64
}

// NewWatch returns a watch of the API server of cfg. The rate limit and the timeout of cfg
// are ignored.
func NewWatch(cfg *rest.Config, opts WatchOptions) (*Watch, error) {
	w := &Watch{
		log: opts.Log, pace: defaultPace, pageSize: defaultPageSize, whole: true, override: os.Getenv(apiGroupVariable),
		lists: make(chan struct{}, concurrentLists), changed: make(chan struct{}, 1),
		rediscovery: make(chan struct{}, 1), wakeProbe: make(chan struct{}, 1),
		strings: &decode.SharedStrings{}, restarts: map[blocks.Resource]uint64{}, elsewhere: opts.CalicoElsewhere,
	}
	if w.elsewhere {
		w.override = unread
	}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	// The watch has its own connections, so that it can close them when they are dead and
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

// Changed delivers a signal after any change of the snapshot: its objects, its gaps or its
// freshness time (TakenAt). Several changes may share one signal.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Signal sends the same signal, for data kept in addition to the snapshot.
func (w *Watch) Signal() { notify(w.changed) }

// notify sends a signal to a channel, unless one is pending.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Restarts returns, by resource, how often its watch broke and had to restart.
func (w *Watch) Restarts() map[blocks.Resource]uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.restarts)
}

// jitter returns a duration between three quarters of d and d, so that many watches do not
// return to a server at once.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/4+1) }

// A session watches every kind in one API group. If Calico's objects move to the other
// group, a new session replaces the old one once it has read every kind, so that no
// snapshot mixes both.
type session struct {
	w      *Watch
	cancel context.CancelFunc
	kinds  []*reflector
	done   sync.WaitGroup
	began  time.Time

	// Guarded by the watch's mutex: the served resources, and whether long lists should be
	// read in one response.
	served  *served
	streams bool
}

// A reflector keeps the objects of one kind current through client-go's Reflector. It is
// the Reflector's ListerWatcher and its store.
type reflector struct {
	w    *Watch
	s    *session
	kind *decode.Kind
	wake chan struct{} // ends a pause
	// reads is odd while the stream waits for bytes (see attentive). pending counts events
	// that are decoded but not stored.
	reads   atomic.Uint64
	pending atomic.Int64

	// Only the Reflector's goroutine uses these: a list whose watch is not open yet (may be
	// nil), and the number of consecutive streams that failed.
	listed   *listedObjects
	failures int

	// The following fields are guarded by the watch's mutex.
	store     *decode.ObjectStore
	known     bool                    // listed once, or known to be absent
	absent    bool                    // known not to be served, or not permitted
	missing   string                  // the reason; empty for an optional kind
	revision  string                  // resourceVersion of the last event or bookmark
	opened    time.Time               // when the stream started; zero without one
	current   time.Time               // freshness time: the objects are current at least as of it
	trouble   error                   // why no stream is open
	doubt     error                   // why the last probe proved nothing
	notBefore time.Time               // earliest time of the next probe, by Retry-After
	unmet     string                  // resourceVersion of a list that the stream has not reached yet
	unmetAt   time.Time               // time of that list's request
	bookmarks bool                    // bookmarks have once reached a list in time
	stalled   string                  // "not current since …" while the kind is stale
	why       error                   // the cause of the staleness, if known
	stop      context.CancelCauseFunc // ends the stream
	conn      net.Conn                // the stream's connection, for HTTP/2
}

// listedObjects holds the result of a list, requested at began. To the Reflector it is a
// single object, regardless of the number of records.
type listedObjects struct {
	metav1.PartialObjectMetadata
	*lister
	began time.Time
}

// A changedObject is the new state of an object.
type changedObject struct {
	metav1.PartialObjectMetadata
	now *decode.Objects
}

func (w *Watch) rediscover() { notify(w.rediscovery) }

// sharing returns the shared strings. If they hold many names of deleted objects, it returns an
// empty set.
func (w *Watch) sharing() *decode.SharedStrings {
	w.mu.Lock()
	defer w.mu.Unlock()
	objects := 0
	for _, s := range []*session{w.active, w.next} {
		if s != nil {
			for _, k := range s.kinds {
				objects += k.store.Len()
			}
		}
	}
	if w.strings.Len() > 100_000+8*objects {
		w.strings = &decode.SharedStrings{}
	}
	return w.strings
}

// settled activates a session once every kind is known. The watch must be locked.
func (s *session) settled() {
	if s.w.next != s {
		return
	}
	for _, k := range s.kinds {
		if !k.known {
			return
		}
	}
	s.w.active, s.w.next = s, nil
	s.w.dirty = true
}
