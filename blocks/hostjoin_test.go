package blocks

import (
	"slices"
	"testing"
	"time"
)

// TestDoubtfulViewDisplacesNone: a newer view does not replace a node's own view if another
// pod served it, or if its agent runs on another node.
func TestDoubtfulViewDisplacesNone(t *testing.T) {
	now := time.Now()
	own := HostView{Node: "b", TakenAt: now.Add(-time.Minute), Machine: "m", Authenticated: true, RulesKnown: true, Source: "pod kube-system/agent-b"}
	doubtful := HostView{Node: "a", TakenAt: now, Machine: "m", Authenticated: true, RulesKnown: true, Source: "pod tenant/x", Doubt: "the agent reports node b, but its pod is on a"}
	unnamed := doubtful
	unnamed.Node, unnamed.Machine = "b", ""
	newer := doubtful
	newer.Doubt = ""
	for name, c := range map[string]struct {
		views []HostView
		kept  []string // sources of the views kept, best source of routes first
	}{
		"of the same machine":                   {[]HostView{own, doubtful}, []string{"pod tenant/x", "pod kube-system/agent-b"}},
		"of the same node":                      {[]HostView{unnamed, own}, []string{"pod kube-system/agent-b"}},
		"newer, of the same machine, undoubted": {[]HostView{own, newer}, []string{"pod tenant/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := JoinHostReadings(HostReading{Until: now, Views: c.views})
			var kept []string
			for _, v := range r.Views {
				kept = append(kept, v.Source)
			}
			if !slices.Equal(kept, c.kept) || len(r.Views)+len(r.Gaps) != len(c.views) {
				t.Errorf("kept %q, gaps %v", kept, r.Gaps)
			}
		})
	}
}
