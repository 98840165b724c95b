package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/cmd/internal/exit"
)

// issuesURL is the address for reports of internal errors.
const issuesURL = "https://github.com/calico-audit/calico-audit/issues"

// Main runs the command line and returns the exit code. args are the program's name and
// arguments.
func Main(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	return execute(ctx, streams, func() error {
		root := NewRoot(programName(args[0]), streams)
		root.SetArgs(arguments(args))
		return root.ExecuteContext(ctx)
	})
}

// execute runs a command, prints its errors to standard error, and returns the exit code. A
// panic counts as an internal error.
func execute(ctx context.Context, streams genericiooptions.IOStreams, run func() error) (code int) {
	defer func() {
		if p := recover(); p != nil {
			_, _ = fmt.Fprintf(streams.ErrOut, "error: calico-audit failed: %v\n\n%s\nThis is a bug in calico-audit. Please report it, with the lines above, at %s\n",
				p, debug.Stack(), issuesURL)
			code = exit.CodeFailure
		}
	}()
	err := run()
	if err != nil && ctx.Err() != nil && exit.Code(err) != exit.CodeUnfinished {
		err = exit.Unread(errors.New("interrupted")) // unfinished steps take precedence
	}
	if errors.Is(err, syscall.EPIPE) {
		// The reader of the output has seen enough: "| head" is not an error.
		err = withoutBrokenPipe(err)
	}
	for _, e := range exit.All(err) {
		say(streams, "error: %v", e)
		var x *exit.Error
		if !errors.As(e, &x) {
			continue
		}
		if x.Hint != "" {
			say(streams, "%s", x.Hint)
		}
		if x.Code == exit.CodeFailure {
			say(streams, "This is a bug in calico-audit. Please report it at %s", issuesURL)
		}
	}
	return exit.Code(err)
}

func withoutBrokenPipe(err error) error {
	var rest []error
	for _, e := range exit.All(err) {
		if !errors.Is(e, syscall.EPIPE) {
			rest = append(rest, e)
		}
	}
	return errors.Join(rest...)
}

// The file names of a kubectl plugin and of its completion.
const (
	pluginName         = "kubectl-calico_audit"
	pluginCompleteName = "kubectl_complete-calico_audit"
)

// programName returns the program's name as the user typed it.
func programName(arg0 string) string {
	switch baseName(arg0) {
	case pluginName, pluginCompleteName:
		return "kubectl calico-audit"
	}
	return "calico-audit"
}

// arguments returns the arguments of the command line. If kubectl asks for completions,
// under its special name, the completion command is inserted, so that kubectl only needs a
// link to the program.
func arguments(args []string) []string {
	if baseName(args[0]) == pluginCompleteName {
		return append([]string{cobra.ShellCompRequestCmd}, args[1:]...)
	}
	return args[1:]
}

func baseName(arg0 string) string { return strings.TrimSuffix(filepath.Base(arg0), ".exe") }
