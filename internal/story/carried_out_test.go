package story

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// stays lists the checks whose finding remains after a new pool is added, because they look only at
// one pool. The advice is then to mute the finding.
var stays = []string{"pool/exhausted", "pool/low-addresses"}

// elsewhere lists flags of remedies that these states cannot prove. Remedies that move
// pods need controllers that recreate the pods; [TestStory] proves them. Remedies that
// write under a handle need the handle of a real sandbox; the tests of repair/datastore
// prove them.
var elsewhere = []string{"--rehome", "--consolidate", "--unrecorded-ips", "--missing-handles"}

// price lists, by state, the check whose finding the remedy leaves or causes, as the remedy says.
var price = map[string]string{
	// The block is deleted a grace period after its last address is released.
	"block/dead-node/what_Calico's_collector_does:_at_once,_or_once_other_addresses_are_released": "block/dead-node",
	// The datastore is unlocked, and the leak is released next.
	"ip/leaked/what_Calico's_collector_does:_the_datastore_is_locked": "ip/leaked",
	// The block that the pods leave is empty, and released a grace period later.
	"ip/finished-pod/warning:_the_pool_is_out_of_blocks":                                                                             "block/empty",
	"ip/secondary-interface/a_second_interface_by_calico-ipam_(projectcalico/cni-plugin#1193):_by_network-status,_or_by_its_sandbox": "config/gc-disabled",
	"ip/secondary-interface/the_default_configuration_collects":                                                                      "config/gc-disabled",
	// The allocator removes the soft-deleted block, and its record of the pod's address.
	"node/no-block/a_soft-deleted_block_is_none": "ip/unallocated",
	// The node stays at its limit, with addresses left.
	"node/block-limit/error:_finished_pods_fill_the_blocks_(projectcalico/calico#5004)":                              "node/block-limit",
	"node/block-limit/error:_leaked_addresses_fill_the_blocks_(harvester/harvester#7326,_projectcalico/calico#4861)": "node/block-limit",
	"node/block-limit/error:_blocks_of_one_address_(projectcalico/calico#2624,_projectcalico/calico#9462)":           "node/block-limit",
	"node/block-limit/Calico's_default_is_20,_per_family":                                                            "node/block-limit",
	// New Services get addresses of the other pool; this one stays full.
	"pool/exhausted/a_LoadBalancer_pool_counts,_too;_cooling_addresses_are_in_use": "pool/exhausted",
	// Pods borrow at once; the pool still lacks blocks.
	"node/no-block/critical:_strict_affinity,_and_a_pod_waits":                                           "node/no-block",
	"pool/no-free-blocks/critical:_under_strict_affinity_a_pod_waits_on_a_node_whose_only_block_is_full": "pool/no-free-blocks",
	// The node claims a block for the pod.
	"pod/waiting/warning:_calico-node_does_not_run_on_its_node_(projectcalico/calico#1795,_k0sproject/k0s#539)": "pool/low-free-blocks",
}

// TestPreferredRemediesAreTheWayOut follows the preferred remedy of each finding at warning or
// above. Afterwards the finding is gone and no finding of that severity is new. The program applies
// remedies that are plans; a person follows the others by their words.
func TestPreferredRemediesAreTheWayOut(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{})
	build(t)
	seeder, err := seeding.New(c)
	must(t, err)
	proven, seen := map[string]bool{}, map[string]bool{}
	all := slices.DeleteFunc(fixtures(t), func(f *fixture) bool { return !f.live() })
	for _, f := range testenv.Sample(t, len(all)/6, all) {
		unseen := func(r *audit.Report, finding *audit.Finding) *remedies.Remedy {
			advice := preferred(r, finding)
			if finding.Check != f.check || finding.Severity < state.Warning || advice == nil || seen[f.way(advice)] && !testenv.EveryCase() {
				return nil
			}
			return advice
		}
		drawn := f.report()
		if !slices.ContainsFunc(drawn.Findings, func(x audit.Finding) bool { return unseen(drawn, &x) != nil }) {
			continue
		}
		f.load(t, c)
		before := reportOf(t, c)
		for i := range before.Findings {
			finding := &before.Findings[i]
			advice := unseen(before, finding)
			if advice == nil {
				continue
			}
			if strings.HasPrefix(advice.Title, remedies.LeaveIt) {
				continue // no action to carry out; the planner's tests cover the refusals
			}
			seen[f.check], seen[f.way(advice)] = true, true
			if i := slices.IndexFunc(drawn.Findings, func(x audit.Finding) bool { return x.Fingerprint == finding.Fingerprint }); i >= 0 && advice.Commands == nil && len(drawn.Findings[i].Remedies) > 0 {
				advice.Commands = drawn.Findings[i].Remedies[0].Commands
			}
			if !advice.Manual && hasFlag(advice.Commands, elsewhere) {
				proven[f.check] = true
				continue
			}
			proven[f.check] = t.Run(f.String(), func(t *testing.T) {
				if !advice.Manual {
					runAll(t, c, advice.Commands)
				} else if way, _ := practiceOf(advice.Title); way < 0 {
					t.Fatalf("nobody knows how to follow this: %s", advice.Title)
				} else {
					t.Log(advice.Title)
					(&person{t, c, seeder, before, finding, advice}).followed()
				}
				after := reportOf(t, c)
				if d := after.DiagnosisOf(finding); d != nil && slices.Contains(stays, f.check) {
					t.Log(d.Remedies[0].Title)
					after = reportOf(t, c, strings.Fields(d.Remedies[0].Commands[0])[2:]...)
					if after.Summary.Muted == 0 {
						t.Error("nothing is muted")
					}
				}
				checkFixed(t, before, after, finding, price[f.String()])
			}) || proven[f.check]
			break
		}
	}
	for _, check := range checks.All {
		if seen[check.ID] && !proven[check.ID] {
			t.Errorf("no remedy of %s is proven", check.ID)
		}
	}
}

// preferred returns the report's preferred remedy for a finding: from its diagnosis, the
// finding or its check. It returns nil if there is no remedy. No agents run here, so
// leaks are repaired with the consent that the advice names.
func preferred(r *audit.Report, f *audit.Finding) *remedies.Remedy {
	const consent = "--without-host-evidence"
	if f.Check == "ip/leaked" && strings.HasPrefix(f.Fix.Command, "take host views of ") {
		return &remedies.Remedy{Commands: []string{"calico-audit repair --leaked-ips " + consent}}
	}
	if f.Check == "ip/leaked" && f.Fix.Kind == "manual" { // the diagnosis may begin with another address
		return &remedies.Remedy{Title: f.Fix.Command, Commands: f.Fix.Commands, Manual: true}
	}
	if strings.HasPrefix(f.Fix.Command, "kubectl get virtualmachineinstance") {
		return nil // needs KubeVirt, which does not run here
	}
	if d := r.DiagnosisOf(f); d != nil {
		if len(d.Remedies) == 0 {
			return nil
		}
		return &d.Remedies[0]
	}
	if f.Fix.Kind == "repair" {
		return &remedies.Remedy{Commands: []string{f.Fix.Command}}
	}
	if f.Fix.Kind == "manual" {
		return &remedies.Remedy{Title: f.Fix.Command, Manual: true}
	}
	check, err := checks.All.ByID(f.Check)
	if err != nil || len(check.Remedies) == 0 || !check.Remedies[0].Manual {
		return nil
	}
	return &check.Remedies[0]
}

// way identifies a kind of advice on a check. The test follows each kind once.
func (f *fixture) way(advice *remedies.Remedy) string {
	if !advice.Manual {
		return f.check + " plan"
	}
	way, said := practiceOf(advice.Title)
	if way < 0 {
		return f.check + " " + advice.Title
	}
	return fmt.Sprint(f.check, " ", way, len(strings.Join(said[1:], "")) > 20)
}

func hasFlag(commands, flags []string) bool {
	return slices.ContainsFunc(flags, func(flag string) bool { return strings.Contains(strings.Join(commands, " "), flag) })
}

// runAll runs commands as an operator would who has read their plans and accepts them.
func runAll(t *testing.T, c *testcluster.Cluster, commands []string) {
	t.Helper()
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
}

// checkFixed fails the test if the finding remains at warning or above, or if a finding
// at least as severe is new. Below warning, the finding may announce a change that is
// still to come. Findings of the check except may remain.
func checkFixed(t *testing.T, before, after *audit.Report, f *audit.Finding, except string) {
	t.Helper()
	had := map[string]state.Severity{}
	for i := range before.Findings {
		had[before.Findings[i].Fingerprint] = before.Findings[i].Severity
	}
	for _, now := range after.Findings {
		switch {
		case now.Check == except:
		case now.Fingerprint == f.Fingerprint && now.Severity >= state.Warning:
			t.Errorf("it is still found, %s after %s: %s", now.Severity, f.Severity, now.Message)
		case now.Severity >= f.Severity && now.Severity > had[now.Fingerprint]:
			t.Errorf("%s is new, or worse than before: %s: %s", now.Severity, now.Check, now.Message)
		}
	}
}

func reportOf(t *testing.T, c *testcluster.Cluster, flags ...string) *audit.Report {
	t.Helper()
	code, out, log := run(t, t.TempDir(), append([]string{"report", "-o", "json", "--kubeconfig", c.KubeconfigPath()}, flags...)...)
	if code != 0 {
		t.Fatalf("report ends with %d:\n%s", code, log)
	}
	var r audit.Report
	must(t, json.Unmarshal([]byte(out), &r))
	return &r
}
