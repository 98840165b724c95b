package storm

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// The checker's handling of uses that no object shows, and of uses that Calico's own
// collector ends.

// Use describes how an address is used.
type Use struct {
	// Machine is the node on whose machine the address is configured; empty if it is not
	// configured, as for a stopped virtual machine.
	Machine string
	// Device is true for an address of the machine itself, such as a tunnel address.
	Device bool
	// Unseen is true if no network namespace shows the address, for example if a sandbox
	// has its own kernel or an interface is driven from user space.
	Unseen bool
	// Orphan is true while no object shows the use. An audit may then call the address
	// leaked, but no repair may free it.
	Orphan bool
	// Collectable is true while Calico's own collector considers or may consider the
	// address leaked. An address that the collector frees is no longer in use; that is a
	// flaw of Calico, which the storm does not test.
	Collectable bool
	// Restored is a handle under which a restored record names another pod for a while; empty if
	// there was none. Once the address is recorded for its user again, the collector may not
	// free it any more.
	Restored string
}

// recorded reports whether a change leaves the address allocated to its user, or to the pod of a
// restored record.
func (h *Lease) recorded(m *Moment) bool {
	return m.Allocated && (m.Handle == h.Handle || h.Restored != "" && m.Handle == h.Restored)
}

// collector is kube-controllers' field manager: see [manager].
const collector = "Go-http-client"

func (m *Moment) byCollector() bool { return m.Manager == collector }

// Change changes how addresses are used. It must return before any request is sent that
// makes the previous use wrong.
func (r *InvariantChecker) Change(leases []*Lease, change func(*Use)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range leases {
		change(&h.Use)
	}
}

// collected ends a use whose address was freed by Calico's collector. The caller holds
// both locks.
func (r *InvariantChecker) collected(h *Lease) {
	h.taken = true
	r.counts.collected++
	if r.open[h.Addr] == h {
		delete(r.open, h.Addr)
		if h.Restored != "" {
			r.lost[h.Addr] = h
		}
	}
}

// regained continues a use that Calico's collector ended because of a restored record, once the
// address is recorded for its user again. The collector may not free it any more. The caller holds
// both locks.
func (r *InvariantChecker) regained(addr netip.Addr, m *Moment) {
	h := r.lost[addr]
	if h == nil || !m.Allocated || m.Handle != h.Handle {
		return
	}
	delete(r.lost, addr)
	h.taken, h.Collectable, h.from, h.began = false, false, m.Revision, time.Now()
	r.open[addr] = h
	r.counts.regained++
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

// Collected returns the number of uses that Calico's collector ended.
func (r *InvariantChecker) Collected() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts.collected
}

// awaitCollector waits until the history shows whether the collector freed addresses that
// are about to be assigned again.
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

// Uses reports whether an address is in use.
func (r *InvariantChecker) Uses(addr netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open[addr] != nil
}

// On returns the uses that are visible in a machine's network namespaces.
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

// Hear checks an audit's verdicts about addresses in use. It is a violation to call an
// address leaked if an object has shown its owner since before the reading began, even if
// no repair frees it. The verdict alone must protect the address.
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
	if h == nil || handle != h.Handle && (handle == "" || handle != h.Restored) || h.Orphan || h.violation || !h.began.Before(begun) {
		return
	}
	h.violation = true
	r.violation(Violation{
		What:    fmt.Sprintf("%s, used by %s (%s), is called leaked: %s", addr, h.User, short(h.Handle), why),
		Manager: "audit", Lease: h,
	})
}
