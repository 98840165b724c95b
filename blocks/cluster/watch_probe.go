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

	"github.com/calico-audit/calico-audit/blocks/cluster/request"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/blocks/decode/protobuf"
)

// A stream without events is ambiguous: the objects may not change, the connection may be
// dead, the API server may have lost its datastore, or its cache of the kind may be stuck.
// So each kind is probed every few seconds with a list without objects. Before it answers,
// the server compares its cache of the kind with the datastore (since Kubernetes 1.31;
// older servers ask the datastore). The list's resourceVersion is then compared with that
// of the stream's last event or bookmark:
//
//   - A stream that has reached the list's revision is current as of the probe.
//   - A stream that has not, like that of a quiet kind, is current up to the probe minus the
//     propagation delay, under four conditions: it has been open long enough, all of its events
//     are stored, list and stream come from one server, and the response took less time than the
//     server waits for a lagging cache.
//   - If a stream does not reach the list's revision although bookmarks should have, it is not
//     trusted: the kind is listed again. This limit, not the probes, detects a proxy that delays
//     a single stream. It applies only after a bookmark has once reached a list within the
//     limit. Bookmarks of a quiet kind do not advance if the datastore seldom reports its
//     progress (etcd's --watch-progress-notify-interval, 10 minutes by default) and the server,
//     older than 1.31, does not request it.
//   - A stream that is ahead of the list has outlived its datastore, which was restored from a
//     backup: the kind is listed again.
//
// With HTTP/2, one connection serves all requests, so all responses come from one server. A
// stream on an older connection, which may lead to another server, is moved. HTTP/1.1 needs
// one connection per stream, and is trusted to reach the same server.

const (
	// probesAtOnce limits concurrent probes.
	probesAtOnce = 8
	// cacheTimeout is how long the API server waits for its cache before it answers from
	// the datastore instead (k8s.io/apiserver storage/cacher, blockTimeout).
	cacheTimeout = 3 * time.Second
	// maxProbe limits the size of a response in bytes; an object has at most 2 MB.
	maxProbe = 16 << 20
)

// A probe is a freshness probe of one kind, with its result.
type probe struct {
	k      *reflector
	stream time.Time // opening time of the probed stream
	before string    // the stream's resourceVersion when the probe was sent
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
		_ = all.Wait() // the functions return no errors
		stored := w.stored(ctx, probes)
		if ctx.Err() != nil {
			return
		}
		request.Pause(ctx, w.conclude(probes, stored), w.wakeProbe)
		// Streams that have just started should catch up first.
		request.Pause(ctx, w.pace.propagationDelay, nil)
	}
}

// probes returns a probe for each kind with an open stream.
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

// ask sends a list that matches no object, by name and namespace: the server then looks up
// only that one object (k8s.io/apiserver registry/generic/registry, ListPredicate). A list
// with a limit would make older servers iterate over all objects (storage/cacher,
// listItems, of Kubernetes 1.31).
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

// attentive is the body of a stream. It increments reads before and after each Read, so the
// counter is odd while the stream waits for bytes.
type attentive struct {
	io.Reader
	reads *atomic.Uint64
}

func (a *attentive) Read(p []byte) (int, error) {
	a.reads.Add(1)
	defer a.reads.Add(1)
	return a.Reader.Read(p)
}

// waitingFor is how long a stream must have waited for bytes: by then it would have read
// any available bytes.
const waitingFor = time.Millisecond

// stored waits until all received events are stored, at most for the propagation delay. The
// result contains the kinds that have stored theirs.
func (w *Watch) stored(ctx context.Context, probes []*probe) map[*reflector]bool {
	stored, waiting := map[*reflector]bool{}, map[*reflector]uint64{}
	for end := time.Now().Add(w.pace.propagationDelay); ; request.Pause(ctx, waitingFor, nil) {
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

// conclude evaluates probes, and returns the time until the next ones.
func (w *Watch) conclude(probes []*probe, stored map[*reflector]bool) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.Signal() // gaps may appear as time passes
	next, answered := w.pace.probeInterval, len(probes) == 0
	for _, p := range probes {
		k, code := p.k, codeOf(p.err)
		k.doubt = p.err
		answered = answered || p.err == nil || code != 0
		switch {
		case k.opened != p.stream:
			// The stream has ended meanwhile.
		case p.err == nil:
			if !k.prove(p, stored[k]) {
				next = 0 // the propagation delay follows in any case
			}
		case code == http.StatusNotFound, k.believes(code):
			k.stop(p.err) // discovery or the list decides
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
	// Any response proves that the connection works, even 429 or 503.
	if answered {
		w.answered = time.Now()
	} else if time.Since(w.answered) > w.pace.reconnectAfter {
		w.answered = time.Now()
		w.conns.CloseAll()
	}
	return next
}

// refusal reports whether an error concerns a single kind while the server is healthy.
func refusal(err error) bool {
	code := codeOf(err)
	return code == http.StatusUnauthorized || code == http.StatusForbidden || code == http.StatusNotFound
}

// prove advances the freshness time of the objects. It returns false if another probe soon
// could prove more. The watch must be locked.
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
		// No proof: the datastore may have answered in place of a stuck cache.
	default:
		k.current = later(k.current, p.sent.Add(-delay))
	}
	return true
}
