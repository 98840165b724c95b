package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit/explain"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/cli"
	"github.com/calico-audit/calico-audit/internal/testcluster"
)

func (o outcome) explanation(t *testing.T) *explain.Explanation {
	t.Helper()
	var e explain.Explanation
	if err := json.Unmarshal([]byte(o.stdout), &e); err != nil {
		t.Fatalf("reading the explanation: %v\nexit code %d\n%s\n%s", err, o.code, o.stdout, o.err)
	}
	return &e
}

// TestExplainStory asks a running cluster about what its report finds: each
// subject can be explained, has that finding, and is explained alike from files.
func TestExplainStory(t *testing.T) {
	c := play(t, testcluster.Story)
	files := dump(t, c, testcluster.CRDv1)
	r := calicoAudit(t, "report", "--kubeconfig", c.KubeconfigPath(), "-o", "json").report(t)
	asked := 0
	for _, f := range r.Findings {
		if f.Subject.Kind == state.KindConfig || f.Subject.Kind == state.KindCluster {
			continue
		}
		asked++
		name := f.Subject.ResourceName()
		live := calicoAudit(t, "explain", name, "--kubeconfig", c.KubeconfigPath(), "-o", "json")
		if live.code != cli.ExitOK {
			t.Errorf("%s: exit code %d: %s", name, live.code, live.err)
			continue
		}
		e := live.explanation(t)
		found := false
		for _, s := range e.Subjects {
			for _, g := range s.Findings {
				found = found || g.Fingerprint == f.Fingerprint
			}
			if s.Summary == "" || len(s.Sections) == 0 {
				t.Errorf("%s: nothing is said about it", name)
			}
		}
		if !found || !e.Complete {
			t.Errorf("%s: complete: %t, and its finding %s is among the findings: %t", name, e.Complete, f.Check, found)
		}
		fromFiles := calicoAudit(t, "explain", name, "-f", files, "-o", "json").explanation(t)
		if diff := cmp.Diff(subjectsOf(t, e), subjectsOf(t, fromFiles)); diff != "" {
			t.Errorf("%s is explained otherwise from files (-live +files):\n%s", name, diff)
		}
	}
	if asked < 8 {
		t.Errorf("only %d subjects were asked about", asked)
	}
	for _, f := range findings(r, "ip/borrowed") {
		got := calicoAudit(t, "explain", f.Subject.IP, "--kubeconfig", c.KubeconfigPath())
		for _, want := range []string{"It is borrowed", "which drops traffic to", "What would change it", "pods-v4 is out of blocks", "--consolidate --pool pods-v4"} {
			if !strings.Contains(strings.Join(strings.Fields(got.stdout), " "), want) {
				t.Errorf("%s: the text lacks %q:\n%s", f.Subject.IP, want, got.stdout)
			}
		}
	}
}

// subjectsOf returns what an explanation says of its subjects.
func subjectsOf(t *testing.T, e *explain.Explanation) string {
	t.Helper()
	raw, err := json.MarshalIndent(e.Subjects, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return withoutSource(raw)
}
