package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/cmd/internal/build"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
)

// NewRoot returns the command line. program is its name as the user typed it:
// "calico-audit" or "kubectl calico-audit".
func NewRoot(program string, streams genericiooptions.IOStreams) *cobra.Command {
	root := &cobra.Command{
		Use:   "calico-audit",
		Short: "Find problems in Calico's IP address management",
		Long: `calico-audit reads Calico's IPAM objects (pools, blocks, affinities, addresses) and
compares them with the nodes and pods of the cluster. It reports problems, their
consequences, and the next steps. It reads a running cluster or files that
"kubectl get -o yaml" wrote. Only "repair --apply", "repair apply" and "repair undo"
change anything, and they ask first.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: program},
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       build.Read().Version,
	}
	root.SetVersionTemplate(versionText(build.Read()))
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(func(c *cobra.Command) error { return flags.Usage(c, terminal.Width(streams.Out)) })
	e := env{streams: streams, program: program}
	root.AddCommand(
		newReport(e), newExplain(e), newSnapshot(e), newDiff(e), newChecks(e),
		newCapacity(e), newRepair(e), newExporter(e), newAgent(e), newVersion(e),
	)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil && completion != root {
		// By default it prints its help and succeeds for an unknown shell.
		completion.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	return root
}

// flagError returns a usage error for an error of the flags' parser.
func flagError(c *cobra.Command, err error) error {
	var missing *pflag.ValueRequiredError
	if errors.As(err, &missing) {
		value, help := pflag.UnquoteUsage(missing.GetFlag())
		err = fmt.Errorf("--%s needs a value, %s: %s", missing.GetFlag().Name, value, help)
	}
	return &exit.Error{Code: exit.CodeUsage, Err: err, Hint: "See \"" + c.CommandPath() + " --help\" for usage."}
}

// run wraps the function of a command: an error without an exit code is an internal error.
// Errors of cobra itself never pass through here, and are usage errors.
func run(f func(c *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		err := f(c, args)
		if err == nil {
			return nil
		}
		var all []error
		for _, e := range exit.All(err) {
			var x *exit.Error
			if !errors.As(e, &x) {
				e = exit.Failure(e)
			}
			all = append(all, e)
		}
		return errors.Join(all...)
	}
}
