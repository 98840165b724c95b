package live_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/kubelets"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// restored is a cluster whose IPAM objects are restored from a backup, with Calico's collector.
type restored struct {
	*testing.T
	c         *testcluster.Cluster
	s         *seeding.Seeder
	collector *testcluster.KubeControllers
}

func (x *restored) must(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

// eventually waits until f returns "", and otherwise fails with f's result.
func (x *restored) eventually(f func() string) {
	x.Helper()
	var why string
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if why = f(); why == "" {
			return
		}
	}
	x.Fatal(why)
}

// start starts pods, as a controller does, and waits until they run.
func (x *restored) start(node string, names ...string) {
	x.Helper()
	yes := true
	for _, name := range names {
		_, err := x.c.Kube.CoreV1().Pods("default").Create(x.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: &yes}}},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "registry.example.org/app:1"}}},
		}, metav1.CreateOptions{})
		x.must(err)
	}
	for _, name := range names {
		x.eventually(func() string {
			p, err := x.c.Kube.CoreV1().Pods("default").Get(x.Context(), name, metav1.GetOptions{})
			if err != nil || p.Status.Phase != corev1.PodRunning {
				return fmt.Sprintf("pod %s does not run: %v", name, err)
			}
			return ""
		})
	}
}

// end deletes pods, and waits until their kubelets have ended them.
func (x *restored) end(names ...string) {
	x.Helper()
	for _, name := range names {
		x.must(x.c.Kube.CoreV1().Pods("default").Delete(x.Context(), name, metav1.DeleteOptions{}))
	}
	for _, name := range names {
		x.eventually(func() string {
			if _, err := x.c.Kube.CoreV1().Pods("default").Get(x.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("pod %s does not end: %v", name, err)
			}
			return ""
		})
	}
}

const collectorPod = "calico-kube-controllers-6d8c-x2x7b"

// followCollector runs the collector according to its Deployment, as a controller and the kubelet
// do.
func (x *restored) followCollector() {
	x.Helper()
	d, err := x.c.Kube.AppsV1().Deployments("kube-system").Get(x.Context(), "calico-kube-controllers", metav1.GetOptions{})
	x.must(err)
	pods := x.c.Kube.CoreV1().Pods("kube-system")
	switch wanted := *d.Spec.Replicas > 0; {
	case !wanted && x.collector.Running():
		x.collector.Stop()
		var now int64
		x.must(pods.Delete(x.Context(), collectorPod, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	case wanted && !x.collector.Running():
		x.must(x.s.SetLeakGrace(x.Context(), 2*time.Second)) // so that it soon frees addresses
		x.must(x.collector.Start(x.Context()))
		x.showCollector()
	}
}

func (x *restored) showCollector() {
	_, err := x.c.Kube.CoreV1().Pods("kube-system").Create(x.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: collectorPod}, Spec: corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "main", Image: "registry.example.org/kube-controllers:1"}}},
	}, metav1.CreateOptions{})
	x.must(err)
}

// follow executes the printed commands in order, and plays controllers and the kubelet meanwhile.
// It calls then after each command.
func (x *restored) follow(way string, then func(command string)) {
	x.Helper()
	for _, line := range strings.Split(way, "\n") {
		command, is := strings.CutPrefix(line, "   $ ")
		if !is {
			continue
		}
		args := strings.Fields(command)
		switch {
		case args[0] == "kubectl":
			if _, err := x.c.Kubectl(x.Context(), args[1:]...); err != nil {
				x.Fatalf("%s: %v", command, err)
			}
			x.followCollector()
			if args[1] == "delete" { // kubectl delete pod --namespace default NAME --kubeconfig FILE
				x.start("n1", args[5]+"-again")
			}
		case slices.Contains(args, "apply"):
			got := clitest.Run(x.T, append(args[1:], "--yes")...)
			// It may say to wait until a pod runs, because a slow API server delays pods.
			for until := time.Now().Add(time.Minute); strings.Contains(got.Err, "nothing was written: it is not time for this plan") && strings.Contains(got.Err, "wait until pod") && time.Now().Before(until); time.Sleep(time.Second) {
				got = clitest.Run(x.T, append(args[1:], "--yes")...)
			}
			if got.Code != exit.CodeOK {
				x.Fatalf("%s ends with %d:\n%s%s", command, got.Code, got.Stdout, got.Err)
			}
		default:
			if got := clitest.Run(x.T, args[1:]...); got.Code != exit.CodeOK {
				x.Fatalf("%s ends with %d:\n%s%s", command, got.Code, got.Stdout, got.Err)
			}
		}
		then(command)
	}
}

// freedUnderPods follows etcd from now on. The returned function stops and returns the addresses
// that were freed while a live pod had them, at any revision.
func (x *restored) freedUnderPods() func() []string {
	ctx, cancel := context.WithCancel(x.Context())
	now, err := x.c.Etcd.Get(ctx, "/registry/", clientv3.WithPrefix())
	x.must(err)
	var events []*clientv3.Event
	for _, kv := range now.Kvs {
		events = append(events, &clientv3.Event{Type: clientv3.EventTypePut, Kv: kv})
	}
	var reading sync.WaitGroup
	watch := x.c.Etcd.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(now.Header.Revision+1))
	reading.Go(func() {
		for r := range watch {
			events = append(events, r.Events...)
		}
	})
	return func() (freed []string) {
		time.Sleep(time.Second) // the last events arrive
		cancel()
		reading.Wait()
		pods, blocks := map[string]*corev1.Pod{}, map[string]map[netip.Addr]bool{}
		for _, e := range events {
			key := string(e.Kv.Key)
			switch {
			case strings.HasPrefix(key, "/registry/pods/") && e.Type == clientv3.EventTypeDelete:
				delete(pods, key)
			case strings.HasPrefix(key, "/registry/pods/"):
				var o runtime.Object
				o, _, err = scheme.Codecs.UniversalDeserializer().Decode(e.Kv.Value, nil, nil)
				x.must(err)
				pods[key] = o.(*corev1.Pod)
			case strings.HasPrefix(key, "/registry/crd.projectcalico.org/ipamblocks/"):
				after := x.allocated(e)
				for a := range blocks[key] {
					for name, p := range pods {
						if !after[a] && p.Status.PodIP == a.String() && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
							freed = append(freed, fmt.Sprintf("%s under %s at revision %d", a, name, e.Kv.ModRevision))
						}
					}
				}
				blocks[key] = after
			}
		}
		return freed
	}
}

// allocated returns the allocated addresses of a stored block; none if it was deleted.
func (x *restored) allocated(e *clientv3.Event) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	if e.Type == clientv3.EventTypeDelete {
		return out
	}
	var b struct {
		Spec struct {
			CIDR        string
			Allocations []*int
		}
	}
	x.must(json.Unmarshal(e.Kv.Value, &b))
	a := netip.MustParsePrefix(b.Spec.CIDR).Addr()
	for _, i := range b.Spec.Allocations {
		if i != nil {
			out[a] = true
		}
		a = a.Next()
	}
	return out
}

// TestAfterRestore starts, ends and moves fifty pods, then restores Calico's objects, or the whole
// of etcd, as stored before, and starts more pods. It follows the printed commands, line by line,
// while pods start and end and, where the commands allow it, Calico's own collector runs. At the
// end each address must be recorded for its pod and nothing may be leaked, and at no revision may
// an address of a live pod be free. If only Calico's objects are restored, blocks lack addresses
// that pods use, and record addresses for deleted pods. If the whole of etcd is restored, the
// kubelets end pods that the API server has forgotten, and restart pods that it remembers; their
// old addresses leak.
func TestAfterRestore(t *testing.T) {
	for _, what := range testenv.Sample(t, 1, []string{"Calico's objects", "etcd"}) {
		t.Run(what, func(t *testing.T) {
			if what == "etcd" {
				testAfterRestore(t, testcluster.Start(t, testcluster.Options{}), true, "ip/leaked")
			} else {
				testAfterRestore(t, testcluster.Shared(t, testcluster.Options{}), false, "ip/unallocated", "ip/wrong-pod", "ip/duplicate", "ip/leaked")
			}
		})
	}
}

// testAfterRestore restores the whole of etcd, or only Calico's objects. expected are the checks
// with findings after that.
func testAfterRestore(t *testing.T, c *testcluster.Cluster, whole bool, expected ...string) {
	x, ctx := &restored{T: t, c: c}, t.Context()
	t.Chdir(t.TempDir())
	var err error
	x.s, err = seeding.New(c)
	x.must(err)
	x.must(x.s.Init(ctx))
	x.must(x.s.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}))
	x.must(x.s.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: "10.7.0.0/24", BlockSize: 28, VXLANMode: apiv3.VXLANModeNever, IPIPMode: apiv3.IPIPModeNever}))
	nodes := []string{"n1", "n2"}
	for _, n := range nodes {
		x.must(x.s.Node(ctx, seeding.Node{Name: n}))
	}
	x.must(x.s.SetLeakGrace(ctx, 10*time.Minute))
	x.collector = c.StartKubeControllers(t)
	x.showCollector()
	one := int32(1)
	labels := map[string]string{"k8s-app": "calico-kube-controllers"}
	_, err = c.Kube.AppsV1().Deployments("kube-system").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "calico-kube-controllers"},
		Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example.org/kube-controllers:1"}}},
		}},
	}, metav1.CreateOptions{})
	x.must(err)
	t.Cleanup(func() {
		_ = c.Kube.AppsV1().Deployments("kube-system").Delete(context.Background(), "calico-kube-controllers", metav1.DeleteOptions{})
	})
	play := kubelets.Options{StartUp: time.Millisecond, Grace: time.Millisecond}
	play.After = kubelets.Start(t, x.s, play)

	names := func(kind, node string, n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("%s-%s-%d", kind, node, i))
		}
		return out
	}
	for _, n := range nodes {
		x.start(n, slices.Concat(names("stay", n, 3), names("leave", n, 9), names("move", n, 3))...)
	}
	crd := func(plural string) testcluster.Resource { return testcluster.CRDv1.Resource(plural) }
	save := func() (func(context.Context) error, error) {
		if whole {
			return c.Backup(ctx)
		}
		return c.Save(ctx, crd("ipamblocks"), crd("blockaffinities"), crd("ipamhandles"))
	}
	restore, err := save()
	x.must(err)
	for i, n := range nodes {
		other := nodes[1-i]
		x.end(slices.Concat(names("leave", n, 9), names("move", n, 3))...)
		x.start(n, names("new", n, 10)...)
		x.start(other, names("move", n, 3)...)
	}
	if whole { // as on machines that start again
		play.After.Stop()
		x.collector.Stop()
	}
	x.must(restore(ctx))
	if whole {
		kubelets.Start(t, x.s, play)
		x.must(x.collector.Start(ctx))
	}
	for _, n := range nodes {
		x.start(n, names("late", n, 2)...)
	}
	freed := x.freedUnderPods()
	time.Sleep(2 * time.Second) // the grace

	report := func() map[string]int {
		t.Helper()
		count := map[string]int{}
		for _, f := range clitest.RunOn(t, c, "report", "-o", "json", "--grace", "2s").Report(t).Findings {
			count[f.Check]++
		}
		return count
	}
	before := report()
	for _, check := range expected {
		if before[check] == 0 {
			t.Errorf("the restored cluster has no finding of %s: %v", check, before)
		}
	}

	got := clitest.RunOn(t, c, "repair", "--after-restore", "--grace", "2s", "--without-host-evidence", "--out", "plan.json")
	if got.Code != exit.CodeOK {
		t.Fatalf("exit code %d\n%s%s", got.Code, got.Stdout, got.Err)
	}
	for _, stage := range []string{"1", "2", "3", "4", "5"} {
		early := clitest.RunOn(t, c, "repair", "apply", "plan-"+stage+".json", "--yes")
		if early.Code != exit.CodeUnfinished || stage != "5" && !strings.Contains(early.Err, "stage 1 (stop Calico's collector) is not done") {
			t.Errorf("applied before its time, stage %s ends with %d: %s", stage, early.Code, early.Err)
		}
	}
	churn, stop := context.WithCancel(ctx)
	var churning sync.WaitGroup
	var once sync.Once
	x.follow(got.Stdout, func(command string) {
		if strings.Contains(command, "apply plan-2.json") { // from now on, pods may start and end
			once.Do(func() { churning.Go(func() { x.comeAndGo(churn) }) })
		}
	})
	time.Sleep(8 * time.Second) // several of the collector's grace periods
	stop()
	churning.Wait()
	if !x.collector.Running() {
		t.Error("the collector does not run at the end of the way")
	}
	time.Sleep(3 * time.Second)
	after := report()
	for _, check := range []string{"ip/unallocated", "ip/wrong-pod", "ip/duplicate", "ip/leaked", "handle/leaked", "handle/missing", "handle/count", "ip/wrong-node"} {
		if after[check] > 0 {
			t.Errorf("after the way there are %d findings of %s: %s", after[check], check, clitest.RunOn(t, c, "report", "--check", check, "--grace", "2s").Stdout)
		}
	}
	for _, f := range freed() {
		t.Errorf("freed: %s", f)
	}
}

// comeAndGo starts and ends pods until the context ends.
func (x *restored) comeAndGo(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("churn-%d", i)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: []string{"n1", "n2"}[i%2], Containers: []corev1.Container{{Name: "main", Image: "registry.example.org/app:1"}}}}
		if _, err := x.c.Kube.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil && ctx.Err() == nil {
			x.Error(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(1500 * time.Millisecond):
		}
		if err := x.c.Kube.CoreV1().Pods("default").Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			x.Error(err)
		}
	}
}
