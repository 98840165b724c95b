package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit"
)

// TestHosts: the outputs count the nodes with host views and list some gaps; wide lists
// all. Without host views they are silent.
func TestHosts(t *testing.T) {
	r := loadReport(t, "healthy")
	for _, output := range []string{"table", "wide", "markdown"} {
		if got := render(t, output, r, testOptions(80)); strings.Contains(strings.ToLower(got), "host view") {
			t.Errorf("%s speaks of host views though none were asked for:\n%s", output, got)
		}
	}
	r.HostViews = []audit.HostViewReport{{Node: "n1", TakenAt: audit.Time{Time: time.Date(2026, 2, 3, 9, 0, 0, 0, time.UTC)}, Source: "views/n1.json", Agent: true, Namespaces: 7, Routes: 9}}
	r.HostGaps = []audit.HostGapReport{}
	for i := range 30 {
		r.HostGaps = append(r.HostGaps, audit.HostGapReport{Node: fmt.Sprintf("gone-%02d", i), Reason: "no agent runs on it\x1b[31m"})
	}
	count := fmt.Sprintf("of 1 of %d node", r.Summary.Nodes)
	for output, want := range map[string]struct {
		gaps  int
		texts []string
	}{
		"table":    {gapsShown, []string{"Host views: " + count, "… and 24 more (-o wide lists all)"}},
		"wide":     {30, []string{"n1    2026-02-03T09:00:00Z  agent          9           7  views/n1.json"}},
		"markdown": {markdownShown, []string{"**Host views:** " + count, "… and 20 more"}},
	} {
		got := render(t, output, r, testOptions(80))
		if n := strings.Count(got, "no agent runs on it"); n != want.gaps {
			t.Errorf("%s names %d gaps, want %d", output, n, want.gaps)
		}
		for _, text := range want.texts {
			if !strings.Contains(got, text) {
				t.Errorf("%s lacks %q:\n%s", output, text, got)
			}
		}
		if strings.Contains(got, "\x1b") {
			t.Errorf("%s passes an escape sequence on", output)
		}
	}
	if got := render(t, "json", r, Options{}); !strings.Contains(got, `"takenAt": "2026-02-03T09:00:00Z",`) || strings.Count(got, `"reason": "no agent`) != 30 {
		t.Errorf("the JSON lacks views or gaps:\n%s", got)
	}
}
