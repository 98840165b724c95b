package planner

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/repair"
)

// yieldOf counts the effects of a plan. A step that is refused only because test data lack a UID or
// a version counts as done.
func yieldOf(p *repair.Plan) (y remedies.Yield) {
	count := func(k repair.Kind, target state.Subject) {
		switch {
		case k == repair.ReleaseBlock, k == repair.FinishDelete && target.Kind == state.KindBlock:
			y.Blocks++
		case k == repair.DeleteAffinity, k == repair.DisownBlock, k == repair.FinishDelete && target.Kind == state.KindAffinity:
			y.Affinities++
		case k == repair.ReleaseIP, k == repair.RecordIP:
			y.Addresses++
		case k == repair.EvictPod:
			y.Pods++
		}
	}
	for i := range p.Steps {
		count(p.Steps[i].Kind, p.Steps[i].Target)
	}
	for _, r := range p.Refused {
		if unpinnedData(r) {
			count(r.Kind, r.Target)
		}
	}
	return y
}

func unpinnedData(r repair.Refusal) bool {
	return r.Code == repair.RefusedUnpinned && strings.Contains(r.Reason, "without UID")
}

// promises fails the test unless the plans of a remedy's commands, each made a grace period after
// the one before was applied, do at least what the remedy promises: one step, if this program plans
// it, and everything that it counts. It returns the number of plans.
func promises(t *testing.T, name string, st *state.State, way remedies.Remedy) (plans int) {
	t.Helper()
	var got remedies.Yield
	for i, command := range way.Commands {
		if !strings.HasPrefix(command, "calico-audit repair --") {
			break // manual work comes before the next command
		}
		p := Build(st, requestOf(t, command))
		y := yieldOf(p)
		if plans++; i == 0 && (way.Repairs() || way.Yield != nil) && len(p.Steps) == 0 && !slices.ContainsFunc(p.Refused, unpinnedData) {
			t.Errorf("%s: %q recommends %q, whose plan has no step: %+v", name, way.Title, command, p.Refused)
		}
		got.Blocks, got.Affinities, got.Addresses, got.Pods = got.Blocks+y.Blocks, got.Affinities+y.Affinities, got.Addresses+y.Addresses, got.Pods+y.Pods
		if i+1 < len(way.Commands) && slices.ContainsFunc(p.Refused, unpinnedData) {
			return plans // the next command would find the result of this one
		}
		if way.Yield == nil || p.Request.Consolidate { // it waits until the evicted pods start elsewhere
			break
		}
		st = graceLater(afterwards(st, p.Steps))
	}
	if y := way.Yield; y != nil && (got.Blocks < y.Blocks || got.Affinities < y.Affinities || got.Addresses < y.Addresses || got.Pods < y.Pods) {
		t.Errorf("%s: %q promises %+v, and its commands do %+v: %q", name, way.Title, *y, got, way.Commands)
	}
	return plans
}

// graceLater is a state a grace period later, in which nothing else has happened.
func graceLater(st *state.State) *state.State {
	s, later := st.Snapshot.Clone(), st.Grace+time.Minute
	s.Cluster.TakenAt = s.Cluster.TakenAt.Add(later)
	s.Hosts.Views = slices.Clone(s.Hosts.Views)
	for i := range s.Hosts.Views {
		v := &s.Hosts.Views[i]
		v.TakenAt = v.TakenAt.Add(later)
	}
	return state.New(s, state.Options{Grace: st.Grace})
}
