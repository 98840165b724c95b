package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// TestReadSandboxEvents: the kubelets' events are read once a pod waits for an address. If they
// may not be read, the reading is still complete.
func TestReadSandboxEvents(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := seeded(t, testcluster.Options{})
	events := c.Kube.CoreV1().Events("default")
	for name, reason := range map[string]string{"web.1": blocks.SandboxFailed, "web.2": "FailedMount"} {
		_, err := events.Create(ctx, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Reason: reason, Message: "no address", LastTimestamp: metav1.Now(),
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web"},
		}, metav1.CreateOptions{})
		must(t, err)
	}
	before := readLive(t, c.Config, KubernetesOptions{})
	for _, w := range before.Workloads {
		if w.Waiting() {
			t.Fatalf("pod %s waits in the seeded cluster", w.FullName())
		}
	}
	if len(before.SandboxEvents) > 0 {
		t.Errorf("no pod waits, and events were read: %v", before.SandboxEvents)
	}
	pod, err := c.Kube.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{NodeName: before.Nodes[0].Name, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	must(t, err)
	for _, budgets := range []bool{false, true} {
		s := readLive(t, c.Config, KubernetesOptions{Budgets: budgets})
		if len(s.SandboxEvents) != 1 || s.SandboxEvents[0].Pod != pod.Name || s.SandboxEvents[0].Message != "no address" || s.SandboxEvents[0].Seen.IsZero() || len(s.Gaps) > 0 {
			t.Errorf("events %+v, gaps %v", s.SandboxEvents, s.Gaps)
		}
	}

	cfg, err := c.UserConfig("auditor")
	must(t, err)
	must(t, c.Allow(ctx, "auditor", auditorRules("list")...))
	if s := readLive(t, cfg, KubernetesOptions{}); len(s.SandboxEvents) > 0 || len(s.Gaps) > 0 {
		t.Errorf("without the right: events %v, gaps %v", s.SandboxEvents, s.Gaps)
	}
}
