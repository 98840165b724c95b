package story

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// advice are the checks, of those that warn or worse, whose preferred remedy is in no
// state here one that the program carries out: people have to.
var advice = []string{
	"block/corrupt", "block/no-pool", "block/size-mismatch", "block/unaffine", "config/datastore-locked", "config/gc-disabled",
	"ip/duplicate", "ip/wrong-node", "node/block-limit", "node/many-blocks",
	"pool/exhausted", "pool/low-addresses", "pool/low-free-blocks", "pool/no-free-blocks", "pool/overlap", "pool/selector", "pool/undersized",
}

// elsewhere are the flags of remedies that these states cannot show: those that move pods
// take somebody who starts them again, and are carried out by [TestStory]; those that write
// under a handle take one of a real sandbox, and are carried out in repair/datastore.
var elsewhere = []string{"--rehome", "--consolidate", "--unrecorded-ips", "--missing-handles"}

// The preferred remedy of a finding at warning or above, carried out on a cluster, leaves
// nothing of the finding and nothing worse in its place. Where it is advice for people, the
// check is among those listed, and only there.
func TestPreferredRemediesAreTheWayOut(t *testing.T) {
	t.Parallel()
	build(t)
	c := testcluster.Start(t, testcluster.Options{})
	did, only := map[string]bool{}, map[string]bool{}
	for _, f := range fixtures(t) {
		if did[f.check] && !everyState() {
			continue
		}
		f.load(t, c)
		before := reportOf(t, c)
		for i := range before.Findings {
			finding := &before.Findings[i]
			if finding.Check != f.check || finding.Severity < state.Warning {
				continue
			}
			remedy := preferred(before, finding)
			if remedy == nil {
				only[f.check] = true
				continue
			}
			did[f.check] = true
			if hasFlag(remedy, elsewhere) {
				continue
			}
			t.Run(f.String(), func(t *testing.T) { carryOut(t, c, before, finding, remedy) })
			break
		}
	}
	for _, check := range checks.All {
		listed := slices.Contains(advice, check.ID)
		switch {
		case did[check.ID] && listed:
			t.Errorf("%s has a remedy that the program carries out, and is listed as advice", check.ID)
		case only[check.ID] && !did[check.ID] && !listed:
			t.Errorf("%s has nothing but advice for people, and is not listed so", check.ID)
		}
	}
}

// preferred is what a report prefers to do about a finding, as commands; nil if that is for
// people. No agents run here: of leaks it is the consent that the advice names.
func preferred(r *audit.Report, f *audit.Finding) []string {
	const consent = "--without-host-evidence"
	if f.Check == "ip/leaked" && strings.Contains(f.Fix.Command, consent) {
		return []string{"calico-audit repair --leaked-ips " + consent}
	}
	if d := r.DiagnosisOf(f); d != nil {
		if len(d.Remedies) == 0 || d.Remedies[0].Manual {
			return nil
		}
		return d.Remedies[0].Commands
	}
	if f.Fix.Kind != "repair" {
		return nil
	}
	return []string{f.Fix.Command}
}

func hasFlag(commands, flags []string) bool {
	return slices.ContainsFunc(flags, func(flag string) bool { return strings.Contains(strings.Join(commands, " "), flag) })
}

// carryOut runs a remedy as an operator does who has seen its plan and is in no doubt
// about the state, and compares what is found.
func carryOut(t *testing.T, c *testcluster.Cluster, before *audit.Report, f *audit.Finding, commands []string) {
	dir := t.TempDir()
	for _, command := range commands {
		flags := " --apply --yes --wait --grace=0s --kubeconfig " + c.KubeconfigPath()
		sh := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(command, "calico-audit", program, 1)+flags)
		sh.Dir = dir
		out, err := sh.CombinedOutput()
		t.Logf("%s\n%s", command, out)
		if err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
	had := map[string]state.Severity{}
	for i := range before.Findings {
		had[before.Findings[i].Fingerprint] = before.Findings[i].Severity
	}
	for _, now := range reportOf(t, c).Findings {
		switch {
		case now.Fingerprint == f.Fingerprint && now.Severity >= state.Warning: // below, it may tell what is still to come
			t.Errorf("it is still found, %s after %s: %s", now.Severity, f.Severity, now.Message)
		case now.Severity >= f.Severity && now.Severity > had[now.Fingerprint]:
			t.Errorf("%s is new, or worse than before: %s: %s", now.Severity, now.Check, now.Message)
		}
	}
}

func reportOf(t *testing.T, c *testcluster.Cluster) *audit.Report {
	t.Helper()
	code, out, log := run(t, t.TempDir(), "report", "-o", "json", "--kubeconfig", c.KubeconfigPath())
	if code != 0 {
		t.Fatalf("report ends with %d:\n%s", code, log)
	}
	var r audit.Report
	must(t, json.Unmarshal([]byte(out), &r))
	return &r
}
