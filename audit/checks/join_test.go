package checks_test

import (
	"slices"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
)

func eachJoined(st *state.State) *audit.Result {
	var all []*audit.Result
	for _, c := range checks.All {
		all = append(all, audit.Run(st, []*audit.Check{c}))
	}
	return audit.Join(all...)
}

// TestJoinedResultsKnowEarlierViews: the exporter runs each check separately. The joined result must
// still know which views are from an earlier reading.
func TestJoinedResultsKnowEarlierViews(t *testing.T) {
	const world = "live\n" + blockless + "\nview new\nnetns new 100 10.0.0.100 pids=5 state=S\n"
	const seen = "critical ip/host-in-use 10.0.0.100"
	st := parseState(t, world)
	result := eachJoined(st)
	tracker := audit.Tracker{}
	tracker.Observe(result, st.Cluster.TakenAt)
	tracker.Observe(result, st.Cluster.TakenAt)
	second := parseState(t, world)
	second.Hosts.Views[0].Earlier = true
	prints, _, _ := tracker.Pending()
	tracker.Reread(prints, eachJoined(second))
	if got := tracker.Observe(result, st.Cluster.TakenAt); slices.Contains(ids(got), seen) {
		t.Errorf("Tracker: confirmed by an earlier view, as the exporter joins results")
	}
	if got := audit.Confirm(eachJoined(st), eachJoined(second)); slices.Contains(ids(got), seen) {
		t.Errorf("Confirm: confirmed by an earlier view, as the exporter joins results")
	}
	if got := audit.Confirm(audit.Run(st, checks.All), audit.Run(second, checks.All)); slices.Contains(ids(got), seen) {
		t.Errorf("Confirm: even when run at once")
	}
}
