package checks_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/files"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// TestStatesAreObjects writes the states in the checks' test data as files of objects. These must
// give the same findings.
func TestStatesAreObjects(t *testing.T) {
	tried := 0
	for _, x := range casesOf(t, "checks/*") {
		snap, err := statedsl.Parse(x.text)
		if err != nil {
			t.Fatal(err)
		}
		// Files without nodes or pools are incomplete; objects from the future are an error.
		if !statedsl.HasObjectsOnly(snap) || len(snap.Nodes) == 0 || len(snap.Pools) == 0 || strings.Contains(x.text, "future") {
			continue
		}
		if slices.ContainsFunc(blocks.Resources, func(r blocks.Resource) bool { return snap.Contradiction(r) != "" }) {
			continue // so are files without most affinities, for example
		}
		tried++
		t.Run(strings.TrimSuffix(x.file, ".txt")+"/"+x.name, func(t *testing.T) {
			read, err := files.ReadFiles([]string{written(t, snap)}, files.FileOptions{At: snap.Cluster.TakenAt})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(found(snap), found(read)); diff != "" {
				t.Errorf("findings of the state and of its objects (-state +objects):\n%s", diff)
			}
		})
	}
	if tried < 100 {
		t.Errorf("only %d states were tried", tried)
	}
}

// found returns the findings of a state by check, severity and subject.
func found(s *blocks.Snapshot) []string {
	out := []string{}
	for _, f := range audit.Run(state.New(s, state.Options{}), checks.All).Findings {
		out = append(out, f.Check+" "+f.Severity.String()+" "+f.Subject.Kind+" "+f.Subject.CIDR+f.Subject.IP+" "+f.Subject.Node+": "+f.Message)
	}
	return out
}

// written returns a file with the objects of a state.
func written(t *testing.T, s *blocks.Snapshot) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": statedsl.Lists(statedsl.Manifest(s))})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
