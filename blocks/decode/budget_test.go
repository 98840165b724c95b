package decode

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/blocks"
)

// TestBudgets: a budget selects the pods that its selector matches, and an invalid budget
// is a tolerated gap.
func TestBudgets(t *testing.T) {
	read := func(object string) (*blocks.Snapshot, []blocks.DisruptionBudget) {
		s := NewSnapshot(decodeOne(t, budgets, object))
		s.SetBudgetsKnown(true)
		return s, s.Budgets
	}
	web := blocks.Workload{Meta: blocks.Meta{Name: "web"}, Namespace: "shop", Labels: map[string]string{"app": "web", "tier": "front"}}
	other := web
	other.Namespace = "elsewhere"
	for _, c := range []struct {
		selector string
		covers   bool
	}{
		{`{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"tier","operator":"In","values":["front","back"]}]}`, true},
		{`{"matchLabels":{"app":"db"}}`, false}, {`{"matchExpressions":[{"key":"tier","operator":"DoesNotExist"}]}`, false},
		{`{}`, true}, {`null`, false},
	} {
		s, got := read(`{"metadata":{"name":"b","namespace":"shop"},"spec":{"selector":` + c.selector + `},"status":{"disruptionsAllowed":2}}`)
		if len(got) != 1 || !s.BudgetsKnown || got[0].Key().String() != "shop/b" || got[0].DisruptionsAllowed != 2 {
			t.Fatalf("%s: %+v, gaps %v", c.selector, got, s.Gaps)
		}
		if got[0].Covers(&web) != c.covers || got[0].Covers(&other) {
			t.Errorf("%s covers the pod: %t, want %t", c.selector, !c.covers, c.covers)
		}
	}
	for _, selector := range []string{`5`, `{"matchLabels":{"app":5}}`, `{"matchExpressions":[{"key":"a","operator":"Near"}]}`} {
		s, got := read(`{"metadata":{"name":"b","namespace":"shop"},"spec":{"selector":` + selector + `}}`)
		if len(got) > 0 || s.BudgetsKnown || len(s.Gaps) != 1 || s.Gaps[0].Name != "shop/b" || s.Gaps[0].Field != "spec.selector" || !s.Complete() {
			t.Errorf("%s: %v, known %t, gaps %v", selector, got, s.BudgetsKnown, s.Gaps)
		}
	}
}

// TestPodLabels: labels of pods are decoded only on request, from JSON and protobuf, and
// pods with equal labels share one map.
func TestPodLabels(t *testing.T) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"app": "web", "a": ""}}}
	wire, err := pod.Marshal()
	must(t, err)
	text, err := json.Marshal(&pod)
	must(t, err)
	for _, asked := range []bool{false, true} {
		d := &Decoder{Out: NewObjects(pods), Strings: &SharedStrings{}, PodLabels: asked}
		must(t, d.One(Object{wire, true}))
		must(t, d.One(Object{Text: text}))
		var want map[string]string
		if asked {
			want = pod.Labels
		}
		got := all[blocks.Workload](d.Out)
		for _, w := range got {
			diff(t, "labels", want, w.Labels)
		}
		if asked {
			got[0].Labels["mark"] = "x"
			diff(t, "labels of the other", "x", got[1].Labels["mark"])
		}
	}
}
