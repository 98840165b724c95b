package storm

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
)

// shows returns the addresses in a view, with true for those in the machine's own network
// namespace.
func shows(v *blocks.HostView) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, ns := range v.Namespaces {
		for _, p := range ns.Addresses {
			out[p.Addr()] = ns.Host
		}
	}
	return out
}

// TestMachinesShowWhatIsUsed checks that a view shows exactly the addresses in use on its
// machine, including orphans. A machine that does not answer returns no view by itself.
func TestMachinesShowWhatIsUsed(t *testing.T) {
	addr := netip.MustParseAddr
	w := &World{checker: &InvariantChecker{open: map[netip.Addr]*Lease{}}}
	for a, use := range map[string]Use{
		"10.0.0.1": {Machine: "n1"},
		"10.0.0.2": {Machine: "n1", Orphan: true},
		"10.0.0.3": {Machine: "n1", Device: true},
		"10.0.0.4": {Machine: "n1", Unseen: true},
		"10.0.0.5": {Machine: "n2"},
		"10.0.0.6": {},
	} {
		w.checker.open[addr(a)] = &Lease{Addr: addr(a), Use: use}
	}
	n := &node{name: "n1"}
	n.machine.set(true, true)
	v := w.view(n, nil)
	got := shows(v)
	if host, shown := got[addr("10.0.0.1")]; !shown || host {
		t.Errorf("a pod's address is shown: %v, in the host's namespace: %v", shown, host)
	}
	if _, shown := got[addr("10.0.0.2")]; !shown {
		t.Error("an orphan's address is not shown")
	}
	if host := got[addr("10.0.0.3")]; !host {
		t.Error("a tunnel's address is not shown in the host's namespace")
	}
	if len(got) != 3 {
		t.Errorf("shown are %v", got)
	}

	n.machine.set(true, false)
	if v := w.view(n, nil); v != nil {
		t.Errorf("a machine that does not answer shows %v", shows(v))
	}
	n.machine.set(false, false)
	n.machine.set(true, true)
	if again := w.view(n, nil); again.BootID == v.BootID {
		t.Errorf("after a boot its ID is still %s", v.BootID)
	}
}

// TestNoViewIsKeptOfPodsThatStart checks that a view is not kept if a pod was being set
// up meanwhile, because the view lacks that pod.
func TestNoViewIsKeptOfPodsThatStart(t *testing.T) {
	w := &World{checker: &InvariantChecker{open: map[netip.Addr]*Lease{}}}
	n := &node{name: "n1"}
	r := rand.New(rand.NewPCG(1, 1))
	kept := func() bool {
		n.machine.set(false, false) // so that no one makes a view by hand, either
		for range 100 {
			if w.view(n, r) != nil {
				return true
			}
		}
		return false
	}
	n.machine.set(true, true)
	n.begun.Add(1)
	w.view(n, r)
	if kept() {
		t.Error("a view is kept that was made while a pod's network was set up")
	}
	n.machine.set(true, true)
	n.ended.Add(1)
	w.view(n, r)
	if !kept() {
		t.Error("a view is not kept that was made while nothing started")
	}
}
