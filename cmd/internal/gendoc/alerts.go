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

// catchAll are the alerts for findings of a severity that no other alert covers, such as
// those of a new check.
var catchAll = map[string]state.Severity{"CalicoFinding": state.Error, "CalicoCriticalFinding": state.Critical}

// related names the checks for alerts that fire on no finding.
var related = map[string]string{
	"CalicoPoolBlocksRunOut": "pool/low-free-blocks", "CalicoPoolRunway": "pool/low-free-blocks",
	"CalicoNodesMayNotFit": "pool/undersized",
}

const alertsHead = `# Alerts

The alerts of [examples/prometheus](../examples/prometheus), with the remedies of their checks.
A word in capitals stands for the value of a label, and N for the number that the alert counts.
The annotation ${RUNBOOK} of each alert leads to its section.

The commands need the program and a kubeconfig. Without them, a browser shows the exporter's live
report: ~kubectl -n kube-system port-forward service/calico-audit-exporter 19099~, and then
<http://localhost:19099/report>.
`

// alertsDoc returns ALERTS.md.
func alertsDoc(all []rule) []byte {
	var b strings.Builder
	b.WriteString(generated + strings.NewReplacer("${RUNBOOK}", "`runbook_url`", "~", "`").Replace(alertsHead))
	for i, r := range all {
		if i == 0 || all[i-1].Alert != r.Alert {
			b.WriteString("\n## " + r.Alert + "\n")
		}
		text, command := cutCommand(readable(r.Annotations["description"]))
		fmt.Fprintf(&b, "\n%s, after %s: %s\n\n%s\n\n```sh\n%s\n```\n", r.Labels["severity"], r.For, readable(r.Annotations["summary"]), text, command)
		if i+1 < len(all) && all[i+1].Alert == r.Alert {
			continue
		}
		if _, rest := catchAll[r.Alert]; rest {
			b.WriteString("\n[CHECKS.md](../audit/CHECKS.md) has the meaning and the remedies of each check.\n")
		} else {
			writeRemedies(&b, r)
		}
	}
	return []byte(b.String())
}

// cutCommand cuts the command from the end of a description.
func cutCommand(description string) (text, command string) {
	i := strings.LastIndex(description, "\n")
	return strings.TrimSpace(description[:i]), description[i+1:]
}

// readable replaces the templates of an annotation.
func readable(text string) string {
	text = regexp.MustCompile(`\{\{ \$labels\.(\w+) \}\}`).ReplaceAllStringFunc(strings.TrimSpace(text), func(s string) string {
		return strings.ToUpper(strings.TrimSuffix(strings.TrimPrefix(s, "{{ $labels."), " }}"))
	})
	return regexp.MustCompile(`\{\{ \$value[^}]*\}\}`).ReplaceAllString(text, "N")
}

// writeRemedies writes the remedies of an alert's checks. Effect and risk are left to the
// plans and to CHECKS.md, except for commands that disable a plan's guards: these are
// followed by their risk.
func writeRemedies(b *strings.Builder, r rule) {
	checksOf := map[string][]string{} // links by text
	var texts []string
	for _, c := range checks.All {
		told := slices.DeleteFunc(slices.Clone(state.Severities), func(s state.Severity) bool { return !tells([]rule{r}, c.ID, s) })
		if len(told) == 0 && related[r.Alert] != c.ID {
			continue
		}
		text := remedyLines(c.Remedies)
		if len(told) == 1 && c.RemediesAt != nil {
			text = remedyLines(c.RemediesAt[told[0]])
		}
		if checksOf[text] == nil {
			texts = append(texts, text)
		}
		checksOf[text] = append(checksOf[text], fmt.Sprintf("[%s](../audit/CHECKS.md#%s)", c.ID, view.CheckAnchor(c.ID)))
	}
	for _, text := range texts {
		plan := ""
		if strings.Contains(text, "`calico-audit repair") {
			plan = " Without `--apply`, `repair` only shows its plan."
		}
		fmt.Fprintf(b, "\nThe report lists the remedies that fit the cluster.%s In general, for %s:\n\n%s", plan, strings.Join(checksOf[text], ", "), text)
	}
}

func remedyLines(ways []remedies.Remedy) (out string) {
	for i := range ways {
		m := &ways[i]
		out += fmt.Sprintf("%d. %s", i+1, view.RemedyTitle(m))
		if len(m.Commands) > 0 {
			out += ": `" + strings.Join(m.Commands, "`, `") + "`"
		}
		if strings.Contains(strings.Join(m.Commands, " "), " --without-host-evidence") {
			out += ". Risk: " + m.Risk
		}
		out += "\n"
	}
	return out
}

// rule is the relevant part of a rule.
type rule struct {
	Alert, Record, Expr, For string
	Labels, Annotations      map[string]string
}

// alerts returns the rules of examples/prometheus, where the catch-all alerts exclude the
// checks of other alerts, and their documentation.
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
	return []document{{rulesPath, []byte(text)}, {"metrics/ALERTS.md", alertsDoc(all)}}, nil
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

// tells reports whether an alert other than the catch-alls fires on findings of a check at a
// severity. For critical findings, that alert must also be critical.
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
