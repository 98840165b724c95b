package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
)

const rulesPath = "examples/prometheus/calico-audit.rules.yaml"

const prometheusRuleHead = `# The alerts of examples/prometheus for the Prometheus operator. Generated from
# calico-audit.rules.yaml there by "make generate". Do not edit.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: calico-audit
  namespace: kube-system
  labels:
    app.kubernetes.io/name: calico-audit-exporter
spec:
  groups:
`

// catchAll are the alerts on findings of a severity that no other alert tells of: those of
// a check that is new, to begin with.
var catchAll = map[string]state.Severity{"CalicoFinding": state.Error, "CalicoCriticalFinding": state.Critical}

// rule is an alert of Prometheus, as far as it matters here.
type rule struct {
	Alert, Expr string
	Labels      map[string]string
}

// alerts returns the rules of examples/prometheus, in which the alerts on what no other
// tells leave out what others do, and the PrometheusRule that is made of them.
func alerts() ([]document, error) {
	raw, err := os.ReadFile(filepath.Join(root, rulesPath))
	if err != nil {
		return nil, fmt.Errorf("reading the alerts: %w", err)
	}
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal(raw, &file); err != nil {
		return nil, fmt.Errorf("reading %s: %w", rulesPath, err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	text := string(raw)
	for name, severity := range catchAll {
		var told []string
		for _, c := range checks.All {
			if tells(all, c.ID, severity) {
				told = append(told, c.ID)
			}
		}
		list := regexp.MustCompile(`(- alert: ` + name + `\n\s+expr: \|\n[^|]*check!~")[^"]*`)
		if !list.MatchString(text) {
			return nil, fmt.Errorf("reading %s: alert %s leaves no check out", rulesPath, name)
		}
		text = list.ReplaceAllString(text, "${1}"+strings.Join(told, "|"))
	}
	_, groups, ok := strings.Cut(text, "\ngroups:\n")
	if !ok {
		return nil, fmt.Errorf("reading %s: there are no groups", rulesPath)
	}
	operator := prometheusRuleHead
	for line := range strings.Lines(groups) {
		if strings.TrimSpace(line) != "" {
			line = "  " + line
		}
		operator += line
	}
	return []document{{rulesPath, []byte(text)}, {"examples/kubernetes/exporter-prometheus-operator/prometheusrule.yaml", []byte(operator)}}, nil
}

// tells reports whether an alert other than those on the rest fires on findings of a check
// at a severity. On critical ones it must be critical itself.
func tells(all []rule, check string, severity state.Severity) bool {
	for _, r := range all {
		if _, rest := catchAll[r.Alert]; rest || severity == state.Critical && r.Labels["severity"] != severity.String() {
			continue
		}
		for _, selector := range findings.FindAllStringSubmatch(r.Expr, -1) {
			if selects(selector[1], map[string]string{"check": check, "severity": severity.String()}) {
				return true
			}
		}
	}
	return false
}

var (
	findings = regexp.MustCompile(`calico_audit:findings:current\{([^}]*)\}`)
	matcher  = regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
)

// selects reports whether labels satisfy the matchers of a selector.
func selects(selector string, labels map[string]string) bool {
	for _, m := range matcher.FindAllStringSubmatch(selector, -1) {
		pattern := m[3]
		if !strings.HasSuffix(m[2], "~") {
			pattern = regexp.QuoteMeta(pattern)
		}
		if regexp.MustCompile("^(?:"+pattern+")$").MatchString(labels[m[1]]) == strings.HasPrefix(m[2], "!") {
			return false
		}
	}
	return true
}
