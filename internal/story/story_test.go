package story

import (
	"maps"
	"slices"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
)

// told fails the test unless the report names the problems of the story.
func (s *story) told(t *testing.T) {
	t.Helper()
	report := reportOf(t, s.Cluster)
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
	for i := range report.Findings {
		if f := &report.Findings[i]; f.Severity >= state.Error && report.DiagnosisOf(f) == nil {
			t.Errorf("no diagnosis explains %s: %s", f.Check, f.Message)
		}
	}
	if len(report.Diagnoses) != 1 || report.Diagnoses[0].ID != "shortage/"+pool {
		t.Errorf("the story has these diagnoses: %+v", report.Diagnoses)
	}
}
