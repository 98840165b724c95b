package cluster

import (
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// TestReadBudgets: PodDisruptionBudgets and pods' labels are only read on request. If they
// may not be read, the reading is still complete.
func TestReadBudgets(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := seeded(t, testcluster.Options{})
	patch := []byte(`{"metadata":{"labels":{"app":"web"}}}`)
	before := readLive(t, c.Config, KubernetesOptions{})
	if before.BudgetsKnown || len(before.Budgets) > 0 {
		t.Errorf("unasked: known %t, %v", before.BudgetsKnown, before.Budgets)
	}
	pod := before.Workloads[0]
	_, err := c.Kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	must(t, err)
	_, err = c.Kube.PolicyV1().PodDisruptionBudgets(pod.Namespace).Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}, metav1.CreateOptions{})
	must(t, err)

	k := reader(t, c.Config, KubernetesOptions{Budgets: true}, 1)
	s, err := k.Read(ctx)
	must(t, err)
	if !s.BudgetsKnown || len(s.Budgets) != 1 || len(s.Gaps) > 0 {
		t.Fatalf("known %t, %v, gaps %v", s.BudgetsKnown, s.Budgets, s.Gaps)
	}
	covered := func(s *blocks.Snapshot) []string {
		var out []string
		for i := range s.Workloads {
			if s.Budgets[0].Covers(s.Workloads[i]) {
				out = append(out, s.Workloads[i].FullName())
			}
		}
		return out
	}
	diff(t, "pods covered", []string{pod.FullName()}, covered(s))
	s, err = k.Refresh(ctx, s, []blocks.Ref{{Resource: blocks.Pods, Node: pod.Node}, {Resource: blocks.Budgets, Namespace: pod.Namespace, Name: "web"}})
	must(t, err)
	diff(t, "pods covered, read again", []string{pod.FullName()}, covered(s))
	if !s.BudgetsKnown {
		t.Error("read again, they are not known")
	}

	cfg, err := c.UserConfig("auditor")
	must(t, err)
	must(t, c.Allow(ctx, "auditor", auditorRules("list")...))
	s = readLive(t, cfg, KubernetesOptions{Budgets: true})
	diff(t, "gaps", []string{"poddisruptionbudgets: forbidden: needs the right to list poddisruptionbudgets.policy"}, gapTexts(s))
	if s.BudgetsKnown || !s.Complete() {
		t.Errorf("not permitted: known %t, complete %t", s.BudgetsKnown, s.Complete())
	}
	must(t, c.Allow(ctx, "auditor", append(auditorRules("list"), rbacv1.PolicyRule{
		APIGroups: []string{"policy"}, Resources: []string{"poddisruptionbudgets"}, Verbs: []string{"list"}})...))
	s, err = reader(t, cfg, KubernetesOptions{Budgets: true}).Reread(ctx, s, []blocks.Resource{blocks.Budgets})
	must(t, err)
	if !s.BudgetsKnown || len(s.Budgets) != 1 || len(s.Gaps) > 0 {
		t.Errorf("permitted, and read again: known %t, %v, gaps %v", s.BudgetsKnown, s.Budgets, s.Gaps)
	}
}

// TestReadServices: Services are listed if that is asked for and permitted. A refusal is no
// gap, because no audit needs the right.
func TestReadServices(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := seeded(t, testcluster.Options{})
	own := func(s *blocks.Snapshot) (out []string) {
		for i := range s.Services {
			if v := &s.Services[i]; v.Key().String() == "default/kubernetes" && len(v.ClusterIPs) > 0 {
				out = append(out, v.Name)
			}
		}
		return out
	}
	diff(t, "unasked", []string(nil), own(readLive(t, c.Config, KubernetesOptions{})))
	s := readLive(t, c.Config, KubernetesOptions{Services: true})
	diff(t, "permitted", []string{"kubernetes"}, own(s))
	if len(s.Gaps) > 0 || s.BudgetsKnown {
		t.Errorf("gaps %v, budgets known %t", s.Gaps, s.BudgetsKnown)
	}

	cfg, err := c.UserConfig("auditor")
	must(t, err)
	must(t, c.Allow(ctx, "auditor", auditorRules("list")...))
	s, err = reader(t, cfg, KubernetesOptions{Services: true}).Reread(ctx, readLive(t, cfg, KubernetesOptions{Services: true}), []blocks.Resource{blocks.Services})
	must(t, err)
	if len(s.Gaps) > 0 || len(s.Services) > 0 || !s.Complete() {
		t.Errorf("not permitted: gaps %v, %d Services, complete %t", s.Gaps, len(s.Services), s.Complete())
	}
}
