package cli_test

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/cmd/internal/cli"
)

// TestAlertCommands: the program accepts the commands in the alerts.
func TestAlertCommands(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "prometheus", "calico-audit.rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(raw, &rules); err != nil {
		t.Fatal(err)
	}
	tried := map[string]bool{}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			for line := range strings.Lines(r.Annotations["description"]) {
				line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
				if !strings.HasPrefix(line, "calico-audit ") || tried[line] {
					continue
				}
				tried[line] = true
				args := strings.Fields(regexp.MustCompile(`{{.*?}}`).ReplaceAllString(strings.ReplaceAll(line, "{{ $value }}", "3"), "ip/borrowed"))[1:]
				root := cli.NewRoot("calico-audit", genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard})
				c, rest, err := root.Find(args)
				if err != nil || c == root {
					t.Errorf("%s: %s is no command: %v", r.Alert, line, err)
					continue
				}
				if err := c.ParseFlags(rest); err != nil {
					t.Errorf("%s: %s: %v", r.Alert, line, err)
				} else if err := c.ValidateArgs(c.Flags().Args()); err != nil {
					t.Errorf("%s: %s: %v", r.Alert, line, err)
				}
			}
		}
	}
	if len(tried) < 20 {
		t.Errorf("only %d commands are named", len(tried))
	}
}
