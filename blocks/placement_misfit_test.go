package blocks

import "testing"

// TestMisfit: a DaemonSet's pod on one node shows why another node has none.
func TestMisfit(t *testing.T) {
	w := &Workload{Node: "n1", Placement: &Placement{Terms: []string{"kubernetes.io/os=linux,metadata.name in (n1),zone in (a)"}, Tolerates: []Toleration{{Key: "gpu", Operator: "Exists"}}}}
	linux := map[string]string{"kubernetes.io/os": "linux", "zone": "a"}
	for want, n := range map[string]*Node{
		"": {Labels: linux, Taints: []Taint{{Key: "gpu", Effect: "NoExecute"}, {Key: LifeCycleTaints + "disk-pressure", Effect: "NoSchedule"}}},
		"does not tolerate its taint a=b:NoExecute": {Labels: linux, Taints: []Taint{{Key: "a", Value: "b", Effect: "NoExecute"}}},
		"does not tolerate its taint a:NoSchedule":  {Labels: linux, Taints: []Taint{{Key: "a", Effect: "NoSchedule"}}},
		"runs only on nodes with zone=a":            {Labels: map[string]string{"kubernetes.io/os": "linux", "zone": "b"}},
	} {
		if n.Name = "n2"; w.Misfit(n) != want {
			t.Errorf("%q, not %q", w.Misfit(n), want)
		}
	}
	if w.Placement = nil; w.Misfit(&Node{Meta: Meta{Name: "n2"}, Taints: []Taint{{Key: "dedicated", Effect: "NoSchedule"}}}) != "" {
		t.Error("a pod without limits does not fit a node without taints")
	}
}
