package decode

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

var budgets = describe(Kind{
	Resource: blocks.Budgets, Names: []string{"PodDisruptionBudget"}, Core: true, version: "policy/v1", Namespaced: true,
}, descriptor[blocks.DisruptionBudget]{
	json: (*Decoder).budget,
	in:   func(s *blocks.Snapshot) *[]blocks.DisruptionBudget { return &s.Budgets },
})

// budget decodes a PodDisruptionBudget.
func (d *Decoder) budget(r *parse.Reader, b *blocks.DisruptionBudget) bool {
	var selector *metav1.LabelSelector
	d.object(r, &b.Meta, metaHooks{noWritten: true}, func(key []byte) {
		if string(key) != "selector" || r.Null() {
			return
		}
		selector = nil
		if err := json.Unmarshal(r.Raw(), &selector); err != nil {
			r.Fault("is not a label selector")
			return
		}
		parsed, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			r.Fault("is not a label selector: " + err.Error())
			return
		}
		b.Selector = parsed.String()
	}, r.Known(parse.Members{"disruptionsAllowed": &b.DisruptionsAllowed}))
	b.Namespace, b.SelectsNone = d.inNamespace, selector == nil
	return d.whole(r, &b.Meta, "")
}
