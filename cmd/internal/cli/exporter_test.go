package cli_test

import (
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
)

// TestExporterUsage: invalid flags are rejected before anything is watched.
func TestExporterUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"--interval 10ms is less than 1s":       {"--interval", "10ms"},
		"--max-age 5s is too short":             {"--max-age", "5s"},
		"--grace -1s is negative":               {"--grace", "-1s"},
		"reading --ignore":                      {"--ignore", "check=no/such"},
		"unknown value \"xml\" of --log-format": {"--log-format", "xml"},
		"missing.yaml: no such file":            {"--server", "http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--web.config.file", "missing.yaml"},
		"listening on nonsense":                 {"--server", "http://127.0.0.1:1", "--listen", "nonsense"},
		"no cluster to read":                    {},
		"unknown shorthand flag: 'f'":           {"-f", "examples/snapshots/story"},
		"unknown argument \"now\": \"calico-audit exporter\" takes only flags": {"now"},
	} {
		t.Setenv("KUBECONFIG", "/nowhere")
		t.Setenv("HOME", t.TempDir())
		if got := clitest.Run(t, append([]string{"exporter"}, args...)...); got.Code != exit.CodeUsage || !strings.Contains(got.Err, want) {
			t.Errorf("%q: exit code %d, want %q in: %s", args, got.Code, want, got.Err)
		}
	}
}
