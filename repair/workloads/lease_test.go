package workloads_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair"
)

// TestLease: one run at a time has the Lease. One that is alive is not taken over, however
// long it runs, and one that died is; who was taken over learns that, and leaves it alone.
func TestLease(t *testing.T) {
	ctx := t.Context()
	c := testcluster.Shared(t, testcluster.Options{})
	leases := c.Kube.CoordinationV1().Leases(repair.LeaseNamespace)
	lease := func() *coordinationv1.Lease {
		l, err := leases.Get(ctx, repair.LeaseName, metav1.GetOptions{})
		must(t, err)
		return l
	}
	gone := func(when string) {
		t.Helper()
		if _, err := leases.Get(ctx, repair.LeaseName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: the Lease is left (%v)", when, err)
		}
	}
	one, other := client(t, c, nil), client(t, c, nil)
	h, err := one.AcquireLease(ctx)
	must(t, err)
	holder := *lease().Spec.HolderIdentity
	if _, err := other.AcquireLease(ctx); !errors.Is(err, repair.ErrOtherRun) || !strings.Contains(err.Error(), holder) {
		t.Errorf("beside %s, another run gets %v", holder, err)
	}
	must(t, h.Check(ctx))
	h.Release()
	gone("released")

	// People delete it, and it is there again, another's than the last.
	h, err = one.AcquireLease(ctx)
	must(t, err)
	must(t, leases.Delete(ctx, repair.LeaseName, metav1.DeleteOptions{}))
	deadline := time.Now().Add(30 * time.Second)
	for _, err = leases.Get(ctx, repair.LeaseName, metav1.GetOptions{}); err != nil && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
		_, err = leases.Get(ctx, repair.LeaseName, metav1.GetOptions{})
	}
	must(t, h.Check(ctx))
	if now := *lease().Spec.HolderIdentity; now == holder {
		t.Errorf("two runs have the name %s", now)
	}

	// One that stands still is taken over, and what had it stops.
	dead := client(t, c, nil)
	h.Release()
	_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: repair.LeaseName}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("dead"), LeaseDurationSeconds: new(int32(1)),
		RenewTime: &metav1.MicroTime{Time: time.Now().Add(time.Hour)}, // by a clock that is wrong
	}}, metav1.CreateOptions{})
	must(t, err)
	began := time.Now()
	h, err = dead.AcquireLease(ctx)
	must(t, err)
	if waited := time.Since(began); waited < time.Second {
		t.Errorf("a Lease of a second was taken over after %s", waited)
	}
	taken := lease()
	taken.Spec.HolderIdentity = new("somebody else")
	_, err = leases.Update(ctx, taken, metav1.UpdateOptions{})
	must(t, err)
	deadline = time.Now().Add(30 * time.Second)
	for err = h.Check(ctx); err == nil && time.Now().Before(deadline); err = h.Check(ctx) {
		time.Sleep(50 * time.Millisecond)
	}
	if !errors.Is(err, repair.ErrOtherRun) || !strings.Contains(err.Error(), "somebody else") {
		t.Errorf("a run whose Lease another has: %v", err)
	}
	h.Release()
	if now := *lease().Spec.HolderIdentity; now != "somebody else" {
		t.Errorf("the Lease is %s's", now)
	}
	must(t, leases.Delete(ctx, repair.LeaseName, metav1.DeleteOptions{}))
}
