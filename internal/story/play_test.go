package story

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/kubelets"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// cast is the size of a story.
type cast struct {
	pool      netip.Prefix // four blocks
	blockSize int
	// perOld is the number of pods on an old node: more than a block holds.
	perOld int
}

var (
	// full is Wikimedia's incident T296303, except that each full block has one free
	// address. small shows the same with fewer pods.
	full  = cast{netip.MustParsePrefix("10.64.75.0/24"), 26, 70}
	small = cast{netip.MustParsePrefix("10.64.75.0/26"), 28, 18}
)

const (
	pool = "pods-v4"
	shop = "shop"
	// borrowers is the number of pods on the new nodes.
	borrowers = 4
)

var (
	oldNodes = []string{"old-1", "old-2"}
	newNodes = []string{"new-1", "new-2"}
)

// story is a cluster in the state of the incident. Two old nodes hold all four blocks of
// the pool. Two nodes joined later, and their pods borrow addresses. All pods have
// controllers and budgets.
type story struct {
	*testcluster.Cluster
	seeder    *seeding.Seeder
	scheduler *testcluster.Daemon
	manager   *testcluster.Daemon
	kubelets  *kubelets.Kubelets
	budgets   []budget
	// began is the etcd revision at which the state was complete.
	began int64
}

// budget is an app in a namespace: its replicas, and how many of its pods must be healthy
// at any time.
type budget struct {
	namespace, app    string
	replicas, healthy int
}

// play creates the state of the incident.
func play(t *testing.T, size cast) *story {
	t.Helper()
	ctx := t.Context()
	s := raise(t)
	c, seeder := s.Cluster, s.seeder
	must(t, seeder.Init(ctx))
	must(t, seeder.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}))
	must(t, seeder.TopOfRack(ctx, 64602, netip.MustParseAddr("172.16.0.1"), 14907))
	must(t, seeder.Pool(ctx, pool, apiv3.IPPoolSpec{
		CIDR: size.pool.String(), BlockSize: size.blockSize, NATOutgoing: true,
		IPIPMode: apiv3.IPIPModeNever, VXLANMode: apiv3.VXLANModeNever,
	}))
	must(t, seeder.Namespace(ctx, shop, map[string]string{"team": "storefront"}, nil))
	// The tight limit of pods per node makes the scheduler spread the pods evenly.
	for _, node := range oldNodes {
		must(t, seeder.Node(ctx, seeding.Node{Name: node, AllocatablePods: size.perOld + 3}))
	}
	s.run(t)
	must(t, s.agent(ctx))
	s.awaitHealthy(t)
	for _, node := range oldNodes {
		s.bind(t, "first-on-"+node, node)
	}
	for _, node := range oldNodes {
		s.awaitPod(t, "first-on-"+node, isHealthy)
	}
	rest := len(oldNodes)*size.perOld - 2
	must(t, s.workload(ctx, "kube-system", "coredns", 2, intstr.FromInt32(1)))
	must(t, s.workload(ctx, shop, "cart", rest/3, intstr.FromInt32(1)))
	must(t, s.workload(ctx, shop, "catalog", rest/3, intstr.FromString("10%")))
	must(t, s.workload(ctx, shop, "web", rest-2*(rest/3), intstr.FromInt32(2)))
	s.awaitHealthy(t)
	for _, node := range oldNodes {
		_, err := s.Kube.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(`{"status":{"allocatable":{"pods":"110"}}}`), metav1.PatchOptions{}, "status")
		must(t, err)
	}
	for _, node := range newNodes {
		must(t, seeder.Node(ctx, seeding.Node{Name: node}))
	}
	// The old nodes count as busy. The scheduler cannot see that here, so they are
	// cordoned.
	s.cordon(t, true)
	must(t, s.workload(ctx, shop, "checkout", borrowers, intstr.FromInt32(1)))
	s.awaitHealthy(t)
	s.cordon(t, false)
	// Delete one pod in each first block: with a free address there, the node can do
	// without its second block.
	for _, node := range oldNodes {
		s.end(t, "first-on-"+node)
	}

	state, err := c.ReadIPAM(ctx, testcluster.CRDv1)
	must(t, err)
	must(t, check(state))
	eventually(t, time.Minute, func() error { return c.Backdate(ctx, 3*time.Hour) }) // retried because a concurrent write makes it fail
	must(t, c.Heartbeat(ctx))
	s.begin(t)
	return s
}

// end deletes a pod and waits until it no longer exists.
func (s *story) end(t *testing.T, name string) {
	t.Helper()
	pods := s.Kube.CoreV1().Pods(shop)
	must(t, pods.Delete(t.Context(), name, metav1.DeleteOptions{}))
	eventually(t, time.Minute, func() error {
		switch _, err := pods.Get(t.Context(), name, metav1.GetOptions{}); {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("pod %s is not gone", name)
	})
}

// check returns an error unless the state is the incident's.
func check(state *testcluster.IPAMState) error {
	for _, node := range oldNodes {
		if n := len(state.Blocks[node]); n != 2 {
			return fmt.Errorf("node %s has %d blocks, not 2: %v", node, n, state.Blocks)
		}
	}
	for _, node := range newNodes {
		if n := len(state.Blocks[node]) + len(state.Affinities[node]); n != 0 {
			return fmt.Errorf("node %s has a block or an affinity: %v", node, state.Blocks)
		}
		if len(state.Allocations[node]) == 0 {
			return fmt.Errorf("node %s runs no pod", node)
		}
	}
	if n := len(state.Borrowed); n != borrowers {
		return fmt.Errorf("%d addresses are borrowed, not %d", n, borrowers)
	}
	return nil
}

// cordon cordons or uncordons the old nodes.
func (s *story) cordon(t *testing.T, on bool) {
	t.Helper()
	for _, node := range oldNodes {
		s.cordonNode(t, node, on)
	}
}

func (s *story) cordonNode(t *testing.T, node string, on bool) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on)
	_, err := s.Kube.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	must(t, err)
}

// agent starts calico-node on every node. It uses the host network and therefore no
// address of the pool.
func (s *story) agent(ctx context.Context) error {
	template := template("calico-node")
	template.Spec.HostNetwork = true
	template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	_, err := s.Kube.AppsV1().DaemonSets("kube-system").Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "calico-node"},
		Spec:       appsv1.DaemonSetSpec{Selector: selector("calico-node"), Template: template},
	}, metav1.CreateOptions{})
	return err
}

// workload creates a Deployment with a budget that allows the given number of unavailable
// pods.
func (s *story) workload(ctx context.Context, namespace, app string, replicas int, unavailable intstr.IntOrString) error {
	n := int32(replicas)
	_, err := s.Kube.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec:       appsv1.DeploymentSpec{Replicas: &n, Selector: selector(app), Template: template(app)},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = s.Kube.PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selector(app), MaxUnavailable: &unavailable},
	}, metav1.CreateOptions{})
	allowed, scaleErr := intstr.GetScaledValueFromIntOrPercent(&unavailable, replicas, true)
	if err == nil {
		err = scaleErr
	}
	s.budgets = append(s.budgets, budget{namespace, app, replicas, replicas - allowed})
	return err
}

func selector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func template(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example.org/app:1"}}},
	}
}

// awaitHealthy waits until all workloads have all their pods, their budgets' status shows
// it, and calico-node runs on every node.
func (s *story) awaitHealthy(t *testing.T) {
	t.Helper()
	eventually(t, 3*time.Minute, func() error {
		budgets, err := s.Kube.PolicyV1().PodDisruptionBudgets("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, b := range s.budgets {
			i := slices.IndexFunc(budgets.Items, func(p policyv1.PodDisruptionBudget) bool { return p.Name == b.app })
			status := budgets.Items[i].Status
			if status.CurrentHealthy != int32(b.replicas) || status.DesiredHealthy != int32(b.healthy) {
				return fmt.Errorf("of %d pods %s, %d are healthy, and %d must be", b.replicas, b.app, status.CurrentHealthy, status.DesiredHealthy)
			}
		}
		agents, err := s.Kube.AppsV1().DaemonSets("kube-system").Get(t.Context(), "calico-node", metav1.GetOptions{})
		if err != nil {
			return err
		}
		nodes, err := s.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err == nil && int(agents.Status.NumberReady) != len(nodes.Items) {
			err = fmt.Errorf("calico-node is ready on %d of %d nodes", agents.Status.NumberReady, len(nodes.Items))
		}
		return err
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually retries f until it returns no error.
func eventually(t *testing.T, within time.Duration, f func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", within, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
