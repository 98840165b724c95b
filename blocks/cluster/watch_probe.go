package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/blocks/decode/protobuf"
)

// A stream without events tells nothing: the objects may rest, the connection may be
// dead, the API server may have lost its datastore, or its cache of this kind may be
// stuck. So each kind is probed every few seconds, by a list without objects. The
// server compares its cache of the kind with the datastore before it answers (since
// Kubernetes 1.31; older ones ask the datastore), and the list's resourceVersion is
// compared with that of the stream's last event or bookmark:
//
//   - A stream that has reached the list's is current as of the probe.
//   - One that has not, as that of a kind that rests, is current if it is open for long
//     enough, nothing that had come by it waits to be stored, all came from one server,
//     and the answer did not take as long as the server waits for a cache that lags:
//     up to the probe, less the time that events take to arrive.
//   - One that does not reach it although bookmarks would long have told is not to be
//     trusted: the kind is listed again. It is that bound, and not the probes, that
//     finds out a proxy which holds up a single stream. It holds once a bookmark has
//     reached a list within it: where the datastore seldom reports its progress (etcd's
//     --watch-progress-notify-interval, 10 minutes if it is not set) and the server, older
//     than 1.31, does not ask for it, bookmarks of a kind that rests stand still.
//   - One that is ahead of the list has outlived its datastore, which was restored from
//     a backup: the kind is listed again.
//
// It is one server that sends all of it where HTTP/2 has one connection for
// everything; a stream that is left on an older one, which may lead to another server,
// is moved. For HTTP/1.1, which needs a connection for each stream, it must be believed.

const (
	// probesAtOnce limits how many kinds are probed at once.
	probesAtOnce = 8
	// cacheTimeout is how long the API server waits for its cache before it has the
	// datastore answer in its place (k8s.io/apiserver storage/cacher, blockTimeout).
	cacheTimeout = 3 * time.Second
	// maxProbe limits what an answer may hold; objects have 2 MB at most.
	maxProbe = 16 << 20
)

// A probe is a question about one kind, and its answer.
type probe struct {
	k      *reflector
	stream time.Time // when the stream was opened that it is about
	before string    // the stream's resourceVersion when it was sent
	sent   time.Time
	list   string // the list's resourceVersion
	took   time.Duration
	conn   net.Conn
	err    error
}

func (w *Watch) probeFor(ctx context.Context) {
	for ctx.Err() == nil {
		probes := w.probes()
		var all errgroup.Group
		all.SetLimit(probesAtOnce)
		for _, p := range probes {
			all.Go(func() error { p.ask(ctx); return nil })
		}
		_ = all.Wait() // no function returns an error
		stored := w.stored(ctx, probes)
		if ctx.Err() != nil {
			return
		}
		pause(ctx, w.conclude(probes, stored), w.wakeProbe)
		// Streams that have just begun are to catch up first.
		pause(ctx, w.pace.propagationDelay, nil)
	}
}

// probes returns one for each kind whose stream is open.
func (w *Watch) probes() (out []*probe) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.newestKinds() {
		if !k.opened.IsZero() && time.Now().After(k.notBefore) {
			out = append(out, &probe{k: k, stream: k.opened})
		}
	}
	return out
}

// ask lists no object of the kind, by the name of one and its namespace: the server looks
// up no more than that object (k8s.io/apiserver registry/generic/registry, ListPredicate).
// A list with a limit makes older ones go through all objects (storage/cacher, listItems,
// of Kubernetes 1.31).
func (p *probe) ask(ctx context.Context) {
	l := p.k.lister()
	selector := "metadata.name=none"
	if p.k.kind.Namespaced {
		selector += ",metadata.namespace=none"
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.k.w.pace.probeTimeout, errSlow)
	defer cancel()
	p.k.w.mu.Lock()
	p.sent, p.before = time.Now(), p.k.revision
	p.k.w.mu.Unlock()
	body, conn, err := l.client.open(ctx, l.path(), url.Values{"fieldSelector": {selector}}, p.k.kind.Accept("List"))
	if err != nil {
		p.err = because(ctx, err)
		return
	}
	defer body.Close()
	answer, err := io.ReadAll(io.LimitReader(body, maxProbe))
	if err != nil {
		p.err = because(ctx, err)
		return
	}
	p.conn, p.took = conn, time.Since(p.sent)
	if p.list, p.err = listRevision(answer); p.err == nil && p.list == "" {
		p.err = fmt.Errorf("%w with a resource version", decode.ErrPage)
	}
}

func listRevision(body []byte) (string, error) {
	var list metav1.PartialObjectMetadataList
	if raw, err := protobuf.Unwrap(body); err == nil {
		err := list.Unmarshal(raw)
		return list.ResourceVersion, err
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return "", fmt.Errorf("%w: %w", decode.ErrPage, err)
	}
	return list.ResourceVersion, nil
}

// attentive is a stream's bytes; it counts up when it begins to wait for some, and
// again when they have come.
type attentive struct {
	io.Reader
	reads *atomic.Uint64
}

func (a *attentive) Read(p []byte) (int, error) {
	a.reads.Add(1)
	defer a.reads.Add(1)
	return a.Reader.Read(p)
}

// waitingFor is how long a stream must have waited for bytes: if some lay there, it
// would have them by then.
const waitingFor = time.Millisecond

// stored waits until what has come by the streams is stored, but no longer than the
// propagation delay. It returns those of which that is so.
func (w *Watch) stored(ctx context.Context, probes []*probe) map[*reflector]bool {
	stored, waiting := map[*reflector]bool{}, map[*reflector]uint64{}
	for end := time.Now().Add(w.pace.propagationDelay); ; pause(ctx, waitingFor, nil) {
		all := true
		for _, p := range probes {
			if reads := p.k.reads.Load(); !stored[p.k] {
				stored[p.k] = reads%2 == 1 && waiting[p.k] == reads && p.k.pending.Load() == 0
				waiting[p.k], all = reads, all && stored[p.k]
			}
		}
		if all || ctx.Err() != nil || time.Now().After(end) {
			return stored
		}
	}
}

// conclude draws the conclusions from probes, and returns when to probe again.
func (w *Watch) conclude(probes []*probe, stored map[*reflector]bool) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.Signal() // time passes, and makes gaps
	next, answered := w.pace.probeInterval, len(probes) == 0
	for _, p := range probes {
		k, code := p.k, codeOf(p.err)
		k.doubt = p.err
		answered = answered || p.err == nil || code != 0
		switch {
		case k.opened != p.stream:
			// It has ended meanwhile.
		case p.err == nil:
			if !k.prove(p, stored[k]) {
				next = 0 // a propagation delay passes anyway
			}
		case code == http.StatusNotFound, k.believes(code):
			k.stop(p.err) // discovery, or the list, will tell
			fallthrough
		case refusal(p.err):
			next = min(next, w.pace.probeRetry)
		default:
			k.notBefore = time.Now().Add(retryAfter(p.err))
			next = min(next, w.pace.probeRetry)
		}
	}
	var trouble error
	well := false
	for _, k := range w.newestKinds() {
		if !k.opened.IsZero() && !refusal(k.doubt) {
			trouble, well = cmp.Or(trouble, k.doubt), true
		}
	}
	switch {
	case trouble != nil && w.trouble == nil:
		w.log.Warn("the API server does not answer as it should", "error", trouble)
		w.trouble = trouble
	case trouble == nil && w.trouble != nil && well:
		w.log.Info("the API server answers again")
		w.trouble = nil
	}
	// Any answer proves that the connection lives, one of 429 or 503 as well.
	if answered {
		w.answered = time.Now()
	} else if time.Since(w.answered) > w.pace.reconnectAfter {
		w.answered = time.Now()
		w.conns.CloseAll()
	}
	return next
}

// refusal reports whether an error is about a single kind, and the server is well.
func refusal(err error) bool {
	code := codeOf(err)
	return code == http.StatusUnauthorized || code == http.StatusForbidden || code == http.StatusNotFound
}

// prove moves the time up to which the objects are known to be current. It returns
// false if another probe will tell more soon. The watch must be locked.
func (k *reflector) prove(p *probe, stored bool) bool {
	if order, err := resourceversion.CompareResourceVersion(p.list, p.before); err == nil && order < 0 {
		k.stop(errRelist)
		return true
	}
	current := reached(k.revision, p.list)
	switch {
	case k.unmet == "" || reached(k.revision, k.unmet):
		if k.unmet = ""; !current {
			k.unmet, k.unmetAt = p.list, p.sent
		}
	case k.bookmarks && p.sent.Sub(k.unmetAt) > k.w.pace.bookmarkTimeout:
		k.stop(errRelist)
		return true
	}
	switch delay := k.w.pace.propagationDelay; {
	case current:
		k.current = later(k.current, p.sent)
	case p.sent.Sub(k.opened) < delay:
		return false
	case k.conn != p.conn:
		k.stop(errMoved)
		return false
	case !stored:
		return false
	case p.took >= cacheTimeout:
		// Nothing is proven: the datastore may have answered for a cache that is stuck.
	default:
		k.current = later(k.current, p.sent.Add(-delay))
	}
	return true
}

// reached reports whether a resourceVersion is as new as another.
func reached(revision, other string) bool {
	order, err := resourceversion.CompareResourceVersion(revision, other)
	return err == nil && order >= 0
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
