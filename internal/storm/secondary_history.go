package storm

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const whereaboutsPrefix = "/registry/whereabouts.cni.cncf.io/"

// secondaryAddr returns the address at an offset in the storm's range.
func secondaryAddr(offset int) netip.Addr { return netip.AddrFrom4([4]byte{10, 9, 0, byte(offset)}) }

// secondaryRecord is the owner of an address in the pool or in the reservations, from an
// etcd revision on. The zero owner means no record.
type secondaryRecord struct {
	revision int64
	secondaryOwner
}

type secondaryOwner struct{ pod, sandbox string }

// secondaryHistory holds the stored records of a secondary network by address, oldest
// first.
type secondaryHistory struct {
	entries, reservations map[netip.Addr][]secondaryRecord
	wrong                 []string
}

// take processes an etcd event.
func (h *secondaryHistory) take(e *clientv3.Event) {
	if h.entries == nil {
		h.entries, h.reservations = map[netip.Addr][]secondaryRecord{}, map[netip.Addr][]secondaryRecord{}
	}
	resource, rest, _ := strings.Cut(strings.TrimPrefix(string(e.Kv.Key), whereaboutsPrefix), "/")
	var stored struct {
		Spec struct {
			PodRef      string `json:"podref"`
			Allocations map[string]struct{ ID, PodRef string }
		} `json:"spec"`
	}
	if e.Type != mvccpb.DELETE {
		if err := json.Unmarshal(e.Kv.Value, &stored); err != nil {
			h.wrong = append(h.wrong, fmt.Sprintf("%s cannot be read: %v", e.Kv.Key, err))
			return
		}
	}
	switch resource {
	case "ippools":
		now := map[netip.Addr]secondaryOwner{}
		for key, entry := range stored.Spec.Allocations {
			offset, err := strconv.ParseUint(key, 10, 8)
			if err != nil {
				h.wrong = append(h.wrong, fmt.Sprintf("%s: %v", e.Kv.Key, err))
				continue
			}
			now[secondaryAddr(int(offset))] = secondaryOwner{entry.PodRef, entry.ID}
		}
		for a := range h.entries {
			noteOwner(h.entries, a, e.Kv.ModRevision, now[a])
		}
		for a, owner := range now {
			noteOwner(h.entries, a, e.Kv.ModRevision, owner)
		}
	case "overlappingrangeipreservations":
		a, err := netip.ParseAddr(rest[strings.LastIndex(rest, "/")+1:])
		if err != nil {
			h.wrong = append(h.wrong, fmt.Sprintf("%s: %v", e.Kv.Key, err))
			return
		}
		noteOwner(h.reservations, a, e.Kv.ModRevision, secondaryOwner{pod: stored.Spec.PodRef})
	}
}

func noteOwner(all map[netip.Addr][]secondaryRecord, a netip.Addr, revision int64, owner secondaryOwner) {
	if was := ownerAt(all[a], revision); was != owner {
		all[a] = append(all[a], secondaryRecord{revision, owner})
	}
}

// ownerAt returns the owner in a record at a revision.
func ownerAt(all []secondaryRecord, revision int64) secondaryOwner {
	for _, r := range slices.Backward(all) {
		if r.revision <= revision {
			return r.secondaryOwner
		}
	}
	return secondaryOwner{}
}

// secondaryUse is the use of an address by a sandbox between two etcd revisions: the
// newest one when the sandbox had the address, and the newest one before the use started
// to end.
type secondaryUse struct {
	secondaryOwner
	addr     netip.Addr
	node     string
	from, to int64 // to is 0 while the use lasts
	// inPool is false if the write to the pool failed and the plugin ignored that.
	inPool bool
}

// addressUsers records which pod uses which address of a secondary network, and compares etcd with
// that. It learns this from the users, not from the cluster.
type addressUsers struct {
	history *EtcdHistory

	mu   sync.Mutex
	open map[netip.Addr]*secondaryUse
	all  []*secondaryUse
	// left holds reservations that may be without a pool entry because a process died or
	// a write failed, and their pods.
	left  map[netip.Addr]string
	wrong []string

	// blind is read-locked by each pod that runs without an object, and write-locked by
	// repairs without host views.
	blind sync.RWMutex
}

// give records that a pod has an address.
func (l *addressUsers) give(ctx context.Context, u *secondaryUse) error {
	revision, err := l.history.Revision(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	u.from = revision
	if had := l.open[u.addr]; had != nil {
		l.wrong = append(l.wrong, fmt.Sprintf("%s was given to %s (%s) while %s (%s) used it", u.addr, u.pod, u.sandbox, had.pod, had.sandbox))
	}
	l.open[u.addr] = u
	l.all = append(l.all, u)
	delete(l.left, u.addr)
	return nil
}

// end records that a pod's sandbox starts to end.
func (l *addressUsers) end(ctx context.Context, u *secondaryUse) error {
	revision, err := l.history.Revision(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	u.to = revision
	if l.open[u.addr] == u {
		delete(l.open, u.addr)
	}
	return nil
}

// leave records that a reservation may remain without its entry.
func (l *addressUsers) leave(a netip.Addr, pod string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left[a] = pod
}

// machines returns the addresses in use on each machine, for its host view.
func (l *addressUsers) machines() map[string][]inUse {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string][]inUse{}
	for a, u := range l.open {
		out[u.node] = append(out[u.node], inUse{addr: a})
	}
	return out
}

// check compares all uses so far with etcd at every revision, and returns the violations.
// An address in use must stay recorded in the pool for its sandbox. If it was never
// recorded there, it must stay reserved for its pod until it is.
func (l *addressUsers) check(ctx context.Context) ([]string, error) {
	revision, err := l.history.Revision(ctx)
	if err == nil {
		err = l.history.Await(ctx, revision)
	}
	if err != nil {
		return nil, err
	}
	l.history.mu.Lock()
	defer l.history.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &l.history.secondary
	wrong := slices.Concat(l.wrong, h.wrong)
	for _, u := range l.all {
		if what := h.violation(u, revision); what != "" {
			wrong = append(wrong, fmt.Sprintf("%s, used by %s (%s) from revision %d to %s, %s\n%s", u.addr, u.pod, u.sandbox, u.from, until(u.to), what, h.told(u.addr)))
		}
	}
	return wrong, nil
}

// violation describes a violation of a use up to a revision, or returns "".
func (h *secondaryHistory) violation(u *secondaryUse, to int64) string {
	if u.to != 0 {
		to = min(to, u.to)
	}
	revisions := []int64{u.from}
	for _, r := range slices.Concat(h.entries[u.addr], h.reservations[u.addr]) {
		if r.revision > u.from && r.revision <= to {
			revisions = append(revisions, r.revision)
		}
	}
	slices.Sort(revisions)
	recorded := u.inPool
	for _, revision := range revisions {
		entry := ownerAt(h.entries[u.addr], revision)
		switch {
		case entry == u.secondaryOwner:
			recorded = true
		case recorded || entry != (secondaryOwner{}):
			return fmt.Sprintf("is recorded for %q (%s) at revision %d", entry.pod, entry.sandbox, revision)
		case ownerAt(h.reservations[u.addr], revision).pod != u.pod:
			return fmt.Sprintf("is neither recorded nor reserved for it at revision %d", revision)
		}
	}
	return ""
}

// told formats the last records of an address.
func (h *secondaryHistory) told(a netip.Addr) string {
	var out strings.Builder
	for _, x := range []struct {
		what string
		all  []secondaryRecord
	}{{"recorded", h.entries[a]}, {"reserved", h.reservations[a]}} {
		for _, r := range x.all[max(0, len(x.all)-8):] {
			fmt.Fprintf(&out, "  revision %d: %s for %q (%s)\n", r.revision, x.what, r.pod, r.sandbox)
		}
	}
	return out.String()
}
