package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// prefix begins the name of every network namespace of the lab. The process ID of its
// test follows.
const prefix = "calab"

// netnsDir is the directory of named namespaces, as the ip command uses it.
const netnsDir = "/run/netns"

// Namespace is a named network namespace.
type Namespace struct{ name string }

// count numbers the namespaces of this process.
var count atomic.Int64

// newNamespace creates a namespace that is deleted when the test ends. suffix describes
// its use.
func newNamespace(tb testing.TB, suffix string) (Namespace, error) {
	if _, err := hireJanitor(); err != nil {
		return Namespace{}, err
	}
	name := fmt.Sprintf("%s-%d-%s", ownPrefix, count.Add(1), suffix)
	if err := run(tb.Context(), nil, "ip", "netns", "add", name); err != nil {
		return Namespace{}, err
	}
	tb.Cleanup(func() {
		// The test's own context has already ended.
		if err := run(context.Background(), nil, "ip", "netns", "del", name); err != nil {
			tb.Errorf("a network namespace is left behind: %v", err)
		}
	})
	return Namespace{name}, nil
}

// Path returns the path of the namespace's file.
func (n Namespace) Path() string { return filepath.Join(netnsDir, n.name) }

// IP runs ip commands in the namespace, one per line.
func (n Namespace) IP(ctx context.Context, lines ...string) error {
	script := strings.Join(lines, "\n") + "\n"
	return run(ctx, strings.NewReader(script), "ip", "-n", n.name, "-batch", "-")
}

// Run runs a program in the namespace and returns its stdout.
func (n Namespace) Run(ctx context.Context, args ...string) (string, error) {
	return output(ctx, "ip", n.command(args)...)
}

// Set sets kernel parameters of the namespace, such as "net.ipv4.ip_forward=1".
func (n Namespace) Set(ctx context.Context, settings ...string) error {
	var script strings.Builder
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		fmt.Fprintf(&script, "echo %s > /proc/sys/%s || exit 1\n", value, strings.ReplaceAll(key, ".", "/"))
	}
	_, err := n.Run(ctx, "sh", "-c", script.String())
	return err
}

// command returns the arguments with which ip runs a program in the namespace.
func (n Namespace) command(args []string) []string {
	return append([]string{"netns", "exec", n.name}, args...)
}

// failure is the error of a program with an exit code other than 0.
type failure struct {
	command string
	code    int
	stderr  string
}

func (f *failure) Error() string {
	return fmt.Sprintf("%s: exit code %d: %s", f.command, f.code, strings.TrimSpace(f.stderr))
}

func run(ctx context.Context, stdin *strings.Reader, path string, args ...string) error {
	return runTo(ctx, &bytes.Buffer{}, stdin, path, args...)
}

func output(ctx context.Context, path string, args ...string) (string, error) {
	var stdout bytes.Buffer
	err := runTo(ctx, &stdout, nil, path, args...)
	return stdout.String(), err
}

func runTo(ctx context.Context, stdout *bytes.Buffer, stdin *strings.Reader, path string, args ...string) error {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	if stdin != nil {
		cmd.Stdin = stdin
	}
	cmd.Stdout, cmd.Stderr = stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return &failure{path + " " + strings.Join(args, " "), exit.ExitCode(), stderr.String() + stdout.String()}
	}
	if err != nil {
		return fmt.Errorf("running %s %s: %w", path, strings.Join(args, " "), err)
	}
	return nil
}
