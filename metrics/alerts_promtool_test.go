package metrics_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/internal/testenv"
)

// promtool runs Prometheus' promtool in a directory.
func promtool(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testenv.Program(t, "promtool", "prometheus"), args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestAlertRules: promtool accepts the rules, and they pass their unit tests, or a sample of them.
func TestAlertRules(t *testing.T) {
	rules := string(example(t, "prometheus", rulesName))
	for name, n := range map[string]int{rulesTestName: 12, runwayTestName: 2} {
		t.Run(name, func(t *testing.T) {
			tests := shippedRuleTests(t, name)
			tests.Tests = testenv.Sample(t, n, tests.Tests)
			dir := ruleDir(t, rules, tests)
			for _, args := range [][]string{{"check", "rules", rulesName}, {"test", "rules", rulesTestName}} {
				if out, err := promtool(t, dir, args...); err != nil {
					t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
				}
			}
		})
	}
}

// TestTryTheAlerts: promtool and amtool accept the configurations in the README of the rules.
func TestTryTheAlerts(t *testing.T) {
	_, prometheus, found := strings.Cut(string(example(t, "prometheus", "README.md")), "```yaml\n")
	prometheus, alertmanager, more := strings.Cut(prometheus, "```yaml\n")
	prometheus, _, _ = strings.Cut(prometheus, "```")
	alertmanager, _, _ = strings.Cut(alertmanager, "```")
	if !found || !more {
		t.Fatal("the README does not have two configurations")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		rulesName: string(example(t, "prometheus", rulesName)), "prometheus.yml": prometheus,
		"alertmanager.yml": alertmanager + string(example(t, "prometheus", inhibitName)),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := promtool(t, dir, "check", "config", "prometheus.yml"); err != nil || !strings.Contains(out, "1 rule files found") {
		t.Errorf("%v\n%s", err, out)
	}
	amtool := exec.CommandContext(t.Context(), testenv.Program(t, "amtool", "prometheus-alertmanager"), "check-config", filepath.Join(dir, "alertmanager.yml"))
	if out, err := amtool.CombinedOutput(); err != nil || !strings.Contains(string(out), "inhibit rules") {
		t.Errorf("%v\n%s", err, out)
	}
}

// ruleDir returns a directory with rules and their unit tests.
func ruleDir(t *testing.T, rules string, tests ruleTests) string {
	t.Helper()
	raw, err := yaml.Marshal(tests)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{rulesName: rules, rulesTestName: string(raw)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// ruleTests is a file of promtool unit tests; each test is kept as it is.
type ruleTests struct {
	RuleFiles          []string         `json:"rule_files"`
	EvaluationInterval string           `json:"evaluation_interval"`
	Tests              []map[string]any `json:"tests"`
}

func shippedRuleTests(t *testing.T, name string) ruleTests {
	t.Helper()
	var f ruleTests
	if err := yaml.UnmarshalStrict(example(t, "prometheus", name), &f); err != nil {
		t.Fatal(err)
	}
	for _, test := range f.Tests {
		for _, series := range test["input_series"].([]any) {
			if values := series.(map[string]any)["values"]; reflect.TypeOf(values).Kind() != reflect.String {
				t.Fatalf("%s: %v is a hexadecimal number to a reader of YAML: quote it", test["name"], values)
			}
		}
	}
	return f
}

// expectations counts how often the unit tests expect an alert to be silent and to fire.
func (f ruleTests) expectations(t *testing.T, alert string) (silent, firing int) {
	t.Helper()
	for _, test := range f.Tests {
		cases, _ := test["promql_expr_test"].([]any)
		for _, c := range cases {
			c := c.(map[string]any)
			if c["expr"] != `ALERTS{alertname="`+alert+`", alertstate="firing"}` {
				continue
			}
			if samples, _ := c["exp_samples"].([]any); len(samples) > 0 {
				firing++
			} else {
				silent++
			}
		}
	}
	return silent, firing
}

// TestAlertRulesOfTwoClusters: one rule file works for a Prometheus that scrapes several
// clusters. If each series exists once for each of two clusters, each expected alert also
// exists once for each, with the label that the scrape configuration adds.
func TestAlertRulesOfTwoClusters(t *testing.T) {
	shipped := shippedRuleTests(t, rulesTestName)
	both := ruleTests{RuleFiles: shipped.RuleFiles, EvaluationInterval: shipped.EvaluationInterval}
	clusters := []string{"east", "west"}
	// ofBoth returns the elements of a list once for each cluster. Elements that do not
	// come from an exporter stay single.
	ofBoth := func(list any, in func(element map[string]any, cluster string) bool) (out []any) {
		all, _ := list.([]any)
		for _, element := range all {
			for _, cluster := range clusters {
				of := maps.Clone(element.(map[string]any))
				doubled := in(of, cluster)
				out = append(out, of)
				if !doubled {
					break
				}
			}
		}
		return out
	}
	labelled := func(key string) func(map[string]any, string) bool {
		return func(of map[string]any, cluster string) bool {
			text := of[key].(string)
			of[key] = strings.Replace(text, `job="`, `cluster="`+cluster+`", job="`, 1)
			return of[key] != text
		}
	}
	for _, test := range shipped.Tests {
		if raw, err := yaml.Marshal(test); err != nil || strings.Contains(string(raw), "cluster=") {
			continue // already about several clusters
		}
		test["input_series"] = ofBoth(test["input_series"], labelled("series"))
		exprs, _ := test["promql_expr_test"].([]any)
		for _, c := range exprs {
			c := c.(map[string]any)
			c["exp_samples"] = ofBoth(c["exp_samples"], labelled("labels"))
		}
		alerts, _ := test["alert_rule_test"].([]any)
		for _, c := range alerts {
			c := c.(map[string]any)
			c["exp_alerts"] = ofBoth(c["exp_alerts"], func(of map[string]any, cluster string) bool {
				labels := maps.Clone(of["exp_labels"].(map[string]any))
				labels["cluster"] = cluster
				of["exp_labels"] = labels
				return true
			})
		}
		both.Tests = append(both.Tests, test)
	}
	if len(both.Tests) < 40 {
		t.Fatalf("only %d tests are of one cluster", len(both.Tests))
	}
	both.Tests = testenv.Sample(t, 10, both.Tests)
	dir := ruleDir(t, string(example(t, "prometheus", rulesName)), both)
	if out, err := promtool(t, dir, "test", "rules", rulesTestName); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// TestEveryAlertIsTested: in the unit tests each alert is silent, fires, and is silent
// again.
func TestEveryAlertIsTested(t *testing.T) {
	alerts, _ := shippedRules(t)
	tests, weeks := shippedRuleTests(t, rulesTestName), shippedRuleTests(t, runwayTestName)
	tests.Tests = append(tests.Tests, weeks.Tests...)
	for _, a := range alerts {
		if silent, firing := tests.expectations(t, a.Alert); silent < 2 || firing < 1 {
			t.Errorf("%s is to be silent %d times and to fire %d times", a.Alert, silent, firing)
		}
	}
}

// TestAlertTestsNotice: the unit tests fail if a rule is changed.
func TestAlertTestsNotice(t *testing.T) {
	hours, weeks := shippedRuleTests(t, rulesTestName), shippedRuleTests(t, runwayTestName)
	changes := []struct{ tests, old, new string }{
		{"CalicoPoolOutOfBlocks", `severity=~"critical|error"`, `severity="critical"`},
		{"CalicoPoolOutOfBlocks", `severity=~"critical|error"`, `severity=~"critical|error|warning"`},
		{"CalicoPoolOutOfBlocks at churn", `[5m]) > 0.5`, `[5m]) > 0.9`},
		{"CalicoPoolOutOfBlocks at churn", `[5m]) > 0.5`, `[1m]) > 0.5`},
		{"CalicoPoolOutOfBlocks at churn", `for: 2m`, `for: 0m`},
		{"CalicoPoolOutOfBlocks at churn", `> 0.5`, `> 0.2`},
		{"CalicoPoolOutOfBlocks does not name pools that are fine", `          unless ignoring (severity, ippool)`, `          or`},
		{"CalicoPoolFewFreeBlocks", `severity="warning"} > 0`, `severity!="error"} > 0`},
		{"a healthy week", `:week_low)[7d:1h]) > 0.3`, `:week_low)[7d:1h]) > 0.9`},
		{"a healthy week", `(calico_audit:pool_left:day_low offset 7d - calico_audit:pool_left:day_low)[2d:1h]`, `(calico_audit:pool_left:day_low offset 7d - calico_audit:pool_left:day_low)[1h:1h]`},
		{"a healthy week", `(calico_audit:pool_left:day_low offset 7d - calico_audit:pool_left:day_low)`, `(calico_audit:pool_left:day_low offset 6d - calico_audit:pool_left:day_low)`},
		{"a healthy week", `[12h] offset 7d`, `[12h] offset 6d`},
		{"a healthy week", `          and present_over_time(calico_audit:pool_left:day_low[12h] offset 1d)`, `          and present_over_time(calico_audit:pool_left:day_low[12h] offset 2d)`},
		{"a healthy week", `604800 * calico_audit:pool_left:week_low`, `604800 * calico_audit:pool_left:day_low`},
		{"CalicoPoolRunway of blocks", `604800 *`, `1209600 *`},
		{"CalicoPoolRunway of blocks", `:week_low)[7d:1h]) > 0.3`, `:week_low)[7d:1h]) > 0`},
		{"CalicoPoolRunway of blocks", `            unless
              min_over_time((calico_audit:pool_left:current - calico_audit:pool_left:current offset 7d)[3h:10m])
                >= calico_audit:pool_left:least_drop
`, ``},
		{"CalicoPoolRunway of blocks", `< 1209600`, `< 604800`},
		{"CalicoPoolRunway of addresses", `{resource="addresses"} + 0.02`, `{resource="addresses"} + 3`},
		{"CalicoPoolRunway of one cluster among several", `calico_audit:pool_left:current[1d])`, `calico_audit:pool_left:current{cluster="west"}[1d])`},
		{"CalicoPoolBlocksRunOut by hours", `[1d:10m]`, `[10m:10m]`},
		{"CalicoPoolBlocksRunOut by hours", `< 86400`, `< 43200`},
		{"CalicoPoolBlocksRunOut by hours", `86400 * calico_audit:pool_left:day_low`, `86400 * calico_audit:pool_left:current * 3`},
		{"CalicoPoolBlocksRunOut by six hours", `            and calico_audit:pool_left:current offset 2h > calico_audit:pool_left:current
`, ``},
		{"CalicoPoolBlocksRunOut by six hours", `            and calico_audit:pool_left:week_low offset 6h > calico_audit:pool_left:current offset 2h
`, ``},
		{"CalicoPoolBlocksRunOut by six hours", `21600 *`, `216000 *`},
		{"CalicoPoolBlocksRunOut by six hours", `(calico_audit:pool_left:current[15m])`, `(calico_audit:pool_left:current[9h])`},
		{"CalicoPoolNoFreeBlocks", `check="pool/no-free-blocks", severity="warning"`, `check="pool/no-free-blocks", severity="error"`},
		{"CalicoPoolOutOfAddresses", `severity="critical"`, `severity=~"critical|error"`},
		{"CalicoPoolFewAddresses", `for: 15m`, `for: 10m`},
		{"CalicoNodesMayNotFit fires", `> ignoring (ip_family) group_right ()`, `< ignoring (ip_family) group_right ()`},
		{"CalicoNodesMayNotFit fires", `          and max without (instance, pod, node) (last_over_time(calico_audit_pool_needed_blocks[30m])) > 0
`, ``},
		{"CalicoNodesMayNotFit is silent", `sum without (ippool)`, `min without (ippool)`},
		{"CalicoRepairFailed", `== 1`, `>= 0`},
		{"CalicoRepairFailed", `        > on (cluster, namespace)`, `        > bool on (cluster, namespace)`},
		{"CalicoRepairFailed before", `          or
        0 * kube_cronjob_created{cronjob="calico-audit-repair"}
`, ``},
		{"CalicoRepairOverdue", `> 2 *`, `> 3 *`},
		{"CalicoRepairOverdue", `> 2 *`, `> 1.9 *`},
		{"CalicoLeaksPileUp", `> 10`, `> 9`},
		{"CalicoLeaksPileUp", `> 10`, `> 11`},
		{"CalicoAddressConflict", `ip/duplicate|`, ``},
		{"WhereaboutsAddressConflict", `whereabouts/duplicate|`, ``},
		{"WhereaboutsAddressHalfRecorded", `severity="error"`, `severity="warning"`},
		{"WhereaboutsRangeFull", `for: 15m`, `for: 10m`},
		{"WhereaboutsRangeNearlyFull", `whereabouts/low-addresses"`, `whereabouts/exhausted"`},
		{"CalicoAuditStale", `> 900`, `> 600`},
		{"CalicoAuditAbsent", `[1d]`, `[1h]`},
		{"CalicoAuditAbsent is not for labels", `unless on ()`, `and on ()`},
		{"CalicoAuditAbsent is not for labels", `min_over_time(calico_audit:exporters:count[30m])`, `min_over_time(calico_audit:exporters:count[1m])`},
		{"CalicoAuditAbsent of one cluster", `>= max_over_time`, `>= min_over_time`},
		{"CalicoAuditAbsent", `absent_over_time(calico_audit_snapshot_complete[23h])`, `absent(calico_audit_snapshot_complete)`},
		{"CalicoAuditIncomplete", `max without (instance, pod, node) (avg_over_time(calico_audit_snapshot_complete[10m]))`, `min without (instance, pod, node) (avg_over_time(calico_audit_snapshot_complete[10m]))`},
		{"CalicoAuditIncomplete in ten of eleven minutes", `avg_over_time(calico_audit_snapshot_complete[10m])`, `calico_audit_snapshot_complete`},
		{"CalicoAuditIncomplete for a check that is seen", `avg_over_time(calico_audit_check_success[10m])`, `calico_audit_check_success`},
		{"CalicoAuditFailing", `min without`, `max without`},
		{"CalicoHostViewsMissing", `min without`, `max without`},
		{"CalicoAgentScansFail", `[15m]`, `[5h]`},
		{"clusters with pools of one name are kept apart", `max without (instance, pod, node) (`, `max by (job, check, severity, ippool) (`},
		{"a replica that lags behind is not believed", `- 300)`, `- 30000)`},
		{"a check that cannot be made ends no alert at once", `[30m]`, `[5m]`},
		{"a check that cannot be made ends no alert at once", `[30m]`, `[2h]`},
	}
	for _, m := range testenv.Sample(t, 8, changes) {
		t.Run(m.tests+" "+m.old+" to "+m.new, func(t *testing.T) {
			tests := hours
			if strings.HasPrefix(m.tests, "CalicoPoolRunway") || strings.HasPrefix(m.tests, "CalicoPoolBlocksRunOut") || m.tests == "a healthy week" {
				tests = weeks
			}
			part := ruleTests{RuleFiles: tests.RuleFiles, EvaluationInterval: tests.EvaluationInterval}
			for _, test := range tests.Tests {
				if strings.HasPrefix(test["name"].(string), m.tests) {
					part.Tests = append(part.Tests, test)
				}
			}
			rules := string(example(t, "prometheus", rulesName))
			changed := strings.ReplaceAll(rules, m.old, m.new) // in the recording rules
			name, _, _ := strings.Cut(m.tests, " ")
			if before, rest, ok := strings.Cut(rules, "- alert: "+name+"\n"); ok {
				alert, after, more := strings.Cut(rest, "\n  - alert: ")
				if more {
					after = "\n  - alert: " + after
				}
				if strings.Contains(alert, m.old) {
					changed = before + "- alert: " + name + "\n" + strings.Replace(alert, m.old, m.new, 1) + after
				}
			}
			if len(part.Tests) == 0 || changed == rules {
				t.Fatal("there is no such test, or no such rule")
			}
			out, err := promtool(t, ruleDir(t, changed, part), "test", "rules", rulesTestName)
			if err == nil {
				t.Error("the unit tests pass all the same")
			} else if !strings.Contains(out, "got:") {
				t.Errorf("they do not fail by what they expect: %v\n%s", err, out)
			}
		})
	}
}
