package live_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// TestSnapshotIsTheCluster: a snapshot of a running cluster gives the same report as the
// cluster, byte for byte except for its source, in both API groups.
func TestSnapshotIsTheCluster(t *testing.T) {
	for name, scenario := range map[string]func(context.Context, *testcluster.Cluster) error{
		"story": seeding.Story, "dual-stack": seeding.DualStack,
	} {
		c := clitest.Play(t, scenario)
		sameFromSnapshot(t, name, c)
		if name == "story" {
			native := testcluster.Shared(t, testcluster.Options{Groups: []testcluster.Group{testcluster.NativeV3}})
			if err := testcluster.CopyToNative(t.Context(), c, native); err != nil {
				t.Fatal(err)
			}
			sameFromSnapshot(t, "native", native)
		}
	}
}

func sameFromSnapshot(t *testing.T, name string, c *testcluster.Cluster) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot.yaml.gz")
	if got := clitest.Run(t, "snapshot", "--kubeconfig", c.KubeconfigPath(), "-o", path); got.Code != exit.CodeOK || got.Stdout != "" || !strings.HasPrefix(got.Err, "wrote ") {
		t.Fatalf("%s: exit code %d: %s%s", name, got.Code, got.Stdout, got.Err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v, mode %v", name, err, info.Mode())
	}
	live := clitest.Run(t, "report", "--kubeconfig", c.KubeconfigPath(), "-o", "json").Report(t)
	saved := clitest.Run(t, "report", "-f", path, "-o", "json")
	if saved.Err != "" {
		t.Errorf("%s: reading the snapshot: %s", name, saved.Err)
	}
	r := saved.Report(t)
	if live.Cluster.Datastore != "kubernetes" || r.Cluster.Datastore != "files" || r.Cluster.TakenAt.IsZero() {
		t.Errorf("%s: %+v and %+v", name, live.Cluster, r.Cluster)
	}
	r.Cluster.Datastore = live.Cluster.Datastore
	live.Cluster.TakenAt, r.Cluster.TakenAt = audit.Time{}, audit.Time{}
	if d := cmp.Diff(asText(t, live), asText(t, r)); d != "" {
		t.Errorf("%s (-live +snapshot):\n%s", name, d)
	}
	if got := clitest.Run(t, "diff", path, path, "--fail-on", "info"); got.Code != exit.CodeOK {
		t.Errorf("%s: it differs from itself: %s", name, got.Stdout)
	}
}

func asText(t *testing.T, r *audit.Report) string {
	t.Helper()
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return clitest.WithoutSource(raw)
}

// TestPartialSnapshot: forbidden resources are missing from the snapshot. It is written
// nevertheless, and counts as incomplete wherever it is read.
func TestPartialSnapshot(t *testing.T) {
	c := clitest.Play(t, seeding.Story)
	kubeconfig, err := c.UserKubeconfig("auditor")
	if err != nil {
		t.Fatal(err)
	}
	role := clitest.ShippedRole(t, "../../..")
	if err := c.Allow(t.Context(), "auditor", clitest.Without(role.Rules, "pods")...); err != nil {
		t.Fatal(err)
	}
	live := clitest.Settled(t, kubeconfig)
	path := filepath.Join(t.TempDir(), "snapshot.json")
	got := clitest.Run(t, "snapshot", "--kubeconfig", kubeconfig, "-o", path)
	if got.Code != exit.CodeUnread || !strings.Contains(got.Err, "needs the right to list pods") {
		t.Errorf("exit code %d: %s", got.Code, got.Err)
	}
	saved := clitest.Run(t, "report", "-f", path, "-o", "json")
	if saved.Code != exit.CodeUnread {
		t.Errorf("exit code %d of the saved one: %s", saved.Code, saved.Err)
	}
	if d := cmp.Diff(live.Comparable(t), saved.Comparable(t)); d != "" {
		t.Errorf("(-live +snapshot):\n%s", d)
	}
	whole := filepath.Join(t.TempDir(), "whole.json")
	if got := clitest.Run(t, "snapshot", "--kubeconfig", c.KubeconfigPath(), "-o", whole); got.Code != exit.CodeOK {
		t.Fatal(got.Err)
	}
	compared := clitest.Run(t, "diff", whole, path, "-o", "json", "--fail-on", "info")
	if compared.Code != exit.CodeUnread || strings.Contains(compared.Stdout, `"change": "fixed"`) || !strings.Contains(compared.Stdout, `"change": "notJudged"`) {
		t.Errorf("compared with the whole one: exit code %d\n%s", compared.Code, compared.Stdout)
	}
}

// TestSnapshotOfNothing: an account without rights writes no snapshot, so that an earlier one
// is not lost. The error names the kinds that are refused, blocks first.
func TestSnapshotOfNothing(t *testing.T) {
	c := clitest.Play(t, seeding.Story)
	kubeconfig, err := c.UserKubeconfig("stranger")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "snapshot.json")
	if err := os.WriteFile(path, []byte("an earlier one"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := clitest.Run(t, "snapshot", "--kubeconfig", kubeconfig, "-o", path)
	if got.Code != exit.CodeUnread || !strings.Contains(got.Err, "this account may not list ipamblocks, ") || !strings.Contains(got.Err, "examples/kubernetes/rbac") {
		t.Errorf("exit code %d: %s", got.Code, got.Err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "an earlier one" {
		t.Errorf("the earlier snapshot is %q, %v", text, err)
	}
}

// TestSnapshotOfRandomStates: for random states, a cluster's snapshot gives the cluster's
// report. Anonymized, it gives the same findings by check, severity, address and CIDR.
func TestSnapshotOfRandomStates(t *testing.T) {
	for seed := uint64(1); seed <= 2; seed++ {
		c := testcluster.Shared(t, testcluster.Options{})
		if err := seeding.Random(t.Context(), c, seed); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		path, other := filepath.Join(dir, "s.json"), filepath.Join(dir, "a.json")
		for _, args := range [][]string{
			{"snapshot", "--kubeconfig", c.KubeconfigPath(), "-o", path}, {"snapshot", "-f", path, "--anonymize", "-o", other},
		} {
			if got := clitest.Run(t, args...); got.Code != exit.CodeOK {
				t.Fatalf("seed %d: %q: exit code %d: %s", seed, args, got.Code, got.Err)
			}
		}
		live := clitest.Run(t, "report", "--kubeconfig", c.KubeconfigPath(), "-o", "json")
		saved := clitest.Run(t, "report", "-f", path, "-o", "json")
		if d := cmp.Diff(live.Comparable(t), saved.Comparable(t)); d != "" {
			t.Errorf("seed %d (-live +snapshot):\n%s", seed, d)
		}
		want, got := saved.Report(t), clitest.Run(t, "report", "-f", other, "-o", "json").Report(t)
		if d := cmp.Diff(nameless(want), nameless(got)); d != "" || len(want.Findings) < 5 {
			t.Errorf("seed %d, %d findings (-named +anonymized):\n%s", seed, len(want.Findings), d)
		}
	}
}

// nameless returns the findings and numbers of a report without names.
func nameless(r *audit.Report) (out []string) {
	for _, f := range r.Findings {
		// Handles are only identified by name, so they are counted.
		line := strings.Join([]string{f.Severity.String(), f.Check, f.Subject.Kind, f.Subject.CIDR, f.Subject.IP}, " ")
		for _, e := range f.Evidence {
			line += " " + e.Name
		}
		out = append(out, line)
	}
	for _, s := range r.SkippedChecks {
		out = append(out, "skipped "+s.Check)
	}
	for _, p := range r.Pools {
		out = append(out, strings.Join([]string{p.CIDR, p.Addresses.InUse.String(), p.Addresses.Available.String(), p.Blocks.Claimed.String(),
			p.Blocks.Releasable.String(), p.Blocks.Needed.String()}, " "))
	}
	return out
}
