package checks_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
)

// TestIncidents runs all checks on incidents of issue trackers, in testdata/incidents.txt. Each is
// rebuilt as objects from its thread, and its answer is how the thread ended or, if it was left
// open, the rule in Calico's source:
//
//	== thread, and what happened
//	the state (see internal/statedsl)
//	-- want
//	severity check subject      a finding
//	~ text, !~ text             the finding's text and remedies contain the text, or do not
//	none check                  the check finds nothing
//
// Every error and critical finding must be listed.
func TestIncidents(t *testing.T) {
	for _, x := range casesOf(t, "incidents") {
		t.Run(x.name, func(t *testing.T) {
			answer(t, audit.Run(parseState(t, x.text), checks.All), x.want)
		})
	}
}

// answer compares the findings on an incident with those wanted.
func answer(t *testing.T, r *audit.Result, want string) {
	t.Helper()
	listed, at := map[string]bool{}, (*audit.Finding)(nil)
	for _, line := range strings.Split(strings.TrimSpace(want), "\n") {
		none, isNone := strings.CutPrefix(line, "none ")
		sign, text, isText := strings.Cut(line, "~ ")
		switch {
		case isNone:
			if _, err := checks.All.ByID(none); err != nil {
				t.Error(err)
			}
			for _, f := range r.Findings {
				if f.Check == none {
					t.Errorf("%q, but found %s: %s", line, f.Severity, f.Message)
				}
			}
		case isText && (sign == "" || sign == "!"):
			if at == nil {
				t.Errorf("%q follows no finding", line)
			} else if all := allText(*at) + fmt.Sprint(at.Remedies); strings.Contains(all, text) != (sign == "") {
				t.Errorf("%s: want %q, have\n%s", at.Message, line, all)
			}
		default:
			listed[line], at = true, nil
			if i := slices.Index(ids(r), line); i >= 0 {
				at = &r.Findings[i]
			} else {
				t.Errorf("no finding %q", line)
			}
		}
	}
	for i, id := range ids(r) {
		if f := r.Findings[i]; f.Severity >= state.Error && !listed[id] {
			t.Errorf("not wanted: %s: %s", id, f.Message)
		}
	}
	if t.Failed() {
		t.Logf("found:\n%s\nskipped: %v", strings.Join(ids(r), "\n"), r.Skipped)
	}
}
