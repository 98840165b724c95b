package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/alias"
	"github.com/calico-audit/calico-audit/blocks/files"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// calico runs the program, which must succeed, and returns its output.
func calico(t *testing.T, args ...string) string {
	t.Helper()
	streams, out, errOut := testStreams()
	if code := Main(t.Context(), append([]string{"calico-audit"}, args...), streams); code != exit.CodeOK {
		t.Fatalf("%q ended with %d: %s", args, code, errOut)
	}
	return out.String()
}

func reportOf(t *testing.T, path string) *audit.Report {
	t.Helper()
	r := new(audit.Report)
	if err := json.Unmarshal([]byte(calico(t, "report", "-f", path, "-o", "json")), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAnonymizedFindings: an anonymized snapshot gives the same report with other names:
// the same findings in the same order, with the same numbers.
func TestAnonymizedFindings(t *testing.T) {
	found, err := filepath.Glob("../../../examples/snapshots/*")
	if err != nil || len(found) < 4 {
		t.Fatal(err, found)
	}
	for _, example := range found {
		dir := t.TempDir()
		path, names := filepath.Join(dir, "a.json"), filepath.Join(dir, "names.json")
		calico(t, "snapshot", "-f", example, "--anonymize", "--names", names, "-o", path)
		raw, err := os.ReadFile(names)
		if err != nil {
			t.Fatal(err)
		}
		var table alias.Names
		if err := json.Unmarshal(raw, &table); err != nil {
			t.Fatal(err)
		}
		want, got := reportOf(t, example), reportOf(t, path)
		for _, r := range []*audit.Report{want, got} {
			for i := range r.Findings {
				r.Findings[i].Fingerprint = ""
			}
			for i := range r.Diagnoses {
				clear(r.Diagnoses[i].Findings) // fingerprints are different, too
			}
		}
		named := strings.ReplaceAll(renamed(t, got, table), "-f "+path+" ", "-f "+example+" ") // commands name their source
		if d := cmp.Diff(indented(t, want), named); d != "" {
			t.Errorf("%s, with the names put back (-original +anonymized):\n%s", example, d)
		}
	}
}

func indented(t *testing.T, r *audit.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := view.WriteJSON(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// replacement matches the replacements of names.
var replacement = regexp.MustCompile(`(?i)\b(node|pod|namespace|pool|sandbox|network|handle|reservation|peer|service|taint|label|value|word|cluster)-[0-9]+\b|\b42000000[0-9]{2}\b`)

// renamed restores the names in a report.
func renamed(t *testing.T, r *audit.Report, table alias.Names) string {
	t.Helper()
	return replacement.ReplaceAllStringFunc(indented(t, r), func(word string) string {
		kind, _, named := strings.Cut(word, "-")
		if !named {
			kind = "as" // an AS number
		}
		if name, ok := table[strings.ToLower(kind)][word]; ok {
			return name
		}
		return word
	})
}

// movingReader is a running cluster whose objects change between readings.
type movingReader struct {
	readings []*blocks.Snapshot
	asked    int
	err      error
}

func (r *movingReader) next() *blocks.Snapshot {
	s := r.readings[min(r.asked, len(r.readings)-1)]
	r.asked++
	return s
}

func (r *movingReader) Read(context.Context) (*blocks.Snapshot, error) { return r.next(), nil }

func (r *movingReader) Reread(context.Context, *blocks.Snapshot, []blocks.Resource) (*blocks.Snapshot, error) {
	return r.next(), r.err
}

// TestAwaitStable: a snapshot of a running cluster is read again until the objects behind
// severe findings were seen twice, as in a report.
func TestAwaitStable(t *testing.T) {
	calm := func() *blocks.Snapshot {
		s, err := files.ReadFiles([]string{"../../../examples/snapshots/healthy"}, files.FileOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.Cluster.Datastore, s.Cluster.Live = "kubernetes", true
		return s
	}
	ask := func(r *movingReader) (int, int) {
		s, unsettled, err := awaitStable(t.Context(), r, terminal.NewProgress(nil))
		if err != nil {
			t.Fatal(err)
		}
		return len(s.Blocks), len(unsettled)
	}
	for _, c := range []struct {
		name                     string
		readings                 []*blocks.Snapshot
		asked, blocks, unsettled int
	}{
		{"nothing grave", []*blocks.Snapshot{calm()}, 1, len(calm().Blocks), 0},
		{"trouble that lasts", []*blocks.Snapshot{liveStory(t)}, 2, 4, 0},
		{"trouble that was none", []*blocks.Snapshot{liveStory(t), calm()}, 2, len(calm().Blocks), 0},
	} {
		r := &movingReader{readings: c.readings}
		if blocks, unsettled := ask(r); r.asked != c.asked || blocks != c.blocks || unsettled != c.unsettled {
			t.Errorf("%s: read %d times, %d blocks, %d unsettled; want %d, %d, %d", c.name, r.asked, blocks, unsettled, c.asked, c.blocks, c.unsettled)
		}
	}
	if _, _, err := awaitStable(t.Context(), &movingReader{readings: []*blocks.Snapshot{liveStory(t)}, err: errors.New("connection refused")}, terminal.NewProgress(nil)); exit.Code(err) != exit.CodeUnread {
		t.Errorf("a second reading that fails: %v", err)
	}
	files := liveStory(t)
	files.Cluster.Live = false
	r := &movingReader{readings: []*blocks.Snapshot{files}}
	if ask(r); r.asked != 1 {
		t.Error("files were read again")
	}
}

// TestAwaitStableGivesUp: a cluster that never becomes stable is saved as last seen, with a
// warning.
func TestAwaitStableGivesUp(t *testing.T) {
	r := &movingReader{}
	for i := range 10 { // a problem on another node each time
		s := liveStory(t)
		for j := range s.Nodes {
			if strings.HasPrefix(s.Nodes[j].Name, "new") {
				s.Nodes[j].Name = fmt.Sprintf("%s-%d", s.Nodes[j].Name, i)
			}
		}
		for j := range s.Workloads {
			if strings.HasPrefix(s.Workloads[j].Node, "new") {
				s.Workloads[j].Node = fmt.Sprintf("%s-%d", s.Workloads[j].Node, i)
			}
		}
		r.readings = append(r.readings, s)
	}
	s, unsettled, err := awaitStable(t.Context(), r, terminal.NewProgress(nil))
	if err != nil || len(unsettled) == 0 || r.asked != 1+stableTries || s != r.readings[stableTries] {
		t.Errorf("read %d times, unsettled %v, %v", r.asked, unsettled, err)
	}
}
