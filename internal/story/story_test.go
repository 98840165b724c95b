package story

import (
	"maps"
	"slices"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
)

// The report says what is wrong in the story, on the cluster that runs it.
func TestReportTellsTheStory(t *testing.T) {
	s := play(t, full)
	report := s.report(t)
	got := map[string]int{}
	for _, f := range report.Findings {
		if f.Severity >= state.Error {
			got[f.Check+" "+f.Severity.String()]++
		}
	}
	want := map[string]int{
		"pool/no-free-blocks critical": 1,
		"node/no-block error":          len(newNodes),
		"route/blackhole error":        borrowers,
	}
	if !maps.Equal(got, want) {
		t.Errorf("the report has these errors and criticals:\n%v\nnot\n%v", got, want)
	}
	borrowed := slices.DeleteFunc(slices.Clone(report.Findings), func(f audit.Finding) bool { return f.Check != "ip/borrowed" })
	if len(borrowed) != borrowers {
		t.Errorf("%d borrowed addresses are reported, not %d", len(borrowed), borrowers)
	}
	s.checkBudgets(t)
}
