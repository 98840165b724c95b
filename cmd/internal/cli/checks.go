package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

func newChecks(program string, streams genericiooptions.IOStreams) *cobra.Command {
	var format string
	var noHeaders bool
	c := &cobra.Command{
		Use:   "checks [ID]",
		Short: "List the checks, or print the documentation of one",
		Long: `List what an audit looks for. With an ID, such as ip/borrowed, print what that
check means, how to see the same by other means, what to do and what not to do.
With a group, such as ip, list that group.`,
		Example: strings.ReplaceAll(`  # What an audit looks for
  PROGRAM checks

  # What a finding means and what to do about it
  PROGRAM checks pool/no-free-blocks`, "PROGRAM", program),
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeCheckID,
	}
	c.Flags().StringVarP(&format, "output", "o", "table", "`FORMAT`: "+strings.Join(view.CheckFormats, "|"))
	c.Flags().BoolVar(&noHeaders, "no-headers", false, "leave out the heading of the table")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(view.CheckFormats, cobra.ShellCompDirectiveNoFileComp))
	c.RunE = run(func(_ *cobra.Command, args []string) error {
		if !slices.Contains(view.CheckFormats, format) {
			return usagef("unknown output format %q: want one of %s", format, strings.Join(view.CheckFormats, ", "))
		}
		checks, err := audit.All.Select(args)
		if err != nil {
			return usageError(err)
		}
		one := len(args) == 1 && len(checks) == 1 && checks[0].ID == args[0]
		err = view.WriteChecks(streams.Out, format, checks, one, view.Options{Width: terminalWidth(streams.Out), NoHeaders: noHeaders})
		if err != nil {
			return usageError(fmt.Errorf("writing the checks: %w", err))
		}
		return nil
	})
	return c
}
