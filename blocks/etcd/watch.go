package etcd

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-audit/calico-audit/blocks"
)

// pace holds the timeouts and intervals of a watch. Tests shorten them.
type pace struct {
	probe     time.Duration // between two proofs that the objects are current
	gather    time.Duration // after an event, for others of the same moment
	staleness time.Duration // without a proof, before the objects are a gap
	backoff   time.Duration // before everything is read again
}

var defaultPace = pace{probe: 5 * time.Second, gather: 200 * time.Millisecond, staleness: 30 * time.Second, backoff: time.Second}

// Watch keeps the content of Calico's etcd current. It watches each range from the revision of a
// reading. If the watches cannot continue, such as after a compaction, it reads everything again.
// It is safe for concurrent use.
//
// Events take effect when etcd has confirmed, by progress notifications, that every range has
// delivered its events up to some revision: the objects are always those of one revision. etcd
// before 3.4.31 and 3.5.13 may confirm a revision before its events, which then take effect late,
// or not at all, so that everything is read again (etcd issues 15220 and 17507; Kubernetes does not
// ask such releases: apiserver pkg/storage/feature).
//
// The objects are proven current as of the time of a linearizable read once the watches have
// reached that read's revision. A member without a leader cannot answer the read, and one that is
// behind does not reach it.
type Watch struct {
	client  *Client
	alone   bool
	log     *slog.Logger
	pace    pace
	changed chan struct{}
	wake    chan struct{} // asks for a proof

	mu       sync.Mutex
	held     *held         // nil before the first reading
	current  time.Time     // freshness time, by the local clock
	trouble  error         // why the freshness time does not advance
	advanced chan struct{} // closed when the freshness time or the objects change
	restarts uint64
	// last is the last result of Joined or Snapshot, without the gaps that age adds.
	last struct {
		of           *held
		changes      uint64
		base, result *blocks.Snapshot
	}
}

// NewWatch returns a watch that takes over the connection of a client. alone is true if the
// cluster's Kubernetes API is not read.
func NewWatch(c *Client, alone bool, log *slog.Logger) *Watch {
	return &Watch{client: c, alone: alone, log: log, pace: defaultPace, changed: make(chan struct{}, 1), wake: make(chan struct{}, 1), advanced: make(chan struct{})}
}

var (
	// errEnded means that a watch ended.
	errEnded = errors.New("a watch ended")
	// errStuck means that the watches do not reach etcd's revision.
	errStuck = errors.New("the watches do not reach the revision that etcd has")
	// errAgain means that everything must be read again, although nothing failed.
	errAgain = errors.New("reading again")
)

// Run watches until ctx ends, and then returns nil. It returns an error if etcd refuses the user
// at first; else it retries forever.
func (w *Watch) Run(ctx context.Context) error {
	defer func() { _ = w.client.Close() }() // all requests have ended
	for {
		err := w.follow(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errAgain):
			wait(ctx, w.pace.backoff)
			continue
		case w.Revision() == 0 && errors.Is(err, blocks.ErrDenied):
			return err
		}
		w.mu.Lock()
		w.restarts++
		w.mu.Unlock()
		w.troubled(err)
		wait(ctx, w.pace.backoff)
	}
}

// wait waits for a time or the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Changed receives a signal after each change of the objects, and when their freshness may have
// changed.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Restarts counts how often everything had to be read again after a failure.
func (w *Watch) Restarts() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.restarts
}

// Revision returns the revision of the objects; 0 before the first reading.
func (w *Watch) Revision() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held == nil {
		return 0
	}
	return w.held.Revision
}

// CatchUp waits until the objects are proven current as of the call.
func (w *Watch) CatchUp(ctx context.Context) error {
	began := time.Now()
	over := time.After(w.pace.staleness)
	for {
		w.mu.Lock()
		advanced, done, err := w.advanced, !w.current.Before(began), w.trouble
		w.mu.Unlock()
		if done {
			return nil
		}
		notify(w.wake)
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-advanced:
		case <-over:
			return w.client.failed(errors.Join(context.DeadlineExceeded, err))
		}
	}
}

func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// moved reports a change of the objects or of the freshness time. The watch must be locked.
func (w *Watch) moved() {
	close(w.advanced)
	w.advanced = make(chan struct{})
	notify(w.changed)
}

// troubled records why the freshness time does not advance; nil if it does.
func (w *Watch) troubled(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil && w.trouble == nil:
		w.log.Warn("Calico's etcd cannot be watched", "error", err)
	case err == nil && w.trouble != nil:
		w.log.Info("Calico's etcd is watched again")
	}
	w.trouble = err
	notify(w.changed)
}

// A delivery is an answer to the watch of a range.
type delivery struct {
	of     int // the range
	answer clientv3.WatchResponse
	ended  bool
}

// maxProofs is the number of proofs that may be open.
const maxProofs = 100

// A proof is the revision that a linearizable read returned.
type proof struct {
	revision int64
	sent     time.Time
}

// follow reads everything, and watches until an error or the end of ctx.
func (w *Watch) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	conn, err := w.client.Connect(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	r, err := w.client.Read(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.held, w.current = hold(r, w.alone), began
	w.moved()
	w.mu.Unlock()
	w.troubled(nil)

	var ranges, denied []string
	for _, s := range append(slices.Clone(stores), store{key: RunPrefix}) {
		if r.denied[s.key] {
			denied = append(denied, s.key)
		} else {
			ranges = append(ranges, s.key)
		}
	}
	deliveries, proofs, failed := make(chan delivery), make(chan proof), make(chan error)
	for i, key := range ranges {
		answers := conn.Watch(ctx, key, clientv3.WithRev(r.Revision+1), clientv3.WithRange(endOf(key)))
		all.Go(func() {
			for a := range answers {
				send(ctx, deliveries, delivery{of: i, answer: a})
			}
			send(ctx, deliveries, delivery{of: i, ended: true})
		})
	}
	confirm := make(chan struct{}, 1)
	all.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-confirm:
				_ = conn.RequestProgress(ctx) // without an answer, the proof is missing
			}
		}
	})
	all.Go(func() { w.probe(ctx, conn, ranges[0], denied, proofs, failed) })
	return w.deliver(ctx, slices.Repeat([]int64{r.Revision}, len(ranges)), deliveries, proofs, failed, confirm)
}

// send sends a value, unless ctx ends.
func send[T any](ctx context.Context, to chan<- T, value T) {
	select {
	case to <- value:
	case <-ctx.Done():
	}
}

// probe sends a proof now and then, and an error if everything must be read again because a denied
// range may be read now.
func (w *Watch) probe(ctx context.Context, conn clientv3.KV, key string, denied []string, proofs chan<- proof, failed chan<- error) {
	for ctx.Err() == nil {
		sent := time.Now()
		request, cancel := context.WithTimeout(ctx, w.pace.probe)
		answer, err := conn.Get(request, key, clientv3.WithCountOnly())
		cancel()
		if err == nil {
			send(ctx, proofs, proof{answer.Header.Revision, sent})
		} else if ctx.Err() == nil {
			w.troubled(w.client.failed(err))
		}
		for _, key := range denied {
			request, cancel := context.WithTimeout(ctx, w.pace.probe)
			if _, err := conn.Get(request, key, clientv3.WithRange(endOf(key)), clientv3.WithLimit(1), clientv3.WithKeysOnly()); err == nil {
				send(ctx, failed, errAgain)
			}
			cancel()
		}
		select {
		case <-ctx.Done():
		case <-w.wake:
		case <-time.After(w.pace.probe):
		}
	}
}

// deliver handles the events of the watches, until an error or the end of ctx. reached holds the
// revisions up to which each range has delivered its events.
func (w *Watch) deliver(ctx context.Context, reached []int64, deliveries <-chan delivery, proofs <-chan proof, failed <-chan error, confirm chan<- struct{}) error {
	var pending []*clientv3.Event
	var open []proof
	var last, since time.Time // the last proof came, and none has been met since
	gather := time.NewTimer(w.pace.gather)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case p := <-proofs:
			if now := time.Now(); len(open) == 0 || now.Sub(last) > 3*w.pace.probe { // after an outage, the watches resume
				since = now
			} else if now.Sub(since) > w.pace.staleness {
				return w.client.failed(errStuck)
			}
			last = time.Now()
			// etcd confirms nothing to a watch that waits for a future revision.
			if open = w.prove(slices.Min(reached), append(open[max(0, len(open)-maxProofs):], p)); len(open) > 0 {
				notify(confirm)
			}
		case <-gather.C:
			notify(confirm)
		case d := <-deliveries:
			err := d.answer.Err()
			if d.ended {
				err = errEnded
			}
			if err != nil {
				return w.client.failed(err)
			}
			if !d.answer.IsProgressNotify() {
				pending = append(pending, d.answer.Events...)
				gather.Reset(w.pace.gather)
				continue
			}
			reached[d.of] = d.answer.Header.Revision
			if pending, err = w.take(slices.Min(reached), pending); err != nil {
				return err
			}
			if len(pending) > 0 {
				gather.Reset(w.pace.gather) // etcd does not answer while a range is behind
			}
			if unmet := w.prove(slices.Min(reached), open); len(unmet) < len(open) {
				open, since = unmet, time.Now()
			}
		}
	}
}

// take applies the events up to a revision, and returns the others.
func (w *Watch) take(revision int64, events []*clientv3.Event) (later []*clientv3.Event, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if revision <= w.held.Revision && !slices.ContainsFunc(events, func(e *clientv3.Event) bool { return e.Kv.ModRevision <= revision }) {
		return events, nil
	}
	var now []*clientv3.Event
	for _, e := range events {
		switch {
		case e.Kv.ModRevision > revision:
			later = append(later, e)
		case !strings.HasPrefix(string(e.Kv.Key), RunPrefix):
			now = append(now, e)
		case e.Type == clientv3.EventTypeDelete: // the run's writes no longer count as ours
			return nil, errAgain
		default:
			w.held.runs.take(e.Kv)
		}
	}
	slices.SortStableFunc(now, func(a, b *clientv3.Event) int { return int(a.Kv.ModRevision - b.Kv.ModRevision) })
	for _, e := range now {
		w.held.take(e)
	}
	w.held.Revision = max(w.held.Revision, revision)
	if len(now) > 0 {
		w.moved()
	}
	return later, nil
}

// prove advances the freshness time by the proofs that a revision meets, and returns the other
// proofs.
func (w *Watch) prove(revision int64, open []proof) (unmet []proof) {
	at := time.Time{}
	for _, p := range open {
		if p.revision > revision {
			unmet = append(unmet, p)
		} else if p.sent.After(at) {
			at = p.sent
		}
	}
	if at.IsZero() {
		return unmet
	}
	w.troubled(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	if at.After(w.current) {
		w.current = at
		w.moved()
	}
	return unmet
}

// Snapshot returns a snapshot without Kubernetes, as [Reading.Alone] does; nil before the first
// reading. Its time is the freshness time. While nothing changes, only the times of the results
// differ.
func (w *Watch) Snapshot() *blocks.Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, _ := w.result(nil, func() (*blocks.Snapshot, error) { return w.held.snapshot(), nil })
	if s != nil {
		s.Cluster.TakenAt = w.current.UTC()
		w.age(s, s.Cluster.TakenAt)
	}
	return s
}

// Joined returns a snapshot of the cluster's Kubernetes API with Calico's objects, as
// [Reading.Join] does; nil before the first reading. serverTime converts the freshness time to the
// API server's clock. While nothing changes, only the times of the results differ.
func (w *Watch) Joined(s *blocks.Snapshot, serverTime func(time.Time) time.Time) (*blocks.Snapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out, err := w.result(s, func() (*blocks.Snapshot, error) { return w.held.onto(s, func(blocks.Resource) bool { return true }) })
	if out != nil {
		out.Cluster.TakenAt = s.Cluster.TakenAt
		w.age(out, serverTime(w.current))
	}
	return out, err
}

// result returns a copy of the last result, or of a new one if something has changed since; base is
// the snapshot of Kubernetes, if there is one. The watch must be locked.
func (w *Watch) result(base *blocks.Snapshot, build func() (*blocks.Snapshot, error)) (*blocks.Snapshot, error) {
	last := &w.last
	switch {
	case w.held == nil:
		return nil, nil
	case last.of != w.held || last.changes != w.held.changes || last.base != base && !base.SameObjects(last.base):
		result, err := build()
		if err != nil {
			return nil, err
		}
		last.of, last.changes, last.result = w.held, w.held.changes, result
	}
	last.base = base
	out := *last.result
	return &out, nil
}

// Onto returns a joined snapshot in which the objects of some Kubernetes resources were read again.
func (w *Watch) Onto(s *blocks.Snapshot, again []blocks.Resource) (*blocks.Snapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held.onto(s, func(r blocks.Resource) bool { return slices.Contains(again, r) })
}

// age limits a snapshot's time to the freshness time. If that stands still for too long, Calico's
// objects become gaps, and the time advances for the others. The watch must be locked.
func (w *Watch) age(s *blocks.Snapshot, current time.Time) {
	if gaps := w.stale(current); len(gaps) > 0 {
		s.Gaps = slices.Concat(s.Gaps, gaps)
		slices.SortStableFunc(s.Gaps, blocks.CompareGaps)
	} else if current.Before(s.Cluster.TakenAt) {
		s.Cluster.TakenAt = current
	}
}

// stale returns the gaps of objects that have not been proven current for too long. The watch must
// be locked.
func (w *Watch) stale(since time.Time) (out []blocks.Gap) {
	if time.Since(w.current) <= w.pace.staleness {
		return nil
	}
	reason := "not current since " + since.UTC().Format(time.RFC3339)
	if w.trouble != nil {
		reason += ": " + w.trouble.Error()
	}
	for _, s := range stores {
		if !slices.ContainsFunc(out, func(g blocks.Gap) bool { return g.Resource == s.resource }) {
			out = append(out, blocks.Gap{Resource: s.resource, Reason: reason, Stale: true})
		}
	}
	return out
}
