package decode

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/alias"
)

// TestScheduling: the rules of the scheduler are decoded from JSON, from protobuf and from a saved
// snapshot, anonymized or not. Pods with equal rules share them.
func TestScheduling(t *testing.T) {
	list := func(name corev1.ResourceName, quantity string) corev1.ResourceList {
		return corev1.ResourceList{name: resource.MustParse(quantity)}
	}
	container := func(name corev1.ResourceName, quantity string) corev1.Container {
		return corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: list(name, quantity)}}
	}
	always := corev1.ContainerRestartPolicyAlways
	sidecar := container("cpu", "250m")
	sidecar.RestartPolicy = &always
	term := func(selector *metav1.LabelSelector, namespaces ...string) []corev1.PodAffinityTerm {
		return []corev1.PodAffinityTerm{{TopologyKey: "zone", LabelSelector: selector, Namespaces: namespaces}}
	}
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	elsewhere := term(web)
	elsewhere[0].NamespaceSelector = &metav1.LabelSelector{}
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		want *blocks.Scheduling
	}{
		"not kept": {corev1.PodSpec{Containers: []corev1.Container{container("cpu", "1")}}, nil},
		"none":     {corev1.PodSpec{SchedulerName: "default-scheduler"}, &blocks.Scheduling{}},
		"requests": {
			corev1.PodSpec{SchedulerName: "default-scheduler", Containers: []corev1.Container{container("cpu", "1"), container("cpu", "10m"), container("memory", "1Ki"), container("acme.com/gpu", "2")},
				InitContainers: []corev1.Container{sidecar, container("memory", "2Ki")}, Overhead: list("cpu", "5m")},
			&blocks.Scheduling{Requests: blocks.Quantities{"cpu": 1265, "memory": 2_048_000, "acme.com/gpu": 2000}},
		},
		"of the pod":           {corev1.PodSpec{SchedulerName: "default-scheduler", Containers: []corev1.Container{container("cpu", "1")}, Resources: &corev1.ResourceRequirements{Requests: list("cpu", "3")}}, &blocks.Scheduling{Requests: blocks.Quantities{"cpu": 3000}}},
		"the largest":          {corev1.PodSpec{SchedulerName: "default-scheduler", Containers: []corev1.Container{container("memory", "100P")}}, &blocks.Scheduling{Requests: blocks.Quantities{"memory": 1<<63 - 1}}},
		"a port":               {corev1.PodSpec{SchedulerName: "default-scheduler", Containers: []corev1.Container{{}, {Ports: []corev1.ContainerPort{{ContainerPort: 1}, {ContainerPort: 2, HostPort: 80}}}}}, &blocks.Scheduling{HostPorts: true}},
		"another port":         {corev1.PodSpec{SchedulerName: "default-scheduler", Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 1}}}}}, &blocks.Scheduling{}},
		"another scheduler":    {corev1.PodSpec{SchedulerName: "volcano"}, &blocks.Scheduling{Undecided: "the scheduler volcano"}},
		"affinity":             {corev1.PodSpec{SchedulerName: "default-scheduler", Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term(web)}}}, &blocks.Scheduling{Undecided: "required pod affinity"}},
		"preferred affinities": {corev1.PodSpec{SchedulerName: "default-scheduler", Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term(web)[0]}}}}}, &blocks.Scheduling{}},
		"anti-affinity": {
			corev1.PodSpec{SchedulerName: "default-scheduler", Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: append(term(web, "shop", "red"), term(nil)[0], elsewhere[0])}}},
			&blocks.Scheduling{Undecided: "required pod anti-affinity", Repels: []blocks.PodTerm{{Namespaces: []string{"shop", "red"}, Selector: "app=web"}, {AnyNamespace: true, Selector: "app=web"}}},
		},
		"spread":            {corev1.PodSpec{SchedulerName: "default-scheduler", TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: corev1.ScheduleAnyway}, {WhenUnsatisfiable: corev1.DoNotSchedule}}}, &blocks.Scheduling{Undecided: "a topology spread constraint (DoNotSchedule)"}},
		"spread at will":    {corev1.PodSpec{SchedulerName: "default-scheduler", TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: corev1.ScheduleAnyway}}}, &blocks.Scheduling{}},
		"claims of devices": {corev1.PodSpec{SchedulerName: "default-scheduler", ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu"}}}, &blocks.Scheduling{Undecided: "resource claims"}},
		"gates":             {corev1.PodSpec{SchedulerName: "default-scheduler", SchedulingGates: []corev1.PodSchedulingGate{{Name: "quota"}}}, &blocks.Scheduling{Undecided: "scheduling gates or a scheduling group"}},
		"a group":           {corev1.PodSpec{SchedulerName: "default-scheduler", SchedulingGroup: &corev1.PodSchedulingGroup{}}, &blocks.Scheduling{Undecided: "scheduling gates or a scheduling group"}},
	} {
		pod := corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "shop"}, Spec: c.spec}
		pods := &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: more(), Items: []corev1.Pod{pod, pod}}
		pods.Items[1].Name = "q"
		out := bothWays(t, KindOf(blocks.Pods), pods)
		noGaps(t, out)
		got := all[blocks.Workload](out)
		diff(t, name, c.want, got[0].Scheduling)
		if got[0].Scheduling != got[1].Scheduling {
			t.Errorf("%s: pods with equal rules do not share them", name)
		}
		text, err := json.Marshal(pod)
		must(t, err)
		n := alias.New()
		KindOf(blocks.Pods).AppendSaved(nil, "v1", Object{Text: text}, n)
		n.EndCollecting()
		for _, n := range []*alias.Aliases{nil, n} {
			saved := KindOf(blocks.Pods).AppendSaved(nil, "v1", Object{Text: text}, n)
			x := all[blocks.Workload](decodeOne(t, KindOf(blocks.Pods), string(saved)))[0].Scheduling
			if (x == nil) != (c.want == nil) || x != nil && ((x.Undecided == "") != (c.want.Undecided == "") || x.HostPorts != c.want.HostPorts || len(x.Repels) != len(c.want.Repels) || len(x.Requests) != len(c.want.Requests)) {
				t.Errorf("%s: a saved snapshot has %+v (%s)", name, x, saved)
			}
		}
	}
}

// TestAttachedVolumes: a volume that is attached to a node binds its pod, unless a DaemonSet makes the
// pod again on the same node. Volumes that every node can make bind none.
func TestAttachedVolumes(t *testing.T) {
	for source, want := range map[string]bool{
		`"csi":{"driver":"d"}`: true, `"iscsi":{}`: true, `"hostPath":{"path":"/"}`: true, `"fc":{}`: true, `"rbd":{}`: true, `"cinder":{}`: true, `"azureDisk":{}`: true,
		`"gcePersistentDisk":{}`: true, `"awsElasticBlockStore":{}`: true, `"vsphereVolume":{}`: true, `"portworxVolume":{}`: true,
		`"configMap":{}`: false, `"secret":{}`: false, `"projected":{}`: false, `"downwardAPI":{}`: false, `"emptyDir":{}`: false, `"nfs":{}`: false, `"image":{}`: false,
	} {
		for owner, binds := range map[string]bool{"ReplicaSet": want, "DaemonSet": false} {
			object := `{"metadata":{"name":"p","ownerReferences":[{"kind":"` + owner + `","name":"o","uid":"u","controller":true}]},"spec":{"volumes":[{"name":"v",` + source + `}]}}`
			if got := all[blocks.Workload](decodeOne(t, KindOf(blocks.Pods), object))[0].HasClaim; got != binds {
				t.Errorf("the volume %s of a pod of a %s binds it: %t, not %t", source, owner, got, binds)
			}
		}
	}
}

// TestAgentEnvironment: of calico-node, the environment and the unfinished init container upgrade-ipam
// are decoded from JSON, from protobuf and from a saved snapshot. An anonymized one names no machine.
// Other pods have none.
func TestAgentEnvironment(t *testing.T) {
	yes := true
	env := []corev1.EnvVar{{Name: "WAIT_FOR_DATASTORE", Value: "true"}, {Name: "FELIX_VXLANPORT", Value: "4789"}, {Name: "FELIX_VXLANENABLED", Value: "true"},
		{Name: "FELIX_IPINIPENABLED", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: "ipip"}}}, {Name: "CALICO_IPV4POOL_CIDR", Value: "10.244.0.0/16"}, {Name: "IP_AUTODETECTION_METHOD", Value: "can-reach=2001:db8::1"}}
	for _, c := range []struct {
		controller string
		ended, has bool
	}{{"calico-node", false, true}, {"calico-node", true, true}, {"rke2-canal", false, true}, {"web", false, false}} {
		pod := corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "kube-system", OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: c.controller, UID: "u", Controller: &yes}}},
			Spec:   corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "calico-node", Env: env}}},
			Status: corev1.PodStatus{Phase: "Pending", InitContainerStatuses: []corev1.ContainerStatus{{Name: "install-cni", RestartCount: 1}, {Name: "upgrade-ipam", Ready: c.ended}}}}
		want := map[string]string{"FELIX_VXLANPORT": "4789", "FELIX_VXLANENABLED": "true", "FELIX_IPINIPENABLED": "", "CALICO_IPV4POOL_CIDR": "10.244.0.0/16", "IP_AUTODETECTION_METHOD": "can-reach=2001:db8::1"}
		if !c.has {
			want = nil
		}
		out := bothWays(t, KindOf(blocks.Pods), &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: more(), Items: []corev1.Pod{pod}})
		noGaps(t, out)
		text, err := json.Marshal(pod)
		must(t, err)
		plain := KindOf(blocks.Pods).AppendSaved(nil, "v1", Object{Text: text}, nil)
		for _, w := range []blocks.Workload{all[blocks.Workload](out)[0], all[blocks.Workload](decodeOne(t, KindOf(blocks.Pods), string(plain)))[0]} {
			diff(t, c.controller, want, w.Extras().Env)
			if w.Extras().Upgrades != (c.has && !c.ended) {
				t.Errorf("%s: upgrade-ipam ended: %t, decoded %t", c.controller, c.ended, !w.Extras().Upgrades)
			}
		}
		n := alias.New()
		KindOf(blocks.Pods).AppendSaved(nil, "v1", Object{Text: text}, n)
		n.EndCollecting()
		anonymous := string(KindOf(blocks.Pods).AppendSaved(nil, "v1", Object{Text: text}, n))
		if !strings.Contains(anonymous, `{"name":"FELIX_VXLANPORT","value":"4789"}`) || !strings.Contains(anonymous, `"name":"upgrade-ipam"`) || strings.Contains(anonymous, "2001:db8") {
			t.Errorf("an anonymized snapshot has %s", anonymous)
		}
	}
}
