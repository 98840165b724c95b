package storm

import (
	"net"
	"testing"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// TestInvariantCheckerLetsTheCollectorBe checks that an address which Calico's collector
// may free is no longer in use after that, without a violation. A release by another
// client would be a violation.
func TestInvariantCheckerLetsTheCollectorBe(t *testing.T) {
	s, r := field(t) // its client has the same field manager as kube-controllers
	ctx := t.Context()
	addrs, leases := r.pod(t, s, "orphan", "n1")
	r.Change(leases, func(u *Use) { u.Orphan, u.Collectable = true, true })
	must(t, s.ReleaseHandle(ctx, seeding.Handle("default", "orphan")))
	must(t, r.Check(ctx))
	if r.Collected() != 1 || !r.Taken(leases) || r.Uses(addrs[0]) || len(r.Violations()) > 0 {
		t.Errorf("collected %d, taken %v, in use %v, violations %v", r.Collected(), r.Taken(leases), r.Uses(addrs[0]), r.Violations())
	}
	must(t, r.Release(ctx, leases)) // has no effect on a use that has ended
	must(t, r.Check(ctx))

	_, leases = r.pod(t, s, "other", "n1")
	r.Change(leases, func(u *Use) { u.Orphan, u.Collectable = true, true })
	s.Calico = NewClient(t, s.Cluster, "calico-audit").Calico
	must(t, s.ReleaseHandle(ctx, seeding.Handle("default", "other")))
	must(t, r.Check(ctx))
	if len(r.Violations()) != 1 {
		t.Errorf("an orphan's address was freed by a repair: violations %v", r.Violations())
	}
}

// TestInvariantCheckerHearsFalseLeaks checks that calling an address leaked is a
// violation while an object shows its user, but not for an orphan.
func TestInvariantCheckerHearsFalseLeaks(t *testing.T) {
	s, r := field(t)
	ctx := t.Context()
	_, orphan := r.pod(t, s, "orphan", "n1")
	_, _ = r.pod(t, s, "shown", "n1")
	must(t, s.DeletePod(ctx, "default", "orphan", false))
	r.Change(orphan, func(u *Use) { u.Orphan = true })
	tool, err := newTool(s.Cluster.Config, nil)
	must(t, err)
	tool.heard = func(st *state.State, begun time.Time) { r.Hear(st, begun) }
	time.Sleep(1200 * time.Millisecond) // the API server's timestamps are whole seconds
	hear := func() []Violation {
		_, err := tool.read(ctx, 0)
		must(t, err)
		return r.TakeViolations()
	}
	if violations := hear(); len(violations) > 0 {
		t.Errorf("nothing was said amiss: %v", violations)
	}
	must(t, s.DeletePod(ctx, "default", "shown", false))
	if violations := hear(); len(violations) != 1 || violations[0].Manager != "audit" {
		t.Errorf("the address of a user who is said to be shown was called leaked: violations %v", violations)
	}
}

// TestInvariantCheckerRegained checks that a use which Calico's collector ended because of a
// restored record continues once the address is recorded for its user again. From then on, the
// collector may not free it.
func TestInvariantCheckerRegained(t *testing.T) {
	s, r := field(t) // its client has the same field manager as kube-controllers
	ctx, collector := t.Context(), s.Calico
	addrs, leases := r.pod(t, s, "live", "n1")
	handle := seeding.Handle("default", "live")
	r.Change(leases, func(u *Use) { u.Restored, u.Collectable = "k8s-pod-network.deleted", true })
	must(t, s.ReleaseHandle(ctx, handle))
	must(t, r.Check(ctx))
	if r.Collected() != 1 || r.Uses(addrs[0]) {
		t.Fatalf("collected %d, in use %v", r.Collected(), r.Uses(addrs[0]))
	}
	s.Calico = NewClient(t, s.Cluster, "calico-audit").Calico
	must(t, s.Calico.IPAM().AssignIP(ctx, ipam.AssignIPArgs{IP: cnet.IP{IP: net.IP(addrs[0].AsSlice())}, HandleID: &handle, Hostname: "n1"}))
	must(t, r.Check(ctx))
	if r.Regained() != 1 || !r.Uses(addrs[0]) || r.Taken(leases) || len(r.Violations()) > 0 {
		t.Errorf("regained %d, in use %v, taken %v, violations %v", r.Regained(), r.Uses(addrs[0]), r.Taken(leases), r.Violations())
	}
	s.Calico = collector
	must(t, s.ReleaseHandle(ctx, handle))
	must(t, r.Check(ctx))
	if len(r.Violations()) != 1 {
		t.Errorf("the collector freed the address, which is recorded as it should be: violations %v", r.Violations())
	}
}
