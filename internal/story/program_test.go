package story

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// program is calico-audit, built once as it is installed.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "calico-audit-story-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program = filepath.Join(dir, "calico-audit")
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// build builds the program unless it is there.
func build(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(program); err == nil {
		return
	}
	root, err := testcluster.ModuleRoot()
	must(t, err)
	command := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/calico-audit")
	command.Dir = root
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("building calico-audit: %v\n%s", err, out)
	}
}

// run runs the program, and returns its exit code and what it prints.
func run(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	build(t)
	var out, log bytes.Buffer
	command := exec.CommandContext(t.Context(), program, args...)
	command.Dir, command.Stdout, command.Stderr = dir, &out, &log
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), out.String(), log.String()
}

// report is what the program reports of the cluster.
func (s *story) report(t *testing.T) *audit.Report {
	t.Helper()
	code, out, log := run(t, t.TempDir(), "report", "-o", "json", "--kubeconfig", s.KubeconfigPath())
	if code != 0 {
		t.Fatalf("report ends with %d:\n%s", code, log)
	}
	var r audit.Report
	must(t, json.Unmarshal([]byte(out), &r))
	return &r
}
