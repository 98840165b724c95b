package live_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// TestStory: the report on the incident behind this program contains the facts that its
// engineers needed, live and from files, in both API groups.
func TestStory(t *testing.T) {
	old := clitest.Play(t, seeding.Story)
	native := testcluster.Shared(t, testcluster.Options{Groups: []testcluster.Group{testcluster.NativeV3}})
	if err := testcluster.CopyToNative(t.Context(), old, native); err != nil {
		t.Fatal(err)
	}

	live := clitest.Run(t, "report", "--kubeconfig", old.KubeconfigPath(), "-o", "json", "--fail-on", "error")
	if live.Code != exit.CodeFindings {
		t.Errorf("exit code %d under --fail-on error, want 1: %s", live.Code, live.Err)
	}
	checkStory(t, live.Report(t))

	want := live.Comparable(t)
	for name, args := range map[string][]string{
		"native group":            {"--kubeconfig", native.KubeconfigPath()},
		"files of the old group":  {"-f", clitest.Dump(t, old, testcluster.CRDv1)},
		"files of the new group":  {"-f", clitest.Dump(t, native, testcluster.NativeV3)},
		"the same cluster, again": {"--kubeconfig", old.KubeconfigPath()},
	} {
		got := clitest.Run(t, append([]string{"report", "-o", "json"}, args...)...)
		if got.Code != exit.CodeOK {
			t.Errorf("%s: exit code %d: %s", name, got.Code, got.Err)
		}
		if diff := cmp.Diff(want, got.Comparable(t)); diff != "" {
			t.Errorf("%s: the report differs from the live one of the old group (-live +this):\n%s", name, diff)
		}
	}
}

func checkStory(t *testing.T, r *audit.Report) {
	t.Helper()
	if !r.Complete || len(r.Gaps) > 0 || len(r.SkippedChecks) > 0 {
		t.Errorf("not everything was judged: gaps %v, skipped %v", r.Gaps, r.SkippedChecks)
	}
	if f := clitest.Findings(r, "pool/no-free-blocks"); len(f) != 1 || f[0].Severity != state.Critical || f[0].Subject.Name != "pods-v4" {
		t.Errorf("pool/no-free-blocks: %+v", f)
	}
	if f := clitest.Findings(r, "pool/undersized"); len(f) != 1 || clitest.Evidence(f[0], "needed") != "8" || clitest.Evidence(f[0], "usable") != "4" {
		t.Errorf("pool/undersized: %+v", f)
	}
	blocksOf := map[string][]string{}
	for _, n := range r.Nodes {
		blocksOf[n.Name] = n.Blocks
	}
	var starving, hoarding []string
	for _, f := range clitest.Findings(r, "node/no-block") {
		starving = append(starving, f.Subject.Name)
		if f.Severity != state.Error || clitest.Evidence(f, "cause") != "its pools are out of blocks" {
			t.Errorf("node/no-block of %s: %s, cause %q", f.Subject.Name, f.Severity, clitest.Evidence(f, "cause"))
		}
		for _, holder := range []string{"old-1", "old-2"} {
			if h := clitest.Evidence(f, "nodes holding several blocks"); !strings.Contains(h, holder+" holds 2: "+blocksOf[holder][0]) {
				t.Errorf("node/no-block of %s does not name %s as holding two blocks: %s", f.Subject.Name, holder, h)
			}
		}
	}
	for _, f := range clitest.Findings(r, "node/many-blocks") {
		hoarding = append(hoarding, f.Subject.Name)
		if got := clitest.Evidence(f, "blocks"); got != strings.Join(blocksOf[f.Subject.Name], ", ") || clitest.Evidence(f, "releasable") == "" {
			t.Errorf("node/many-blocks of %s: blocks %s, releasable %q", f.Subject.Name, got, clitest.Evidence(f, "releasable"))
		}
	}
	if !slices.Equal(starving, []string{"new-1", "new-2"}) || !slices.Equal(hoarding, []string{"old-1", "old-2"}) {
		t.Errorf("nodes without a block: %v; nodes with several: %v", starving, hoarding)
	}
	borrowed := clitest.Findings(r, "ip/borrowed")
	if len(borrowed) != 4 {
		t.Errorf("%d borrowed addresses, want 4", len(borrowed))
	}
	for _, f := range borrowed {
		owner, borrower := clitest.Evidence(f, "owner"), clitest.Evidence(f, "borrower")
		if !strings.HasPrefix(owner, "old-") || !strings.HasPrefix(borrower, "new-") || f.Subject.Node != borrower {
			t.Errorf("%s: owner %s, borrower %s, subject %+v", f.Subject.IP, owner, borrower, f.Subject)
		}
	}
	if f := clitest.Findings(r, "config/strict-affinity"); len(f) != 1 || !strings.Contains(clitest.Evidence(f[0], "scope"), "whole cluster") {
		t.Errorf("config/strict-affinity: %+v", f)
	}
}

// TestStoryDrained: once the old nodes' second blocks have been empty for longer than the
// grace period, the report shows them as releasable.
func TestStoryDrained(t *testing.T) {
	c := clitest.Play(t, seeding.StoryDrained)
	r := clitest.Run(t, "report", "--kubeconfig", c.KubeconfigPath(), "-o", "json").Report(t)
	if got := r.Pools[0].Blocks.Releasable.String(); got != "2" {
		t.Errorf("%s blocks are releasable, want 2", got)
	}
	releasable := 0
	for _, f := range clitest.Findings(r, "block/empty") {
		if clitest.Evidence(f, "verdict") == "releasable" {
			releasable++
		}
	}
	if releasable != 2 {
		t.Errorf("%d blocks are called releasable, want 2: %+v", releasable, clitest.Findings(r, "block/empty"))
	}
	young := clitest.Run(t, "report", "--kubeconfig", c.KubeconfigPath(), "-o", "json", "--grace", "10000h").Report(t)
	if got := young.Pools[0].Blocks.Releasable.String(); got != "0" {
		t.Errorf("with a grace longer than the cluster's life, %s blocks are releasable", got)
	}
}

// TestHealthyClusters: a healthy cluster has no findings at warning or above.
func TestHealthyClusters(t *testing.T) {
	for name, scenario := range map[string]func(context.Context, *testcluster.Cluster) error{
		"healthy": seeding.Healthy, "dual-stack": seeding.DualStack,
	} {
		c := clitest.Play(t, scenario)
		for _, args := range [][]string{{"--kubeconfig", c.KubeconfigPath()}, {"-f", filepath.Join("../../../examples/snapshots", name)}} {
			got := clitest.Run(t, append([]string{"report", "-o", "json", "--fail-on", "warning"}, args...)...)
			if r := got.Report(t); got.Code != exit.CodeOK || !r.Complete || len(r.Findings) > r.Summary.Info || r.Summary.Allocations == 0 {
				t.Errorf("%s %v: exit code %d, complete %t, %+v\n%s", name, args, got.Code, r.Complete, r.Summary, got.Stdout)
			}
		}
	}
}

// TestEmptyCluster: only nodes and pools.
func TestEmptyCluster(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	c.MakeClusterInformation(t, testcluster.CRDv1)
	got := clitest.Run(t, "report", "--kubeconfig", c.KubeconfigPath(), "-o", "json", "--fail-on", "info")
	if r := got.Report(t); got.Code != exit.CodeOK || !r.Complete || len(r.Findings) > 0 || r.Pools == nil || r.Nodes == nil {
		t.Errorf("exit code %d: %s%s", got.Code, got.Stdout, got.Err)
	}
	if got := clitest.Run(t, "report", "--kubeconfig", c.KubeconfigPath()); got.Code != exit.CodeOK || !strings.Contains(strings.ToLower(got.Stdout), "no finding") && !strings.Contains(strings.ToLower(got.Stdout), "nothing") {
		t.Errorf("the table does not say that nothing was found:\n%s", got.Stdout)
	}
}

// TestUtilizationAgreesWithCalicoctl compares a pool's numbers with those of "calicoctl
// ipam show", for both families. calicoctl counts reserved addresses as free; the audit
// counts them separately.
func TestUtilizationAgreesWithCalicoctl(t *testing.T) {
	calicoctl, err := programs.Binary(t.Context(), "calicoctl")
	if err != nil {
		t.Fatal(err)
	}
	c := clitest.Play(t, seeding.DualStack)
	cmd := exec.CommandContext(t.Context(), calicoctl, "ipam", "show", "--allow-version-mismatch")
	cmd.Env = append(os.Environ(), "DATASTORE_TYPE=kubernetes", "KUBECONFIG="+c.KubeconfigPath())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("calicoctl: %v\n%s", err, out)
	}
	r := clitest.Run(t, "report", "--kubeconfig", c.KubeconfigPath(), "-o", "json").Report(t)
	reserved := false
	for _, p := range r.Pools {
		row := calicoctlRow(string(out), p.CIDR)
		free := p.Addresses.Capacity.Sub(p.Addresses.InUse)
		want := []string{p.Addresses.Capacity.String(), p.Addresses.InUse.String(), free.String()}
		if !slices.Equal(row, want) {
			t.Errorf("%s (%s): calicoctl says total, in use, free %v; the audit %v\n%s", p.Name, p.CIDR, row, want, out)
		}
		reserved = reserved || !p.Addresses.Reserved.IsZero()
	}
	if len(r.Pools) < 3 || !reserved {
		t.Errorf("the state does not test both families, a LoadBalancer pool and reservations: %+v", r.Pools)
	}
}

// calicoctlRow returns total, in use and free of a pool's row, without the percentages.
func calicoctlRow(out, cidr string) []string {
	for _, line := range strings.Split(out, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 6 || strings.TrimSpace(cells[2]) != cidr {
			continue
		}
		var row []string
		for _, cell := range cells[3:6] {
			row = append(row, strings.Fields(cell)[0])
		}
		return row
	}
	return nil
}

// TestRights: with the shipped ClusterRole everything is read. Without any one of its
// rules, the report names the missing right.
func TestRights(t *testing.T) {
	for _, group := range []testcluster.Group{testcluster.CRDv1, testcluster.NativeV3} {
		t.Run(string(group), func(t *testing.T) {
			c := testcluster.Shared(t, testcluster.Options{Groups: []testcluster.Group{group, testcluster.KubeVirt}})
			c.MakeClusterInformation(t, group)
			role := clitest.ShippedRole(t, "../../..")
			rights := append([]string{""}, clitest.RightsOf(role.Rules, string(group))...) // "": none missing
			user := func(i int) string { return fmt.Sprintf("auditor-%d", i) }
			for i, right := range rights {
				if err := c.Allow(t.Context(), user(i), clitest.Without(role.Rules, right)...); err != nil {
					t.Fatal(err)
				}
			}
			for i, right := range rights {
				kubeconfig, err := c.UserKubeconfig(user(i))
				if err != nil {
					t.Fatal(err)
				}
				ask := func() *audit.Report {
					got := clitest.Run(t, "report", "--kubeconfig", kubeconfig, "-o", "json")
					r := new(audit.Report)
					if got.Stdout != "" { // nothing can be read until the API server applies the rights
						r = got.Report(t)
					}
					if r.Complete != (got.Code == exit.CodeOK) || got.Code != exit.CodeOK && got.Code != exit.CodeUnread {
						t.Errorf("without %q: exit code %d, complete %t: %s", right, got.Code, r.Complete, got.Err)
					}
					return r
				}
				clitest.AwaitReport(t, "the shipped ClusterRole without "+strconv.Quote(right), ask, func(r *audit.Report) bool {
					if right == "" {
						return r.Complete && len(r.Gaps) == 0
					}
					return !r.Complete && len(r.Gaps) == 1 && strings.Contains(r.Gaps[0].Reason, right)
				})
			}
		})
	}
}

func TestServerUnreachable(t *testing.T) {
	got := clitest.Run(t, "report", "--kubeconfig", fleetConfig(t, nil), "--context", "dead", "-o", "json")
	if got.Code != exit.CodeUnread || got.Stdout != "" || !strings.Contains(got.Err, "connection refused") {
		t.Errorf("exit code %d\nstdout %s\nstderr %s", got.Code, got.Stdout, got.Err)
	}
	if got := clitest.Run(t, "report", "--kubeconfig", filepath.Join(t.TempDir(), "none")); got.Code != exit.CodeUsage {
		t.Errorf("a kubeconfig that does not exist: exit code %d, %s", got.Code, got.Err)
	}
}

func TestExamplesAreTheScenarios(t *testing.T) {
	story := clitest.Run(t, "report", "-f", "../../../examples/snapshots/story", "-o", "json")
	checkStory(t, story.Report(t))
	native := clitest.Run(t, "report", "-f", "../../../examples/snapshots/native", "-o", "json")
	checkStory(t, native.Report(t))
	if g := native.Report(t).Cluster.APIGroup; g != "projectcalico.org/v3" {
		t.Errorf("the native example is of group %s", g)
	}
	if got := fmt.Sprint(story.Code, native.Code); got != "0 0" {
		t.Errorf("exit codes %s", got)
	}
}
