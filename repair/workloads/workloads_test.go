package workloads_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/workloads"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// taken is a journal in memory.
type taken struct {
	changes []repair.Change
	err     error
}

func (j *taken) Record(c repair.Change) error {
	j.changes = append(j.changes, c)
	return j.err
}

// newCluster returns a cluster with a node and a pod on it.
func newCluster(t *testing.T) (*testcluster.Cluster, *corev1.Pod, *corev1.Node) {
	t.Helper()
	ctx := t.Context()
	c := testcluster.Shared(t, testcluster.Options{})
	s, err := seeding.New(c)
	must(t, err)
	must(t, s.Init(ctx))
	must(t, s.Node(ctx, seeding.Node{Name: "n1"}))
	_, err = s.Pod(ctx, seeding.Pod{Namespace: "default", Name: "web", Node: "n1", Labels: map[string]string{"app": "web"}, HostNetwork: true})
	must(t, err)
	pod, err := c.Kube.CoreV1().Pods("default").Get(ctx, "web", metav1.GetOptions{})
	must(t, err)
	node, err := c.Kube.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
	must(t, err)
	return c, pod, node
}

func client(t *testing.T, c *testcluster.Cluster, j repair.Recorder) *workloads.Client {
	t.Helper()
	w, err := workloads.New(c.Config, j)
	must(t, err)
	return w.Impatient()
}

// moving returns a client that holds the Lease until the test ends.
func moving(t *testing.T, c *testcluster.Cluster, j repair.Recorder) *workloads.Client {
	t.Helper()
	w := client(t, c, j)
	h, err := w.AcquireLease(t.Context(), func(string) {})
	must(t, err)
	t.Cleanup(h.Release)
	return w
}

// TestEvict checks that a pod is evicted by its UID, within its budget, and only after
// the eviction was recorded.
func TestEvict(t *testing.T) {
	ctx := t.Context()
	c, pod, _ := newCluster(t)
	if err := client(t, c, &taken{err: errors.New("full")}).Evict(ctx, "default", "web", string(pod.UID)); err == nil {
		t.Error("evicted without a journal")
	}
	j := &taken{}
	w := moving(t, c, j)
	if err := w.Evict(ctx, "default", "web", "another"); !errors.Is(err, repair.ErrChanged) || len(j.changes) > 0 {
		t.Errorf("another pod of the name: %v, journal %v", err, j.changes)
	}
	zero := intstr.FromInt32(1)
	_, err := c.Kube.PolicyV1().PodDisruptionBudgets("default").Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &zero, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}, metav1.CreateOptions{})
	must(t, err)
	var refused *repair.RefusedEvictionError
	if err := w.Evict(ctx, "default", "web", string(pod.UID)); !errors.As(err, &refused) {
		t.Errorf("against its budget: %v", err)
	}
	if now, err := c.Kube.CoreV1().Pods("default").Get(ctx, "web", metav1.GetOptions{}); err != nil || now.DeletionTimestamp != nil {
		t.Errorf("the pod is %+v, %v", now, err)
	}
	must(t, c.Kube.PolicyV1().PodDisruptionBudgets("default").Delete(ctx, "web", metav1.DeleteOptions{}))
	deadline := time.Now().Add(20 * time.Second)
	for err = w.Evict(ctx, "default", "web", string(pod.UID)); errors.As(err, &refused) && time.Now().Before(deadline); {
		err = w.Evict(ctx, "default", "web", string(pod.UID))
	}
	must(t, err)
	if now, err := c.Kube.CoreV1().Pods("default").Get(ctx, "web", metav1.GetOptions{}); err == nil && now.DeletionTimestamp == nil {
		t.Error("the pod is not evicted")
	}
	if last := j.changes[len(j.changes)-1]; last.Verb != repair.VerbEvict || last.Resource != blocks.Pods || last.Name != "default/web" || len(last.Before) == 0 {
		t.Errorf("the journal has %+v", last)
	}
	if err := w.Evict(ctx, "default", "gone", "x"); !errors.Is(err, repair.ErrChanged) {
		t.Errorf("a pod that is gone: %v", err)
	}
}

func ref(n *corev1.Node) repair.ObjectRef {
	return repair.ObjectRef{Resource: blocks.Nodes, Name: n.Name, UID: string(n.UID), ResourceVersion: n.ResourceVersion}
}

// TestCordon checks that a cordon carries the mark, and that only such a cordon is
// removed. Nodes that people cordon or uncordon meanwhile stay as they are.
func TestCordon(t *testing.T) {
	ctx := t.Context()
	c, _, node := newCluster(t)
	w := moving(t, c, &taken{})
	now := func() *corev1.Node {
		n, err := c.Kube.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
		must(t, err)
		return n
	}
	is := func(when string, cordoned bool, mark string) {
		t.Helper()
		if n := now(); n.Spec.Unschedulable != cordoned || n.Annotations[blocks.OursAnnotation] != mark {
			t.Errorf("%s: unschedulable %t, mark %q", when, n.Spec.Unschedulable, n.Annotations[blocks.OursAnnotation])
		}
	}
	people := func(cordoned bool) {
		n := now()
		n.Spec.Unschedulable = cordoned
		_, err := c.Kube.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{})
		must(t, err)
	}
	must(t, w.Cordon(ctx, ref(node), "a b"))
	is("cordoned", true, "a b")
	must(t, w.Cordon(ctx, ref(node), "a b"))
	if err := w.Cordon(ctx, ref(node), "c d"); !errors.Is(err, repair.ErrChanged) {
		t.Errorf("cordoned for another: %v", err)
	}
	must(t, w.Uncordon(ctx, ref(node), "c d"))
	is("uncordoned by another", true, "a b")
	must(t, w.Uncordon(ctx, ref(node), "a b"))
	is("uncordoned", false, "")

	people(true)
	if err := w.Cordon(ctx, ref(node), "a b"); !errors.Is(err, repair.ErrChanged) {
		t.Errorf("a node that people cordoned: %v", err)
	}
	must(t, w.Uncordon(ctx, ref(node), "a b"))
	is("cordoned by people", true, "")

	people(false)
	must(t, w.Cordon(ctx, ref(node), "a b"))
	people(false)
	must(t, w.Uncordon(ctx, ref(node), "a b"))
	is("uncordoned by people meanwhile", false, "")

	// People uncordon the node and cordon it again, without knowing the annotation.
	must(t, w.Cordon(ctx, ref(node), "a b"))
	people(false)
	people(true)
	is("cordoned by people meanwhile", true, "a b")
	var kept *repair.KeptCordonError
	if err := w.Uncordon(ctx, ref(node), "a b"); !errors.As(err, &kept) || kept.Node != "n1" || kept.By == blocks.FieldManager || time.Since(kept.Since) > time.Hour {
		t.Errorf("a cordon that people made again: %v", err)
	}
	is("uncordoned after that", true, "")
	people(false)

	other := ref(node)
	other.UID = "another"
	if err := w.Cordon(context.WithoutCancel(ctx), other, "a b"); !errors.Is(err, repair.ErrChanged) {
		t.Errorf("another node of the name: %v", err)
	}
	if err := client(t, c, &taken{err: errors.New("full")}).Cordon(ctx, ref(node), "a b"); err == nil {
		t.Error("cordoned without a journal")
	}
	is("in the end", false, "")
}
