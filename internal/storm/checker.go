package storm

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// InvariantChecker records who uses which address, and compares every write with that.
//
// Users report when they get an address and before they release it. Each report is pinned
// to an etcd revision: the newest one when the address was in the user's hands, and the
// newest one before the user started to release it. At every revision between the two,
// inclusive, the address must be allocated to that user. The check depends on no clock
// and no delay of a watch.
type InvariantChecker struct {
	etcdHistory *EtcdHistory
	onViolation func(Violation)

	mu         sync.Mutex
	open       map[netip.Addr]*Lease
	lost       map[netip.Addr]*Lease // ended by Calico's collector because of a restored record; their users still run
	ended      []*Lease
	violations []Violation
	counts     struct{ leases, moments, collected, again, regained int }
}

// Lease is one use of an address.
type Lease struct {
	Addr   netip.Addr
	Handle string
	User   string // a pod or tunnel, for messages
	Keys   []string
	Use

	from, to  int64 // revisions; to is 0 while the use lasts
	checked   bool  // the start was compared with the history
	violation bool
	taken     bool // Calico's own collector freed the address, which ended the use
	began     time.Time
}

// Violation is a breach of an invariant.
type Violation struct {
	What    string
	Manager string // writer of the wrong change, if known
	History string
	Lease   *Lease
	Moment  *Moment
}

func (f Violation) String() string { return f.What + "\n" + f.History }

// NewInvariantChecker returns a checker for the changes that a history sees. onViolation
// is called with each violation when it is found.
func NewInvariantChecker(ch *EtcdHistory, onViolation func(Violation)) *InvariantChecker {
	r := &InvariantChecker{etcdHistory: ch, onViolation: onViolation, open: map[netip.Addr]*Lease{}, lost: map[netip.Addr]*Lease{}}
	ch.mu.Lock()
	ch.onMoment = r.moment
	ch.mu.Unlock()
	return r
}

// Leased reports that a user has addresses now. keys are etcd keys of objects to show in
// a violation, such as the pod and the node.
func (r *InvariantChecker) Leased(ctx context.Context, user, handle string, addrs []netip.Addr, keys ...string) ([]*Lease, error) {
	return r.LeasedAs(ctx, Use{}, user, handle, addrs, keys...)
}

// LeasedAs is Leased with the kind of use.
func (r *InvariantChecker) LeasedAs(ctx context.Context, use Use, user, handle string, addrs []netip.Addr, keys ...string) ([]*Lease, error) {
	revision, err := r.etcdHistory.Revision(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	if err := r.awaitCollector(ctx, addrs, revision); err != nil {
		return nil, err
	}
	// Lock the history first wherever both locks are held.
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

// Release reports that a user is about to release addresses or to disappear. It must
// return before the user sends anything.
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
			if r.lost[h.Addr] == h {
				delete(r.lost, h.Addr)
			}
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

// moment checks a change when it is seen. The caller holds the history's lock.
func (r *InvariantChecker) moment(addr netip.Addr, m *Moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.moments++
	h := r.open[addr]
	if h == nil {
		r.regained(addr, m)
		return
	}
	if m.Revision <= h.from || h.violation {
		return
	}
	// Users report before they release. So another client made this change.
	switch {
	case !h.recorded(m):
		r.broken(h, m)
	case h.Restored != "" && m.Handle == h.Handle:
		h.Collectable = false
		r.counts.again++
	}
}

// broken records a violation of a lease, unless Calico's own collector is known to do
// that. The caller holds both locks.
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

// Check waits until the history has seen all writes so far. Then it compares every use of
// an address that started or ended since with the complete history. Violations are added
// to earlier ones.
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

// check compares one use with the history up to a revision. to may be before the start if
// the address was given to another user; then only the start is checked.
func (r *InvariantChecker) check(h *Lease, to int64) {
	if h.violation || h.taken {
		return
	}
	if !h.checked {
		h.checked = true
		if m := r.etcdHistory.at(h.Addr, h.from); !h.recorded(&m) {
			r.broken(h, &m)
			return
		}
	}
	for _, m := range r.etcdHistory.addrs[h.Addr] {
		if m.Revision > h.from && m.Revision <= to && !h.recorded(&m) {
			r.broken(h, &m)
			return
		}
	}
}

// Violations returns the violations so far.
func (r *InvariantChecker) Violations() []Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Violation(nil), r.violations...)
}

// TakeViolations returns the violations so far and forgets them.
func (r *InvariantChecker) TakeViolations() []Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	violations := r.violations
	r.violations = nil
	return violations
}

// Open returns the current uses.
func (r *InvariantChecker) Open() []*Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*Lease
	for _, h := range r.open {
		out = append(out, h)
	}
	return out
}

// Counts returns the numbers of uses and of observed allocation changes.
func (r *InvariantChecker) Counts() (leases, moments int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts.leases, r.counts.moments
}

// Again returns the number of addresses that were recorded for their users again.
func (r *InvariantChecker) Again() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts.again
}

// Regained returns the number of addresses that Calico's collector freed because of a restored
// record, and that were then recorded for their users again.
func (r *InvariantChecker) Regained() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts.regained
}

// PodKey returns the etcd key of a pod.
func PodKey(namespace, name string) string { return "/registry/pods/" + namespace + "/" + name }

// NodeKey returns the etcd key of a node.
func NodeKey(name string) string { return "/registry/minions/" + strings.ToLower(name) }
