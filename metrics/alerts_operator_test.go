package metrics_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the PrometheusRule anew")

const prometheusRuleHead = `# The alerts of examples/prometheus for the Prometheus operator. Do not edit: made from
# calico-audit.rules.yaml there by "go test ./metrics -run PrometheusRule -update".
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: calico-audit
  namespace: kube-system
  labels:
    app.kubernetes.io/name: calico-audit-exporter
spec:
`

// TestPrometheusRule: what is given to the Prometheus operator are the very rules that
// are tested.
func TestPrometheusRule(t *testing.T) {
	_, groups, ok := strings.Cut(string(example(t, "prometheus", rulesName)), "\ngroups:\n")
	if !ok {
		t.Fatal("there are no groups")
	}
	want := prometheusRuleHead + "  groups:\n"
	for line := range strings.Lines(groups) {
		if strings.TrimSpace(line) != "" {
			line = "  " + line
		}
		want += line
	}
	path := []string{"kubernetes", "exporter-prometheus-operator", "prometheusrule.yaml"}
	if *update {
		if err := os.WriteFile(filepath.Join(append([]string{"..", "examples"}, path...)...), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(example(t, path...)); got != want {
		t.Error("the PrometheusRule is not made of the rules: go test ./metrics -run PrometheusRule -update")
	}
}
