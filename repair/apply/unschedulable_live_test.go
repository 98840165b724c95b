package apply_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/kubelets"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// constrained are pods that run on a node and borrow, and that the scheduler would place on no other
// node.
var constrained = map[string]func(*corev1.PodSpec){
	"affinity": func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: onHostWith("anchor")}}
	},
	"anti-affinity": func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: onHostWith("filler")}}
	},
	"repelled": func(*corev1.PodSpec) {}, // pod filler has an anti-affinity to it
	"spread": func(s *corev1.PodSpec) {
		s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"spread": "yes"}}}}
	},
	"host-port": func(s *corev1.PodSpec) {
		s.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
	},
	"cpu": func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests = quantity("cpu", "2") },
	"init": func(s *corev1.PodSpec) {
		s.InitContainers = []corev1.Container{{Name: "init", Image: "init", Resources: corev1.ResourceRequirements{Requests: quantity("memory", "2Gi")}}}
	},
	"scheduler": func(s *corev1.PodSpec) { s.SchedulerName = "another" },
	"device":    func(s *corev1.PodSpec) { s.Containers[0].Resources.Limits = quantity("example.com/device", "1") },
}

func onHostWith(app string) []corev1.PodAffinityTerm {
	return []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
}

func quantity(name corev1.ResourceName, value string) corev1.ResourceList {
	return corev1.ResourceList{name: resource.MustParse(value)}
}

// TestNoPodIsEvictedForGood checks that no run evicts a pod that the scheduler then places nowhere.
func TestNoPodIsEvictedForGood(t *testing.T) {
	l := unschedulable(t)
	for app := range constrained {
		t.Run(app, func(t *testing.T) {
			l.t = t
			pod := l.onlyPod(app)
			if p := l.rehoming(pod); len(p.Steps) > 0 {
				t.Log(statuses(l.move(t.Context(), p, apply.Options{EvictTimeout: 5 * time.Second})))
			}
			if now := l.onlyPod(app); now.UID != pod.UID {
				t.Errorf("the pod was evicted, and its replacement is %s on %q", now.Status.Phase, now.Spec.NodeName)
			}
		})
	}
	t.Run("fits", func(t *testing.T) { // the other pods stay because of their constraints alone
		l.t = t
		pod := l.onlyPod("fits")
		if result := statuses(l.move(t.Context(), l.rehoming(pod), apply.Options{EvictTimeout: time.Minute})); result != "evict-pod done" {
			t.Errorf("it ends with %s", result)
		}
		if now := l.onlyPod("fits"); now.UID == pod.UID || now.Spec.NodeName != "new" || now.Status.PodIP == "" {
			t.Errorf("the pod has not moved, but is on %s: %+v", now.Spec.NodeName, now.Status)
		}
	})
	t.Run("late", func(t *testing.T) { // room that is gone when the run begins
		l.t = t
		pod := l.onlyPod("late")
		p := l.rehoming(pod)
		l.created("big", func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources.Requests = quantity("cpu", "700m") })
		if r := l.move(t.Context(), p, apply.Options{EvictTimeout: 5 * time.Second}); !strings.Contains(r.Outcomes[0].Reason, "has room for the requests") {
			t.Errorf("it ends with %+v", r.Outcomes[0])
		}
		if now := l.onlyPod("late"); now.UID != pod.UID {
			t.Errorf("the pod was evicted, and its replacement is %s on %q", now.Status.Phase, now.Spec.NodeName)
		}
	})
}

// unschedulable starts a cluster with a scheduler and two nodes. The constrained pods run on the
// first, which people have cordoned since, and borrow from the second.
func unschedulable(t *testing.T) *lab {
	t.Helper()
	ctx := t.Context()
	c := testcluster.Start(t, testcluster.Options{})
	l := pooled(t, c, "10.7.0.0/27", 27, "old", "new")
	l.must(l.patchNode("old", `{"status":{"allocatable":{"example.com/device":"1"},"capacity":{"example.com/device":"1"}}}`, "status"))
	c.StartScheduler(t, "")
	c.StartControllerManager(t)
	l.kubelets = kubelets.Start(t, l.s, kubelets.Options{})

	l.created("filler", func(pod *corev1.Pod) { // claims the only block, and fills node new
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("7"), "memory": resource.MustParse("31Gi")}
	})
	l.created("anchor", func(pod *corev1.Pod) { pod.Spec.NodeName = "old" })
	l.must(l.patchNode("new", `{"spec":{"unschedulable":true}}`))
	for app, change := range constrained {
		l.deployment(app, change)
	}
	for _, app := range []string{"late", "fits"} {
		l.deployment(app, func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests = quantity("cpu", "300m") })
	}
	for app := range constrained {
		if app == "scheduler" {
			pod := l.onlyPod(app)
			l.must(c.Kube.CoreV1().Pods("default").Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "old"}}, metav1.CreateOptions{}))
		}
		l.started(l.onlyPod(app).Name)
	}
	l.started(l.onlyPod("late").Name)
	l.started(l.onlyPod("fits").Name)
	for i := range 2 { // one more than the constraint allows
		l.created(fmt.Sprintf("spread-%d", i), func(pod *corev1.Pod) { pod.Labels["spread"] = "yes" })
	}
	l.created("repels", func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: onHostWith("repelled")}}
	})
	l.must(l.patchNode("new", `{"spec":{"unschedulable":false}}`))
	l.must(l.patchNode("old", `{"spec":{"unschedulable":true}}`))
	for app := range constrained {
		if pod := l.onlyPod(app); pod.Spec.NodeName != "old" {
			t.Fatalf("pod %s is on %s", pod.Name, pod.Spec.NodeName)
		}
	}
	return l
}

func (l *lab) patchNode(name, patch string, sub ...string) error {
	_, err := l.c.Kube.CoreV1().Nodes().Patch(l.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, sub...)
	return err
}

// deployment creates a Deployment of one pod.
func (l *lab) deployment(app string, change func(*corev1.PodSpec)) {
	l.t.Helper()
	labels, one := map[string]string{"app": app}, int32(1)
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main"}}}}
	if change(&template.Spec); app == "spread" {
		template.Labels = map[string]string{"app": app, "spread": "yes"}
	}
	_, err := l.c.Kube.AppsV1().Deployments("default").Create(l.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec:       appsv1.DeploymentSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}, metav1.CreateOptions{})
	l.must(err)
}

// onlyPod returns an app's only pod that is not ending.
func (l *lab) onlyPod(app string) *corev1.Pod {
	l.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		pods, err := l.c.Kube.CoreV1().Pods("default").List(l.t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
		l.must(err)
		pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
		switch {
		case len(pods.Items) == 1:
			return &pods.Items[0]
		case time.Now().After(deadline):
			l.t.Fatalf("%s has %d pods", app, len(pods.Items))
		}
	}
}

// rehoming returns the plan of --rehome for one pod.
func (l *lab) rehoming(pod *corev1.Pod) *repair.Plan {
	l.t.Helper()
	s, err := l.reader.Read(l.t.Context())
	l.must(err)
	p := planner.Build(state.New(s, state.Options{Grace: grace}), repair.Request{Rehome: true, CordonFull: true, EvictSingletons: true, IPs: []netip.Addr{netip.MustParseAddr(pod.Status.PodIP)}})
	l.t.Logf("%d steps, refused: %+v", len(p.Steps), p.Refused)
	return p
}

// created creates a pod on node new, and waits for its address.
func (l *lab) created(name string, change func(*corev1.Pod)) {
	l.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: "new", Containers: []corev1.Container{{Name: "main", Image: "main"}}},
	}
	change(pod)
	_, err := l.c.Kube.CoreV1().Pods("default").Create(l.t.Context(), pod, metav1.CreateOptions{})
	l.must(err)
	l.started(name)
}
