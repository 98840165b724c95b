package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
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

// catchAll are the alerts for findings of a severity that no other alert covers, such as
// those of a new check.
var catchAll = map[string]state.Severity{"CalicoFinding": state.Error, "CalicoCriticalFinding": state.Critical}

// withRemedies adds the remedies of its checks to each alert, as an annotation. The
// catch-all alerts refer to the documentation.
func withRemedies(text string, all []rule) string {
	lines := regexp.MustCompile(`(?m)^      remedies: \|-\n(?:        .*\n)*`).ReplaceAllString(text, "")
	var out strings.Builder
	var r rule
	for line := range strings.Lines(lines) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "- alert: "); ok { // several may have one name
			i := slices.IndexFunc(all, func(r rule) bool { return r.Alert == name })
			r, all = all[i], all[i+1:]
		}
		if strings.HasPrefix(line, "      runbook_url: ") {
			out.WriteString(remediesOf(r))
		}
		out.WriteString(line)
	}
	return out.String()
}

// remediesOf returns the annotation with an alert's remedies. If they differ by check, the
// annotation selects them by the alert's label.
func remediesOf(r rule) string {
	if _, rest := catchAll[r.Alert]; rest {
		return ""
	}
	checksOf := map[string][]string{} // check IDs by text
	var texts []string
	for _, c := range checks.All {
		told := slices.DeleteFunc(slices.Clone(state.Severities), func(s state.Severity) bool { return !tells([]rule{r}, c.ID, s) })
		if len(told) == 0 && !strings.HasSuffix(r.Annotations["runbook_url"], "#"+view.CheckAnchor(c.ID)) {
			continue
		}
		text := remedyLines(c.Remedies)
		if len(told) == 1 && c.RemediesAt != nil {
			text = remedyLines(c.RemediesAt[told[0]])
		}
		if checksOf[text] == nil {
			texts = append(texts, text)
		}
		checksOf[text] = append(checksOf[text], c.ID)
	}
	switch len(texts) {
	case 0:
		return ""
	case 1:
		return "      remedies: |-\n" + texts[0]
	}
	out, when := "      remedies: |-\n", " if"
	for _, text := range texts {
		out += fmt.Sprintf("        {{%s eq $labels.check \"%s\" -}}\n%s", when, strings.Join(checksOf[text], `" "`), text)
		when = "- else if"
	}
	return out + "        {{- end }}\n"
}

// remedyLines formats remedies for an annotation. Effect and risk are left to the plans and
// the documentation, except for commands that disable a plan's guards: these are followed
// by their risk.
func remedyLines(ways []remedies.Remedy) (out string) {
	for i := range ways {
		m := &ways[i]
		out += fmt.Sprintf("        %d. %s\n", i+1, view.RemedyTitle(m))
		for _, c := range m.Commands {
			out += "           $ " + c + "\n"
		}
		if strings.Contains(strings.Join(m.Commands, " "), " --without-host-evidence") {
			out += "           Risk: " + m.Risk + "\n"
		}
	}
	return out
}

// rule is the relevant part of a rule.
type rule struct {
	Alert, Record, Expr string
	Labels, Annotations map[string]string
}

// alerts returns the rules of examples/prometheus, where the catch-all alerts exclude the
// checks of other alerts, and the PrometheusRule made from them.
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
	all = expanded(all)
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
	text = withRemedies(text, all)
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

// expanded returns the alerts, with the expressions of the recording rules that they use.
func expanded(all []rule) []rule {
	var alerts []rule
	for _, a := range all {
		if a.Alert == "" {
			continue
		}
		for _, r := range all {
			if r.Record != "" && regexp.MustCompile(regexp.QuoteMeta(r.Record)+`\b`).MatchString(a.Expr) {
				a.Expr += r.Expr
			}
		}
		alerts = append(alerts, a)
	}
	return alerts
}

// tells reports whether another alert than the catch-alls fires on findings of a check at a
// severity. For critical findings it must be critical as well.
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
