package storm

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// TestFaultProxyDies checks that a write is not carried out if the proxy dies before it,
// and is carried out if the proxy dies after it. In both cases the client gets an error,
// and later requests do not pass.
func TestFaultProxyDies(t *testing.T) {
	ctx := t.Context()
	c := testcluster.Shared(t, testcluster.Options{})
	for name, after := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			proxy := NewFaultProxy(t, c.Config, "somebody")
			client, err := kubernetes.NewForConfig(proxy.Config())
			must(t, err)
			names := []string{name + "-1", name + "-2", name + "-3"}
			create := func(n string) error {
				_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n}}, metav1.CreateOptions{})
				return err
			}
			died := false
			proxy.Die(2, after)
			proxy.OnDeath(func() { died = true })
			must(t, create(names[0]))
			for _, n := range names[1:] {
				if create(n) == nil {
					t.Errorf("the creation of %s is no error", n)
				}
			}
			if _, err := client.CoreV1().Namespaces().Get(ctx, names[0], metav1.GetOptions{}); err == nil || apierrors.IsNotFound(err) {
				t.Errorf("the dead can read: %v", err)
			}
			if !died || !proxy.Reset() || proxy.Reset() {
				t.Error("it did not die once")
			}
			want := map[string]bool{names[0]: true, names[1]: after, names[2]: false}
			for n, there := range want {
				made, err := client.CoreV1().Namespaces().Get(ctx, n, metav1.GetOptions{})
				if (err == nil) != there {
					t.Errorf("%s was created: %v (%v)", n, err == nil, err)
				}
				if err == nil && made.ManagedFields != nil && made.ManagedFields[0].Manager != "somebody" {
					t.Errorf("its manager is %s", made.ManagedFields[0].Manager)
				}
			}
			if n := len(proxy.Writes()); n != 2 {
				t.Errorf("%d writes were counted, not two", n)
			}
		})
	}
}

func TestFaultProxyHolds(t *testing.T) {
	ctx := t.Context()
	c := testcluster.Shared(t, testcluster.Options{})
	proxy := NewFaultProxy(t, c.Config, "somebody")
	client, err := kubernetes.NewForConfig(proxy.Config())
	must(t, err)
	var order []string
	proxy.Pause(func(n int, w Write) bool {
		_, err := c.Kube.CoreV1().Namespaces().Get(ctx, "held", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			order = append(order, "too late")
		}
		order = append(order, w.Verb)
		return n == 2
	})
	for range 2 {
		_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "held"}}, metav1.CreateOptions{})
		order = append(order, map[bool]string{true: "done", false: "failed"}[err == nil])
	}
	if want := []string{"POST", "failed", "POST", "done"}; !slices.Equal(order, want) {
		t.Errorf("what happened is %v, not %v", order, want)
	}
}
