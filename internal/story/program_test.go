package story

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
)

// program is the path of calico-audit, built once the way that users build it.
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

// build builds the program once.
func build(t *testing.T) {
	t.Helper()
	must(t, built())
}

var built = sync.OnceValue(func() error {
	root, err := programs.ModuleRoot()
	if err != nil {
		return err
	}
	command := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "./cmd/calico-audit")
	command.Dir = root
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("building calico-audit: %w\n%s", err, out)
	}
	return nil
})

// run runs the program. It returns the exit code and both outputs.
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
