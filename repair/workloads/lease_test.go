package workloads_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/workloads"
)

// TestLease checks that one run at a time has the Lease. A live run keeps it for as long as it
// takes. The Lease of a dead run is taken over; that run must notice this and not touch the Lease.
func TestLease(t *testing.T) {
	ctx := t.Context()
	c := testcluster.Shared(t, testcluster.Options{})
	leases := c.Kube.CoordinationV1().Leases(repair.LeaseNamespace)
	lease := func() *coordinationv1.Lease {
		l, err := leases.Get(ctx, repair.LeaseName, metav1.GetOptions{})
		must(t, err)
		return l
	}
	deleted := func(when string) {
		t.Helper()
		if _, err := leases.Get(ctx, repair.LeaseName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: the Lease is left (%v)", when, err)
		}
	}
	one, other := client(t, c, nil), client(t, c, nil)
	silent := func(text string) { t.Errorf("where none waits it says %q", text) }
	said := ""
	say := func(text string) { said += text }
	h, err := one.AcquireLease(ctx, silent)
	must(t, err)
	holder := *lease().Spec.HolderIdentity
	if _, err := other.AcquireLease(ctx, say); !errors.Is(err, repair.ErrOtherRun) || !strings.Contains(err.Error(), holder) {
		t.Errorf("beside %s, another run gets %v", holder, err)
	}
	if !strings.HasPrefix(said, holder) || !strings.Contains(said, "waiting up to 5s") {
		t.Errorf("while it waits it says %q", said)
	}
	must(t, h.Check(ctx))
	h.Release()
	deleted("released")

	// If someone deletes the Lease, the run creates it again. Its name differs from the
	// last run's.
	h, err = one.AcquireLease(ctx, silent)
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

	// An unchanged Lease is taken over, and its former holder stops.
	dead := client(t, c, nil)
	h.Release()
	_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: repair.LeaseName}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("dead"), LeaseDurationSeconds: new(int32(1)),
		RenewTime: &metav1.MicroTime{Time: time.Now().Add(time.Hour)}, // by a wrong clock
	}}, metav1.CreateOptions{})
	must(t, err)
	began := time.Now()
	h, err = dead.AcquireLease(ctx, say)
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

// TestLostLease checks that a run which loses its Lease during a write does not retry the
// write, and cancels a pending one. If the result of the write is unknown, the run reads
// it.
func TestLostLease(t *testing.T) {
	for name, does := range map[string]func(*workloads.Client, *corev1.Pod, *corev1.Node) error{
		"evicting": func(w *workloads.Client, pod *corev1.Pod, _ *corev1.Node) error {
			return w.Evict(t.Context(), pod.Namespace, pod.Name, string(pod.UID))
		},
		"cordoning": func(w *workloads.Client, _ *corev1.Pod, node *corev1.Node) error {
			return w.Cordon(t.Context(), ref(node), "a b")
		},
	} {
		for _, hangs := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, hangs=%t", name, hangs), func(t *testing.T) { // so that the next one gets the same cluster
				c, pod, node := newCluster(t)
				cfg, sent := rest.CopyConfig(c.Config), 0
				cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
					return transport(func(r *http.Request) (*http.Response, error) {
						if !strings.HasSuffix(r.URL.Path, "/eviction") && r.Method != http.MethodPatch {
							return next.RoundTrip(r)
						}
						sent++
						takeOver(t, c)
						if hangs {
							<-r.Context().Done()
						}
						return nil, errors.New("connection reset")
					})
				})
				w, err := workloads.New(cfg, &taken{})
				must(t, err)
				h, err := w.Impatient().AcquireLease(t.Context(), func(string) {})
				must(t, err)
				began := time.Now()
				if err := does(w, pod, node); !errors.Is(err, repair.ErrOtherRun) || sent != 1 {
					t.Errorf("%s: sent %d times, and %v", name, sent, err)
				}
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("%s: it was given up after %s", name, took)
				}
				h.Release()
				must(t, c.Kube.CoordinationV1().Leases(repair.LeaseNamespace).Delete(t.Context(), repair.LeaseName, metav1.DeleteOptions{}))
				if err := does(w, pod, node); err == nil || sent != 1 {
					t.Errorf("%s without a Lease: sent %d times, and %v", name, sent, err)
				}
			})
		}
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// takeOver gives the Lease to another run, even while it is renewed.
func takeOver(t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	_, err := c.Kube.CoordinationV1().Leases(repair.LeaseNamespace).Patch(t.Context(), repair.LeaseName, types.MergePatchType,
		[]byte(`{"spec":{"holderIdentity":"somebody else"}}`), metav1.PatchOptions{})
	must(t, err)
}
