package decode

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/blocks"
)

// TestPlacement: a pod's placement matches the nodes that the scheduler would choose by its
// nodeSelector and required node affinity, decoded from JSON and from protobuf.
func TestPlacement(t *testing.T) {
	type term = corev1.NodeSelectorTerm
	type req = corev1.NodeSelectorRequirement
	nodes := []blocks.Node{{Meta: blocks.Meta{Name: "a1"}, Labels: map[string]string{"zone": "a", "cores": "8"}},
		{Meta: blocks.Meta{Name: "a2"}, Labels: map[string]string{"zone": "a", "disk": "ssd", "cores": "16"}}, {Meta: blocks.Meta{Name: "b1"}, Labels: map[string]string{"zone": "b", "disk": "ssd"}}}
	long := []string{strings.Repeat("c", 60) + ".example.com", strings.Repeat("c", 60) + ".example.org"} // longer than a label value may be
	for _, name := range long {
		nodes = append(nodes, blocks.Node{Meta: blocks.Meta{Name: name}})
	}
	for name, c := range map[string]struct {
		selector map[string]string
		terms    []term
		want     []string
		text     string
	}{
		"anywhere":       {want: append([]string{"a1", "a2", "b1"}, long...)},
		"by a selector":  {selector: map[string]string{"zone": "a", "disk": "ssd"}, want: []string{"a2"}, text: "disk in (ssd),zone in (a)"},
		"by an affinity": {terms: []term{{MatchExpressions: []req{{Key: "zone", Operator: "In", Values: []string{"b", "c"}}}}}, want: []string{"b1"}, text: "zone in (b,c)"},
		"either of two":  {terms: []term{{MatchExpressions: []req{{Key: "disk", Operator: "DoesNotExist"}}}, {MatchExpressions: []req{{Key: "zone", Operator: "NotIn", Values: []string{"a"}}}}}, want: append([]string{"a1", "b1"}, long...), text: "!disk or zone notin (a)"},
		"both":           {selector: map[string]string{"zone": "a"}, terms: []term{{MatchExpressions: []req{{Key: "disk", Operator: "Exists"}}}}, want: []string{"a2"}, text: "disk,zone in (a)"},
		"by its name":    {terms: []term{{MatchFields: []req{{Key: "metadata.name", Operator: "In", Values: []string{"b1"}}}}}, want: []string{"b1"}, text: "metadata.name in (b1)"},
		"by a long name": {terms: []term{{MatchFields: []req{{Key: "metadata.name", Operator: "In", Values: long[1:]}}}}, want: long[1:], text: "metadata.name in (" + blocks.PlacementName(long[1]) + ")"},
		"by a number":    {terms: []term{{MatchExpressions: []req{{Key: "cores", Operator: "Gt", Values: []string{"8"}}}}}, want: []string{"a2"}, text: "cores>8"},
		"an empty term":  {selector: map[string]string{"zone": "a"}, terms: []term{{}}},
		"no sense":       {terms: []term{{MatchExpressions: []req{{Key: "zone", Operator: "Near", Values: []string{"a"}}}}}},
		"NUL":            {terms: []term{{MatchExpressions: []req{{Key: "zone", Operator: "In", Values: []string{"a\x00"}}}}, {MatchExpressions: []req{{Key: "zone", Operator: "In", Values: []string{"b"}}}}}, want: []string{"b1"}, text: "zone in (b)"},
		"a part in it":   {selector: map[string]string{"zone": "a\x00r\x00kdisk\x00oExists"}},
	} {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "shop"}, Spec: corev1.PodSpec{NodeSelector: c.selector, Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}}}
		if c.terms != nil {
			pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: c.terms}}
		}
		list := &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: more(), Items: []corev1.Pod{pod, pod}}
		list.Items[1].Name = "q"
		out := bothWays(t, KindOf(blocks.Pods), list)
		noGaps(t, out)
		pods := all[blocks.Workload](out)
		if pods[0].Placement != pods[1].Placement {
			t.Errorf("%s: pods that may run on the same nodes do not share it", name)
		}
		var got []string
		may := pods[0].Placement.Matcher()
		for i := range nodes {
			if may(&nodes[i]) {
				got = append(got, nodes[i].Name)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: it may run on %v, not %v (%v)", name, got, c.want, pods[0].Placement)
		}
		if p := pods[0].Placement; p != nil && p.String() != c.text {
			t.Errorf("%s: it reads %q, not %q", name, p, c.text)
		}
	}
}

// TestTolerations: a toleration is kept if it admits the pod to nodes that other pods
// cannot use, from JSON and from protobuf. The tolerations that every pod has take no
// memory.
func TestTolerations(t *testing.T) {
	type toleration = corev1.Toleration
	node := func(key, value, effect string) blocks.Node {
		return blocks.Node{Taints: []blocks.Taint{{Key: key, Value: value, Effect: effect}}}
	}
	control, db := node("node-role.kubernetes.io/control-plane", "", "NoSchedule"), node("dedicated", "db", "NoExecute")
	for name, c := range map[string]struct {
		tolerations                        []toleration
		control, db, cordon, notReady, nil bool
	}{
		"none":               {nil: true},
		"those of every pod": {tolerations: []toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute"}, {Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute"}}, nil: true},
		"the control plane":  {tolerations: []toleration{{Key: "node-role.kubernetes.io/control-plane", Effect: "NoSchedule"}}, control: true},
		"another effect":     {tolerations: []toleration{{Key: "node-role.kubernetes.io/control-plane", Effect: "NoExecute"}}},
		"a value":            {tolerations: []toleration{{Key: "dedicated", Value: "db"}}, db: true},
		"another value":      {tolerations: []toleration{{Key: "dedicated", Operator: "Equal", Value: "web"}}},
		"any value":          {tolerations: []toleration{{Key: "dedicated", Operator: "Exists"}}, db: true},
		"a cordon":           {tolerations: []toleration{{Key: "node.kubernetes.io/unschedulable", Operator: "Exists"}}, cordon: true},
		"not ready":          {tolerations: []toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists"}}, notReady: true},
		"everything":         {tolerations: []toleration{{Operator: "Exists"}}, control: true, db: true, cordon: true, notReady: true},
	} {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "shop"}, Spec: corev1.PodSpec{Tolerations: c.tolerations}}
		yes, seconds := true, int64(300)
		list := &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: more(), Items: []corev1.Pod{pod, pod, pod, pod}}
		list.Items[1].Name, list.Items[2].Name, list.Items[3].Name, list.Items[3].Spec.HostNetwork = "q", "r", "s", true
		list.Items[2].Spec.NodeName, list.Items[2].Spec.NodeSelector, list.Items[2].Status.Phase = "n", map[string]string{"disk": "ssd"}, corev1.PodRunning
		for i := range c.tolerations {
			c.tolerations[i].TolerationSeconds = &seconds
		}
		list.Items[2].OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "ds", UID: "u", Controller: &yes}}
		list.Items[3].OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "calico-node", UID: "c", Controller: &yes}}
		out := bothWays(t, KindOf(blocks.Pods), list)
		noGaps(t, out)
		pods := all[blocks.Workload](out)
		p := pods[0].Placement
		if p != pods[1].Placement || p != pods[2].Placement {
			t.Errorf("%s: pods with the same tolerations do not share them, or the pod of a DaemonSet keeps more", name)
		}
		if pods[3].Placement != p {
			t.Errorf("%s: calico-node's tolerations, which name the nodes that it cannot run on, got lost", name)
		}
		if (p == nil) != c.nil || p.Limited() || p.ToleratesCordon() != c.cordon || p.ToleratesNotReady() != c.notReady {
			t.Errorf("%s: got %+v", name, p)
		}
		if may := p.Matcher(); !may(&blocks.Node{}) || may(&control) != c.control || may(&db) != c.db {
			t.Errorf("%s: control plane %t, dedicated %t", name, may(&control), may(&db))
		}
	}
}
