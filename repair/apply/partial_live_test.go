package apply_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// TestPlanOfPartialDump applies plans made from plain dumps, each of which lacks one object, to the
// complete cluster. The missing object looks deleted, but a step that the cluster's own plan lacks
// must not be carried out.
func TestPlanOfPartialDump(t *testing.T) {
	l := newLab(t)
	l.damage()
	whole, err := l.reader.Read(t.Context())
	l.must(err)
	planOf := func(s *blocks.Snapshot) *repair.Plan {
		s.Cluster.Datastore, s.Cluster.Live = "files", false
		return planner.Build(state.New(s, state.Options{Grace: grace}), everything)
	}
	own := map[string]bool{}
	for _, s := range planOf(whole.Clone()).Steps {
		own[s.ID] = true
	}
	type partial struct {
		without string
		plan    *repair.Plan
	}
	var partials []partial
	lists := reflect.ValueOf(whole).Elem()
	for f := range lists.NumField() {
		name := lists.Type().Field(f).Name
		if lists.Field(f).Kind() != reflect.Slice || name == "Gaps" {
			continue
		}
		for i := range lists.Field(f).Len() {
			s := whole.Clone()
			list := reflect.ValueOf(s).Elem().Field(f)
			list.Set(reflect.AppendSlice(list.Slice3(0, i, i), list.Slice(i+1, list.Len())))
			p := planOf(s)
			p.Steps = slices.DeleteFunc(p.Steps, func(s repair.Step) bool { return own[s.ID] })
			if len(p.Steps) > 0 {
				p.Seal()
				partials = append(partials, partial{fmt.Sprintf("%s[%d]", name, i), p})
			}
		}
	}
	if len(partials) < 5 {
		t.Errorf("only %d dumps have steps of their own", len(partials))
	}
	for _, p := range testenv.Sample(t, 3, partials) {
		for _, o := range l.apply(t.Context(), p.plan, apply.Options{Wait: true}).Outcomes {
			if o.Status == repair.Done || o.Status == repair.Failed {
				t.Errorf("without %s: %s: %s %s", p.without, o.Step.ID, o.Status, o.Reason)
			}
		}
	}
}
