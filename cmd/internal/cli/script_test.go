package cli

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/internal/testenv"
)

func TestMain(m *testing.M) {
	main := func() {
		os.Exit(Main(context.Background(), os.Args, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}))
	}
	testscript.Main(m, map[string]func(){"calico-audit": main, pluginName: main, pluginCompleteName: main})
}

// TestScripts runs the scripts of testdata/script, which call the program on the shipped
// examples.
func TestScripts(t *testing.T) {
	t.Parallel() // parallel to tests that wait
	examples, err := filepath.Abs(filepath.Join("..", "..", "..", "examples", "snapshots"))
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Glob(filepath.Join("testdata", "script", "*.txtar"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	if testing.Short() {
		scripts = testenv.Sample(t, len(scripts)/5, scripts)
		t.Log("-short: four fifths of the scripts")
	}
	testscript.Run(t, testscript.Params{
		Files:               scripts,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			// A link, so that the output does not depend on the location of the checkout.
			if err := os.Symlink(examples, filepath.Join(e.WorkDir, "examples")); err != nil {
				return err
			}
			if err := os.Symlink(filepath.Join(filepath.Dir(examples), "hostviews"), filepath.Join(e.WorkDir, "hostviews")); err != nil {
				return err
			}
			old, err := filepath.Abs(filepath.Join("testdata", "snapshot-without-counts.json.gz"))
			if err != nil {
				return err
			}
			if err := os.Symlink(old, filepath.Join(e.WorkDir, "old.json.gz")); err != nil {
				return err
			}
			e.Setenv("EXAMPLES", "examples")
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("GOGC", os.Getenv("GOGC")) // "make quick" sets it, to save the programs' collections
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits runs a command and expects its exit code: exits CODE COMMAND [ARG...].
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("running %s: %v", args[1], err)
	}
	if got != want {
		ts.Fatalf("%s ended with %d, want %d", args[1], got, want)
	}
}
