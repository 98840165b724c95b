package storm

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// Referee knows who uses which address, and holds every write against it.
//
// Users tell it when an address was handed to them and when they begin to give it
// back. Each is pinned to a revision of etcd: the newest when the address was in
// the user's hand, and the newest before the user lifted a finger to give it back.
// At every revision between the two, both included, the address must be allocated
// to that user. No clock and no delay of a watch can blur that.
type Referee struct {
	chronicle *Chronicle
	onFoul    func(Foul)

	mu     sync.Mutex
	open   map[netip.Addr]*Hold
	ended  []*Hold
	fouls  []Foul
	counts struct{ holds, moments, collected int }
}

// Hold is the use of an address by somebody.
type Hold struct {
	Addr   netip.Addr
	Handle string
	User   string // a pod or tunnel, for people
	Keys   []string
	Use

	from, to int64 // revisions; to is 0 while it lasts
	checked  bool  // the beginning was held against the chronicle
	foul     bool
	taken    bool // Calico's own collector freed it, and it ended with that
	began    time.Time
}

// Foul is something that must not happen.
type Foul struct {
	What    string
	Manager string // who wrote what was wrong, as far as known
	History string
	Hold    *Hold
	Moment  *Moment
}

func (f Foul) String() string { return f.What + "\n" + f.History }

// NewReferee returns a referee that judges what a chronicle sees. onFoul is called
// with each foul as it is found.
func NewReferee(ch *Chronicle, onFoul func(Foul)) *Referee {
	r := &Referee{chronicle: ch, onFoul: onFoul, open: map[netip.Addr]*Hold{}}
	ch.mu.Lock()
	ch.onMoment = r.moment
	ch.mu.Unlock()
	return r
}

// Held tells that addresses are in a user's hand now. keys are the etcd keys of
// objects that matter for the story: the pod, the node.
func (r *Referee) Held(ctx context.Context, user, handle string, addrs []netip.Addr, keys ...string) ([]*Hold, error) {
	return r.HeldAs(ctx, Use{}, user, handle, addrs, keys...)
}

// HeldAs is Held for addresses that are used in a certain way.
func (r *Referee) HeldAs(ctx context.Context, use Use, user, handle string, addrs []netip.Addr, keys ...string) ([]*Hold, error) {
	revision, err := r.chronicle.Revision(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	if err := r.awaitCollector(ctx, addrs, revision); err != nil {
		return nil, err
	}
	// The chronicle's lock comes first wherever both are held.
	r.chronicle.mu.Lock()
	defer r.chronicle.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*Hold
	for _, addr := range addrs {
		h := &Hold{Addr: addr, Handle: handle, User: user, Keys: keys, Use: use, from: revision, began: time.Now()}
		if other := r.open[addr]; other != nil {
			r.foul(Foul{What: fmt.Sprintf("%s was given to %s (%s) while %s (%s) uses it", addr, user, short(handle), other.User, short(other.Handle)), Hold: h})
			r.ended = append(r.ended, other)
		}
		r.open[addr] = h
		r.counts.holds++
		out = append(out, h)
	}
	return out, nil
}

// Release tells that a user begins to give addresses back, or to vanish. It must be
// called, and must have returned, before anything of that is sent.
func (r *Referee) Release(ctx context.Context, holds []*Hold) error {
	if len(holds) == 0 {
		return nil
	}
	revision, err := r.chronicle.Revision(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range holds {
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

// moment judges a change as it is seen. The chronicle's lock is held.
func (r *Referee) moment(addr netip.Addr, m *Moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.moments++
	h := r.open[addr]
	if h == nil || m.Revision <= h.from || h.foul {
		return
	}
	// A user tells before it gives back: so this was somebody else.
	if !m.Allocated || m.Handle != h.Handle {
		r.broken(h, m)
	}
}

// broken is a foul against a hold, unless Calico's own collector is known to do
// that. Both locks are held.
func (r *Referee) broken(h *Hold, m *Moment) {
	if h.Collectable && m.byCollector() {
		r.collected(h)
		return
	}
	h.foul = true
	r.foul(Foul{
		What: fmt.Sprintf("%s, used by %s (%s) from revision %d to %s, is not allocated to it: %s",
			h.Addr, h.User, short(h.Handle), h.from, until(h.to), m),
		Manager: m.Manager, Hold: h, Moment: m,
	})
}

func until(revision int64) string {
	if revision == 0 {
		return "now"
	}
	return fmt.Sprint(revision)
}

func (r *Referee) foul(f Foul) {
	if f.Hold != nil && f.History == "" {
		f.History = r.chronicle.history(f.Hold.Addr, f.Hold.Keys...)
	}
	r.fouls = append(r.fouls, f)
	if r.onFoul != nil {
		r.onFoul(f)
	}
}

// Judge waits until the chronicle has seen everything so far, and holds every use
// of an address that began or ended since against the whole of it, exactly. Fouls
// are added to those found before.
func (r *Referee) Judge(ctx context.Context) error {
	revision, err := r.chronicle.Revision(ctx)
	if err != nil {
		return err
	}
	if err := r.chronicle.Await(ctx, revision); err != nil {
		return err
	}
	r.chronicle.mu.Lock()
	defer r.chronicle.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	later := r.ended[:0]
	for _, h := range r.ended {
		if h.to > revision {
			later = append(later, h)
			continue
		}
		r.judge(h, h.to)
	}
	r.ended = later
	for _, h := range r.open {
		if h.from <= revision { // it may end here
			r.judge(h, revision)
		}
	}
	for _, what := range r.chronicle.wrong {
		r.foul(Foul{What: what})
	}
	r.chronicle.wrong = nil
	return nil
}

// judge holds one use against the chronicle up to a revision. to may lie before
// the beginning for another user's address that was given away: then only the
// beginning counts.
func (r *Referee) judge(h *Hold, to int64) {
	if h.foul || h.taken {
		return
	}
	if !h.checked {
		h.checked = true
		if m := r.chronicle.at(h.Addr, h.from); !m.Allocated || m.Handle != h.Handle {
			r.broken(h, &m)
			return
		}
	}
	for _, m := range r.chronicle.addrs[h.Addr] {
		if m.Revision > h.from && m.Revision <= to && (!m.Allocated || m.Handle != h.Handle) {
			r.broken(h, &m)
			return
		}
	}
}

// Fouls are those found so far.
func (r *Referee) Fouls() []Foul {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Foul(nil), r.fouls...)
}

// TakeFouls returns the fouls found so far and forgets them.
func (r *Referee) TakeFouls() []Foul {
	r.mu.Lock()
	defer r.mu.Unlock()
	fouls := r.fouls
	r.fouls = nil
	return fouls
}

// Open are the uses that last.
func (r *Referee) Open() []*Hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*Hold
	for _, h := range r.open {
		out = append(out, h)
	}
	return out
}

// Counts tells how many uses of an address there were, and how many changes of
// allocations were seen.
func (r *Referee) Counts() (holds, moments int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts.holds, r.counts.moments
}

// PodKey and NodeKey are where etcd has a pod or node.
func PodKey(namespace, name string) string { return "/registry/pods/" + namespace + "/" + name }

// NodeKey is where etcd has a node.
func NodeKey(name string) string { return "/registry/minions/" + strings.ToLower(name) }
