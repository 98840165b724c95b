package kubelets_test

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/kubelets"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually retries f until it returns no error.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestWorkloadsRun runs a Deployment and a StatefulSet with the real scheduler and
// controller manager on two nodes with played kubelets. Each pod gets an address of its
// node's block. An eviction respects the budget and releases the address; the replacement
// gets another handle. A pod without a free address waits, and starts once an address is
// free.
func TestWorkloadsRun(t *testing.T) {
	ctx := t.Context()
	c := testcluster.Start(t, testcluster.Options{})
	s, err := seeding.New(c)
	must(t, err)
	must(t, s.Init(ctx))
	must(t, s.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: "10.7.0.0/29", BlockSize: 30}))
	for _, name := range []string{"n1", "n2"} {
		must(t, s.Node(ctx, seeding.Node{Name: name}))
	}
	c.StartScheduler(t, "")
	c.StartControllerManager(t)
	k := kubelets.Start(t, s, kubelets.Options{})

	create(t, c)
	eventually(t, func() error { return running(ctx, c, 6) })
	state, err := c.ReadIPAM(ctx, testcluster.CRDv1)
	must(t, err)
	if n := len(state.Allocations["n1"]) + len(state.Allocations["n2"]); n != 6 {
		t.Errorf("%d addresses are allocated: %v", n, state.Allocations)
	}
	for _, pod := range pods(t, c) {
		if !slices.Contains(state.Allocations[pod.Spec.NodeName], netip.MustParseAddr(pod.Status.PodIP)) {
			t.Errorf("pod %s has %s, which is not allocated to %s: %v", pod.Name, pod.Status.PodIP, pod.Spec.NodeName, state.Allocations)
		}
	}

	// The budget allows one of the Deployment's three pods to be evicted.
	web := pods(t, c, "app=web")
	must(t, evict(ctx, c, web[0]))
	if err := evict(ctx, c, web[1]); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a second eviction at once ends with %v", err)
	}
	// The StatefulSet recreates the pod under the same name with another UID.
	db := pods(t, c, "app=db")[0]
	must(t, c.Kube.CoreV1().Pods(db.Namespace).Delete(ctx, db.Name, metav1.DeleteOptions{}))
	eventually(t, func() error {
		now, err := c.Kube.CoreV1().Pods(db.Namespace).Get(ctx, db.Name, metav1.GetOptions{})
		if err == nil && (now.UID == db.UID || now.Status.PodIP == "") {
			err = fmt.Errorf("pod %s has not come back: %s", db.Name, now.Status.Phase)
		}
		if err == nil && now.Annotations["cni.projectcalico.org/containerID"] == db.Annotations["cni.projectcalico.org/containerID"] {
			t.Errorf("pod %s came back in the sandbox of its predecessor", db.Name)
		}
		return err
	})
	eventually(t, func() error { return running(ctx, c, 6) })

	// The pool has 8 addresses. Of 9 pods one waits until another ends.
	scale(t, c, 6)
	eventually(t, func() error { return running(ctx, c, 8) })
	waiting := func() (out []corev1.Pod) {
		for _, pod := range pods(t, c) {
			if pod.Spec.NodeName != "" && pod.Status.PodIP == "" {
				out = append(out, pod)
			}
		}
		return out
	}
	eventually(t, func() error {
		for _, pod := range waiting() {
			if pod.Status.Phase == corev1.PodPending && len(pod.Status.ContainerStatuses) == 1 &&
				pod.Status.ContainerStatuses[0].State.Waiting.Reason == "ContainerCreating" {
				return nil
			}
		}
		return fmt.Errorf("no pod waits for its address: %v", waiting())
	})
	db = pods(t, c, "app=db")[0]
	must(t, c.Kube.AppsV1().StatefulSets("default").Delete(ctx, "db", metav1.DeleteOptions{}))
	eventually(t, func() error { return running(ctx, c, 6) })
	state, err = c.ReadIPAM(ctx, testcluster.CRDv1)
	must(t, err)
	if state.Handles != 6 {
		t.Errorf("6 pods run, and there are %d handles", state.Handles)
	}

	k.Stop()
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if strings.Contains(string(stacks), "kubelets.(*Kubelets)") {
		t.Errorf("something of them still runs:\n%s", stacks)
	}
}

// create creates two workloads of three pods each. The first has a budget.
func create(t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	ctx := t.Context()
	replicas, one := int32(3), intstr.FromInt32(1)
	pod := func(app string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example.org/app:1"}}},
		}
	}
	web, db := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	_, err := c.Kube.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: web, Template: pod("web")},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.Kube.AppsV1().StatefulSets("default").Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: db, Template: pod("db")},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.Kube.PolicyV1().PodDisruptionBudgets("default").Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: web, MaxUnavailable: &one},
	}, metav1.CreateOptions{})
	must(t, err)
	eventually(t, func() error {
		b, err := c.Kube.PolicyV1().PodDisruptionBudgets("default").Get(ctx, "web", metav1.GetOptions{})
		if err == nil && b.Status.DisruptionsAllowed != 1 {
			err = fmt.Errorf("the budget allows %d disruptions", b.Status.DisruptionsAllowed)
		}
		return err
	})
}

func scale(t *testing.T, c *testcluster.Cluster, replicas int32) {
	t.Helper()
	deployments := c.Kube.AppsV1().Deployments("default")
	current, err := deployments.GetScale(t.Context(), "web", metav1.GetOptions{})
	must(t, err)
	current.Spec.Replicas = replicas
	_, err = deployments.UpdateScale(t.Context(), "web", current, metav1.UpdateOptions{})
	must(t, err)
}

func evict(ctx context.Context, c *testcluster.Cluster, pod corev1.Pod) error {
	return c.Kube.CoreV1().Pods(pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	})
}

// running returns an error unless exactly want pods are ready.
func running(ctx context.Context, c *testcluster.Cluster, want int) error {
	list, err := c.Kube.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := 0
	for _, pod := range list.Items {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
				ready++
			}
		}
	}
	if ready != want {
		return fmt.Errorf("%d pods are ready, not %d", ready, want)
	}
	return nil
}

func pods(t *testing.T, c *testcluster.Cluster, selectors ...string) []corev1.Pod {
	t.Helper()
	list, err := c.Kube.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: strings.Join(selectors, ",")})
	must(t, err)
	return list.Items
}
