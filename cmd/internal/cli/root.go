package cli

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/cmd/internal/build"
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
