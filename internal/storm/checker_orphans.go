package storm

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// What the checker knows of uses that no object shows, and of those that Calico's
// own collector ends.

// Use says how an address is used.
type Use struct {
	// Machine is the node on whose machine it is configured; empty for nowhere, as
	// that of a virtual machine that is stopped.
	Machine string
	// Device is true for an address of the machine itself, such as a tunnel's.
	Device bool
	// Unseen is true if no network namespace shows it, as where a sandbox has a
	// kernel of its own or an interface is driven from user space.
	Unseen bool
	// Orphan is true while no object shows the use: an audit may call the address
	// leaked, and no one may free it.
	Orphan bool
	// Collectable is true while Calico's own collector takes the address for leaked,
	// or may. What it frees is used no longer; that is Calico's flaw, and not what is
	// tried here.
	Collectable bool
}

// collector is the name under which kube-controllers writes: see [manager].
const collector = "Go-http-client"

func (m *Moment) byCollector() bool { return m.Manager == collector }

// Change changes how addresses are used. It must be called, and must have returned,
// before anything is sent because of which the old way would be wrong.
func (r *InvariantChecker) Change(leases []*Lease, change func(*Use)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range leases {
		change(&h.Use)
	}
}

// collected ends a use whose address was freed by Calico's collector. Both locks are
// held.
func (r *InvariantChecker) collected(h *Lease) {
	h.taken = true
	r.counts.collected++
	if r.open[h.Addr] == h {
		delete(r.open, h.Addr)
	}
}

// Taken reports whether Calico's collector ended one of the uses.
func (r *InvariantChecker) Taken(leases []*Lease) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range leases {
		if h.taken {
			return true
		}
	}
	return false
}

// Collected is how many uses Calico's collector ended.
func (r *InvariantChecker) Collected() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts.collected
}

// awaitCollector waits until it is known whether the collector freed addresses that
// are about to be given to others.
func (r *InvariantChecker) awaitCollector(ctx context.Context, addrs []netip.Addr, revision int64) error {
	r.mu.Lock()
	waits := false
	for _, addr := range addrs {
		h := r.open[addr]
		waits = waits || h != nil && h.Collectable
	}
	r.mu.Unlock()
	if !waits {
		return nil
	}
	return r.etcdHistory.Await(context.WithoutCancel(ctx), revision)
}

// Uses reports whether somebody uses an address.
func (r *InvariantChecker) Uses(addr netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open[addr] != nil
}

// On are the uses that a look at a machine's network namespaces shows.
func (r *InvariantChecker) On(machine string) []Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Lease
	for _, h := range r.open {
		if h.Machine == machine && !h.Unseen {
			out = append(out, *h)
		}
	}
	return out
}

// Hear checks what an audit says of the addresses in use. It is a violation to call one
// leaked whose owner some object has shown since before the reading began, whether
// anybody frees it or not: nothing else may stand between the error and the address.
func (r *InvariantChecker) Hear(st *state.State, begun time.Time) {
	for _, b := range st.IPBlocks {
		for i, o := range b.Ordinals {
			if o == blocks.Free {
				continue
			}
			ref := state.AllocationRef{Block: b, Ordinal: i}
			if v := st.Classify(ref); !v.Owned {
				r.accused(ref.Addr(), ref.Attributes().Handle, v.Why(), begun)
			}
		}
	}
}

func (r *InvariantChecker) accused(addr netip.Addr, handle, why string, begun time.Time) {
	r.etcdHistory.mu.Lock()
	defer r.etcdHistory.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.open[addr]
	if h == nil || h.Handle != handle || h.Orphan || h.violation || !h.began.Before(begun) {
		return
	}
	h.violation = true
	r.violation(Violation{
		What:    fmt.Sprintf("%s, used by %s (%s), is called leaked: %s", addr, h.User, short(h.Handle), why),
		Manager: "audit", Lease: h,
	})
}
