package story

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// shown is a command of calico-audit as a report shows it: after a prompt or a label.
var shown = regexp.MustCompile(`^\s+(?:\$|now|next|then)\s+(calico-audit .*)$`)

// command is one that a report tells its reader to run; a later one comes after others,
// which have to do their part before it can.
type command struct {
	text  string
	later bool
}

// commands are those that the report of a source tells a reader to run.
func commands(t *testing.T, dir string, source ...string) (out []command) {
	t.Helper()
	code, text, log := run(t, dir, append([]string{"report", "-o", "wide"}, source...)...)
	if code != 0 {
		t.Fatalf("report ends with %d:\n%s", code, log)
	}
	after := false
	for line := range strings.Lines(text) {
		if m := shown.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil && !slices.Contains(out, command{m[1], after}) {
			out = append(out, command{m[1], after})
		}
		after = strings.HasPrefix(strings.TrimSpace(line), "$ ")
	}
	return out
}

// works runs a command as a reader would paste it, and returns why it is of no use;
// empty if it is.
func works(t *testing.T, dir string, command command, source ...string) string {
	t.Helper()
	if !strings.HasPrefix(command.text, "calico-audit checks ") { // which prints a check's documentation
		for _, flag := range source {
			if !strings.Contains(command.text, flag) {
				return "it has lost the source flag " + flag
			}
		}
	}
	build(t)
	c := exec.CommandContext(t.Context(), "sh", "-c", command.text)
	c.Dir = dir
	c.Env = append(c.Environ(), "PATH="+filepath.Dir(program)+":"+"/usr/bin:/bin")
	out, err := c.CombinedOutput()
	switch {
	case err != nil:
		return fmt.Sprintf("it ends with %v:\n%s", err, out)
	case strings.Contains(string(out), "No findings"):
		return "it prints \"No findings\""
	case !command.later && strings.Contains(string(out), "No automatic steps") && !strings.Contains(string(out), "NOT TOUCHED"):
		return "it plans nothing, and says of nothing why:\n" + string(out)
	}
	return ""
}

// Every command that a report shows for a state of a check works when pasted, on files as
// on a cluster: it parses, reads the same source, and has something to say.
func TestCommandsOfReports(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: runs hundreds of commands")
	}
	t.Parallel()
	build(t)
	all := fixtures(t)
	t.Run("files", func(t *testing.T) {
		for _, f := range all {
			if !f.files {
				continue
			}
			t.Run(f.String(), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				source := []string{"-f", f.write(t, dir), "--at", f.at}
				for _, command := range commands(t, dir, source...) {
					if why := works(t, dir, command, source...); why != "" {
						t.Errorf("%s: %s", command.text, why)
					}
				}
			})
		}
	})
	t.Run("cluster", func(t *testing.T) {
		c := testcluster.Start(t, testcluster.Options{})
		tried := map[string]bool{}
		for _, f := range all {
			if !f.live() || tried[f.check] && !everyState() {
				continue
			}
			tried[f.check] = true
			t.Run(f.String(), func(t *testing.T) {
				f.load(t, c)
				dir := t.TempDir()
				source := []string{"--kubeconfig", c.KubeconfigPath()}
				for _, command := range commands(t, dir, source...) {
					if why := works(t, dir, command, source...); why != "" {
						t.Errorf("%s: %s", command.text, why)
					}
				}
			})
		}
	})
}
