package metrics_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
)

// rule is a Prometheus rule.
type rule struct {
	Record      string            `json:"record,omitempty"`
	Alert       string            `json:"alert,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	} `json:"groups"`
}

// The rules, their unit tests, and unit tests over weeks.
const rulesName, rulesTestName, runwayTestName = "calico-audit.rules.yaml", "calico-audit.rules.test.yaml", "calico-audit.runway.test.yaml"

// example returns a file from the examples.
func example(t *testing.T, path ...string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(append([]string{"..", "examples"}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// shippedRules returns the alerting and recording rules in the examples.
func shippedRules(t *testing.T) (alerts, records []rule) {
	t.Helper()
	var f ruleFile
	if err := yaml.UnmarshalStrict(example(t, "prometheus", rulesName), &f); err != nil {
		t.Fatal(err)
	}
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				alerts = append(alerts, r)
			} else {
				records = append(records, r)
			}
		}
	}
	if len(alerts) < 10 || len(records) == 0 {
		t.Fatalf("%d alerts, %d recording rules", len(alerts), len(records))
	}
	return alerts, records
}

// TestAlertTexts: each alert has a severity, a meaning and one command, and its runbook is
// its own section of ALERTS.md.
func TestAlertTexts(t *testing.T) {
	const alertsURL = "https://github.com/calico-audit/calico-audit/blob/main/metrics/ALERTS.md#"
	raw, err := os.ReadFile("ALERTS.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^(calico-audit|kubectl) .*$`)
	alerts, _ := shippedRules(t)
	for _, a := range alerts {
		if s := a.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s: severity %q", a.Alert, s)
		}
		if !regexp.MustCompile(`^\d+[smh]$`).MatchString(a.For) {
			t.Errorf("%s fires after %q", a.Alert, a.For)
		}
		if a.Annotations["summary"] == "" || strings.Contains(a.Annotations["summary"], "\n") {
			t.Errorf("%s: summary %q", a.Alert, a.Annotations["summary"])
		}
		d := a.Annotations["description"]
		if said := command.FindAllString(d, -1); len(said) != 1 || !strings.HasSuffix(strings.TrimSpace(d), "\n"+said[0]) || len(d) < 100 {
			t.Errorf("%s: the description does not end with one command, or says nothing: %q", a.Alert, d)
		}
		if url := a.Annotations["runbook_url"]; url != alertsURL+strings.ToLower(a.Alert) || !strings.Contains(string(raw), "\n## "+a.Alert+"\n") {
			t.Errorf("%s: the runbook %s does not exist", a.Alert, url)
		}
	}
}

var findingSelector = regexp.MustCompile(`calico_audit:findings:current\{([^}]*)\}`)

// selects reports whether an alert fires on a finding, itself or by a recording rule.
func selects(t *testing.T, a rule, check, severity string) bool {
	t.Helper()
	expr := a.Expr
	_, records := shippedRules(t)
	for _, r := range records {
		if regexp.MustCompile(regexp.QuoteMeta(r.Record) + `\b`).MatchString(a.Expr) {
			expr += r.Expr
		}
	}
	for _, m := range findingSelector.FindAllStringSubmatch(expr, -1) {
		if matches(t, m[1], map[string]string{"check": check, "severity": severity}) {
			return true
		}
	}
	return false
}

var matcher = regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)

// matches reports whether labels satisfy the matchers of a selector.
func matches(t *testing.T, selector string, labels map[string]string) bool {
	t.Helper()
	for _, m := range matcher.FindAllStringSubmatch(selector, -1) {
		value, ok := labels[m[1]]
		if !ok {
			t.Errorf("findings have no label %s", m[1])
		}
		equal := value == m[3]
		if strings.HasSuffix(m[2], "~") {
			equal = regexp.MustCompile("^(?:" + m[3] + ")$").MatchString(value)
		}
		if equal == strings.HasPrefix(m[2], "!") {
			return false
		}
	}
	return true
}

// TestAlertsCoverChecks: each check with critical or error findings has an alert, and
// alerts only name existing checks.
func TestAlertsCoverChecks(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes long")
	}
	alerts, _ := shippedRules(t)
	named := regexp.MustCompile(`\b(?:affinity|block|config|handle|ip|node|pool|route|whereabouts)/[a-z-]+`)
	for _, a := range alerts {
		for _, id := range named.FindAllString(a.Expr+a.Annotations["description"], -1) {
			if !slices.ContainsFunc(checks.All, func(c *audit.Check) bool { return c.ID == id }) {
				t.Errorf("%s names the check %s, which does not exist", a.Alert, id)
			}
		}
	}
	for _, c := range checks.All {
		for _, severity := range c.Severities {
			if severity < state.Error {
				continue
			}
			s := severity.String()
			var by []string
			for _, a := range alerts {
				if selects(t, a, c.ID, s) && (s == "error" || a.Labels["severity"] == "critical") {
					by = append(by, a.Alert)
				}
			}
			if len(by) != 1 {
				t.Errorf("alerts on %s at %s: %q", c.ID, s, by)
			}
		}
	}
}

// documentedFamilies returns the families of METRICS.md and their labels.
func documentedFamilies(t *testing.T) map[string][]string {
	t.Helper()
	raw, err := os.ReadFile("METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, line := range strings.Split(string(raw), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(cells[1], " `calico_audit_") {
			continue
		}
		labels := []string{}
		for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[3], -1) {
			labels = append(labels, m[1])
		}
		out[strings.Trim(cells[1], " `")] = labels
	}
	if len(out) < 20 {
		t.Fatalf("%d families in METRICS.md", len(out))
	}
	return out
}

// targetLabels are labels that a scrape adds. cluster is added by a Prometheus for several
// clusters.
var targetLabels = []string{"instance", "pod", "node", "job", "cluster"}

var (
	addedLabel = regexp.MustCompile(`"(\w+)", "\w+", "", ""`) // in label_replace
	metricName = regexp.MustCompile(`\b(calico_audit[_:][a-z_:]+)(\{[^}]*\})?`)
	grouping   = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
)

// checkNames verifies that an expression uses only existing families and labels, and
// returns the families.
func checkNames(t *testing.T, where, expr string, families map[string][]string) (used []string) {
	t.Helper()
	known := append(slices.Clone(targetLabels), added(expr)...)
	if strings.Contains(expr, "kube_") { // of kube-state-metrics
		known = append(known, "namespace", "job_name", "cronjob")
	}
	for _, m := range metricName.FindAllStringSubmatch(expr, -1) {
		labels, ok := families[m[1]]
		if !ok {
			t.Errorf("%s: there is no metric %s", where, m[1])
			continue
		}
		used = append(used, m[1])
		known = append(known, labels...)
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(labels, l[1]) && !slices.Contains(targetLabels, l[1]) {
				t.Errorf("%s: %s has no label %s", where, m[1], l[1])
			}
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		for _, l := range strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' }) {
			if !slices.Contains(known, l) {
				t.Errorf("%s: nothing in it has a label %s", where, l)
			}
		}
	}
	return used
}

// added returns the labels that an expression adds.
func added(expr string) (labels []string) {
	for _, m := range addedLabel.FindAllStringSubmatch(expr, -1) {
		labels = append(labels, m[1])
	}
	return labels
}

// addRecords adds the recorded families to the known ones, and returns the families that
// the rules use.
func addRecords(t *testing.T, records []rule, families map[string][]string) map[string]bool {
	t.Helper()
	used := map[string]bool{}
	for _, r := range records {
		labels := added(r.Expr)
		for _, m := range checkNames(t, r.Record, r.Expr, families) {
			used[m] = true
			labels = append(labels, families[m]...)
		}
		families[r.Record] = labels
	}
	return used
}

// TestAlertMetrics: the rules use only existing metrics and labels, and no unstable ones.
func TestAlertMetrics(t *testing.T) {
	alerts, records := shippedRules(t)
	families := documentedFamilies(t)
	raw, err := os.ReadFile("METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	unstable := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|.*\\| may change \\|$").FindAllStringSubmatch(string(raw), -1) {
		unstable[m[1]] = true
	}
	used := addRecords(t, records, families)
	for _, a := range alerts {
		of := checkNames(t, a.Alert, a.Expr, families)
		for _, m := range of {
			used[m] = true
		}
		for _, m := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(strings.Join([]string{
			a.Annotations["summary"], a.Annotations["description"], a.Annotations["runbook_url"],
		}, "\n"), -1) {
			kube := strings.Contains(a.Expr, "kube_") && m[1] == "namespace"
			if !kube && !slices.ContainsFunc(of, func(f string) bool { return slices.Contains(families[f], m[1]) }) && !slices.Contains(targetLabels, m[1]) {
				t.Errorf("%s: the text uses the label %s, which it has not", a.Alert, m[1])
			}
		}
	}
	for m := range used {
		if unstable[m] {
			t.Errorf("the rules rely on %s, which may change", m)
		}
		if strings.HasPrefix(m, "calico_audit_node_") {
			t.Errorf("the rules rely on %s, which can be switched off", m)
		}
	}
	for _, r := range records {
		if !used[r.Record] {
			t.Errorf("nothing uses %s", r.Record)
		}
	}
}
