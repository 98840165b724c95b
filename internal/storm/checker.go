package storm

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// InvariantChecker knows who uses which address, and holds every write against it.
//
// Users tell it when an address was handed to them and when they begin to give it
// back. Each is pinned to a revision of etcd: the newest when the address was in
// the user's hand, and the newest before the user lifted a finger to give it back.
// At every revision between the two, both included, the address must be allocated
// to that user. No clock and no delay of a watch can blur that.
type InvariantChecker struct {
	etcdHistory *EtcdHistory
	onViolation func(Violation)

	mu         sync.Mutex
	open       map[netip.Addr]*Lease
	ended      []*Lease
	violations []Violation
	counts     struct{ leases, moments, collected int }
}

// Lease is the use of an address by somebody.
type Lease struct {
	Addr   netip.Addr
	Handle string
	User   string // a pod or tunnel, for people
	Keys   []string
	Use

	from, to  int64 // revisions; to is 0 while it lasts
	checked   bool  // the beginning was held against the history
	violation bool
	taken     bool // Calico's own collector freed it, and it ended with that
	began     time.Time
}

// Violation is something that must not happen.
type Violation struct {
	What    string
	Manager string // who wrote what was wrong, as far as known
	History string
	Lease   *Lease
	Moment  *Moment
}

func (f Violation) String() string { return f.What + "\n" + f.History }

// NewInvariantChecker returns a checker that checks what a history sees. onFoul is called
// with each violation as it is found.
func NewInvariantChecker(ch *EtcdHistory, onViolation func(Violation)) *InvariantChecker {
	r := &InvariantChecker{etcdHistory: ch, onViolation: onViolation, open: map[netip.Addr]*Lease{}}
	ch.mu.Lock()
	ch.onMoment = r.moment
	ch.mu.Unlock()
	return r
}

// Leased tells that addresses are in a user's hand now. keys are the etcd keys of
// objects that matter for the story: the pod, the node.
func (r *InvariantChecker) Leased(ctx context.Context, user, handle string, addrs []netip.Addr, keys ...string) ([]*Lease, error) {
	return r.LeasedAs(ctx, Use{}, user, handle, addrs, keys...)
}

// LeasedAs is Leased for addresses that are used in a certain way.
func (r *InvariantChecker) LeasedAs(ctx context.Context, use Use, user, handle string, addrs []netip.Addr, keys ...string) ([]*Lease, error) {
	revision, err := r.etcdHistory.Revision(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	if err := r.awaitCollector(ctx, addrs, revision); err != nil {
		return nil, err
	}
	// The history's lock comes first wherever both are held.
	r.etcdHistory.mu.Lock()
	defer r.etcdHistory.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*Lease
	for _, addr := range addrs {
		h := &Lease{Addr: addr, Handle: handle, User: user, Keys: keys, Use: use, from: revision, began: time.Now()}
		if other := r.open[addr]; other != nil {
			r.violation(Violation{What: fmt.Sprintf("%s was given to %s (%s) while %s (%s) uses it", addr, user, short(handle), other.User, short(other.Handle)), Lease: h})
			r.ended = append(r.ended, other)
		}
		r.open[addr] = h
		r.counts.leases++
		out = append(out, h)
	}
	return out, nil
}

// Release tells that a user begins to give addresses back, or to vanish. It must be
// called, and must have returned, before anything of that is sent.
func (r *InvariantChecker) Release(ctx context.Context, leases []*Lease) error {
	if len(leases) == 0 {
		return nil
	}
	revision, err := r.etcdHistory.Revision(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range leases {
		if h.taken {
			continue
		}
		h.to = revision
		if r.open[h.Addr] == h {
			delete(r.open, h.Addr)
			r.ended = append(r.ended, h)
		}
	}
	return nil
}

// moment checks a change as it is seen. The history's lock is held.
func (r *InvariantChecker) moment(addr netip.Addr, m *Moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.moments++
	h := r.open[addr]
	if h == nil || m.Revision <= h.from || h.violation {
		return
	}
	// A user tells before it gives back: so this was somebody else.
	if !m.Allocated || m.Handle != h.Handle {
		r.broken(h, m)
	}
}

// broken is a violation against a lease, unless Calico's own collector is known to do
// that. Both locks are held.
func (r *InvariantChecker) broken(h *Lease, m *Moment) {
	if h.Collectable && m.byCollector() {
		r.collected(h)
		return
	}
	h.violation = true
	r.violation(Violation{
		What: fmt.Sprintf("%s, used by %s (%s) from revision %d to %s, is not allocated to it: %s",
			h.Addr, h.User, short(h.Handle), h.from, until(h.to), m),
		Manager: m.Manager, Lease: h, Moment: m,
	})
}

func until(revision int64) string {
	if revision == 0 {
		return "now"
	}
	return fmt.Sprint(revision)
}

func (r *InvariantChecker) violation(f Violation) {
	if f.Lease != nil && f.History == "" {
		f.History = r.etcdHistory.history(f.Lease.Addr, f.Lease.Keys...)
	}
	r.violations = append(r.violations, f)
	if r.onViolation != nil {
		r.onViolation(f)
	}
}

// Check waits until the history has seen everything so far, and holds every use
// of an address that began or ended since against the whole of it, exactly. Violations
// are added to those found before.
func (r *InvariantChecker) Check(ctx context.Context) error {
	revision, err := r.etcdHistory.Revision(ctx)
	if err != nil {
		return err
	}
	if err := r.etcdHistory.Await(ctx, revision); err != nil {
		return err
	}
	r.etcdHistory.mu.Lock()
	defer r.etcdHistory.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	later := r.ended[:0]
	for _, h := range r.ended {
		if h.to > revision {
			later = append(later, h)
			continue
		}
		r.check(h, h.to)
	}
	r.ended = later
	for _, h := range r.open {
		if h.from <= revision { // it may end here
			r.check(h, revision)
		}
	}
	for _, what := range r.etcdHistory.wrong {
		r.violation(Violation{What: what})
	}
	r.etcdHistory.wrong = nil
	return nil
}

// check holds one use against the history up to a revision. to may lie before
// the beginning for another user's address that was given away: then only the
// beginning counts.
func (r *InvariantChecker) check(h *Lease, to int64) {
	if h.violation || h.taken {
		return
	}
	if !h.checked {
		h.checked = true
		if m := r.etcdHistory.at(h.Addr, h.from); !m.Allocated || m.Handle != h.Handle {
			r.broken(h, &m)
			return
		}
	}
	for _, m := range r.etcdHistory.addrs[h.Addr] {
		if m.Revision > h.from && m.Revision <= to && (!m.Allocated || m.Handle != h.Handle) {
			r.broken(h, &m)
			return
		}
	}
}

// Violations are those found so far.
func (r *InvariantChecker) Violations() []Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Violation(nil), r.violations...)
}

// TakeViolations returns the violations found so far and forgets them.
func (r *InvariantChecker) TakeViolations() []Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	violations := r.violations
	r.violations = nil
	return violations
}

// Open are the uses that last.
func (r *InvariantChecker) Open() []*Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*Lease
	for _, h := range r.open {
		out = append(out, h)
	}
	return out
}

// Counts tells how many uses of an address there were, and how many changes of
// allocations were seen.
func (r *InvariantChecker) Counts() (leases, moments int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts.leases, r.counts.moments
}

// PodKey and NodeKey are where etcd has a pod or node.
func PodKey(namespace, name string) string { return "/registry/pods/" + namespace + "/" + name }

// NodeKey is where etcd has a node.
func NodeKey(name string) string { return "/registry/minions/" + strings.ToLower(name) }
