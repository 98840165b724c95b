package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// NewRoot returns the command line. program is how people start it:
// "calico-audit" or "kubectl calico-audit".
func NewRoot(program string, streams genericiooptions.IOStreams) *cobra.Command {
	root := &cobra.Command{
		Use:   "calico-audit",
		Short: "Find out what is wrong with Calico's IP address management",
		Long: `calico-audit reads what Calico's IPAM holds (pools, blocks, affinities, addresses),
compares it with the nodes and pods of the cluster, and says what is wrong, why it
matters, and what to look at next. It reads a running cluster or files that
"kubectl get -o yaml" wrote. Nothing but "repair --apply", "repair apply" and "repair
undo" ever changes anything, and these ask first.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: program},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(func(c *cobra.Command) error { return flags.Usage(c, view.TerminalWidth(streams.Out)) })
	e := env{streams: streams, program: program}
	root.AddCommand(
		newReport(e), newExplain(e), newSnapshot(e), newDiff(e), newChecks(e),
		newCapacity(e), newRepair(e), newExporter(e), newAgent(e), newVersion(e),
	)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil && completion != root {
		// Left to itself it prints its help for an unknown shell, and succeeds.
		completion.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	return root
}

// flagError makes a usage error of what the flags' parser says.
func flagError(c *cobra.Command, err error) error {
	var missing *pflag.ValueRequiredError
	if errors.As(err, &missing) {
		value, help := pflag.UnquoteUsage(missing.GetFlag())
		err = fmt.Errorf("--%s needs a value, %s: %s", missing.GetFlag().Name, value, help)
	}
	return &exit.Error{Code: exit.CodeUsage, Err: err, Hint: helpHint(c)}
}

func helpHint(c *cobra.Command) string {
	return "See \"" + c.CommandPath() + " --help\" for usage."
}

// run makes a command's function out of one of ours: an error that does not say
// how the program ends is a failure inside it, as against the errors of cobra,
// which never reach this place and are errors of usage.
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
