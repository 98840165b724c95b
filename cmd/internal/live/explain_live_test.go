package live_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/explain"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// TestExplainStory explains the subjects of a running cluster's findings. Each has its
// finding, and is explained in the same way from files.
func TestExplainStory(t *testing.T) {
	c := clitest.Play(t, seeding.Story)
	files := clitest.Dump(t, c, testcluster.CRDv1)
	r := clitest.Run(t, "report", "--kubeconfig", c.KubeconfigPath(), "-o", "json").Report(t)
	named := slices.DeleteFunc(slices.Clone(r.Findings), func(f audit.Finding) bool {
		return f.Subject.Kind == state.KindConfig || f.Subject.Kind == state.KindCluster
	})
	for _, f := range testenv.Sample(t, 8, named) {
		name := f.Subject.ResourceName()
		live := clitest.Run(t, "explain", name, "--kubeconfig", c.KubeconfigPath(), "-o", "json")
		if live.Code != exit.CodeOK {
			t.Errorf("%s: exit code %d: %s", name, live.Code, live.Err)
			continue
		}
		e := live.Explanation(t)
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
		fromFiles := clitest.Run(t, "explain", name, "-f", files, "-o", "json").Explanation(t)
		if diff := cmp.Diff(subjectsOf(t, e), subjectsOf(t, fromFiles)); diff != "" {
			t.Errorf("%s is explained otherwise from files (-live +files):\n%s", name, diff)
		}
	}
	completesFromCluster(t, c)
	if len(named) < 8 {
		t.Errorf("only %d subjects could be asked about", len(named))
	}
	for _, f := range clitest.Findings(r, "ip/borrowed") {
		got := clitest.Run(t, "explain", f.Subject.IP, "--kubeconfig", c.KubeconfigPath())
		for _, want := range []string{"It is borrowed", "which drops traffic to", "pods-v4 is out of blocks", "--consolidate --pool pods-v4"} {
			if !strings.Contains(strings.Join(strings.Fields(got.Stdout), " "), want) {
				t.Errorf("%s: the text lacks %q:\n%s", f.Subject.IP, want, got.Stdout)
			}
		}
	}
}

// completesFromCluster asks for completions like a shell; names come from the cluster.
func completesFromCluster(t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	for _, x := range []struct {
		typed []string
		want  string
	}{
		{[]string{"report", "--pool", ""}, "pods-v4"},
		{[]string{"report", "--node", "old-1,new"}, "old-1,new-1 old-1,new-2"},
		{[]string{"repair", "--leaked-ips", "--terminated", "old"}, "old-1 old-2"},
		{[]string{"explain", "new"}, "new-1 new-2"},
		{[]string{"explain", "10.64.75.1"}, "10.64.75.128/26 10.64.75.192/26"},
		{[]string{"explain", "pod", "kube-system/coredns-5d78c9869d-m"}, "kube-system/coredns-5d78c9869d-m5qrj"},
	} {
		words := append([]string{"__complete", x.typed[0], "--kubeconfig", c.KubeconfigPath()}, x.typed[1:]...)
		got := clitest.Run(t, words...)
		offered, _, _ := strings.Cut(got.Stdout, ":") // the directive for the shell
		if names := strings.Join(slices.Sorted(slices.Values(strings.Fields(offered))), " "); names != x.want {
			t.Errorf("%q is completed to %q, want %q; %s", x.typed, names, x.want, got.Err)
		}
	}
}

// subjectsOf returns the subjects of an explanation as JSON.
func subjectsOf(t *testing.T, e *explain.Explanation) string {
	t.Helper()
	raw, err := json.MarshalIndent(e.Subjects, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return clitest.WithoutSource(raw)
}
