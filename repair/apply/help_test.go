package apply

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/journal"
)

func guards(pairs ...string) (out []repair.Guard) {
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, repair.Guard{Name: pairs[i], Value: pairs[i+1]})
	}
	return out
}

// parseState parses a state from a few lines of text.
func parseState(t *testing.T, text string) *state.State {
	t.Helper()
	s, err := statedsl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return state.New(s, state.Options{})
}

func stepIDs(p *repair.Plan) (ids []string) {
	for i := range p.Steps {
		ids = append(ids, p.Steps[i].ID)
	}
	return ids
}

func newTestJournal(t *testing.T) *journal.Journal {
	t.Helper()
	j, err := journal.Create(filepath.Join(t.TempDir(), "journal.jsonl"), journal.Header{
		StartedAt: audit.Time{Time: time.Date(2026, 2, 3, 9, 0, 0, 0, time.UTC)}, Cluster: audit.ReportCluster{GUID: "g"},
		Plan: &repair.Plan{APIVersion: audit.APIVersion, Kind: repair.PlanKind, Steps: []repair.Step{{ID: "a"}, {ID: "b"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}
