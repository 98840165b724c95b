package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

func newChecks(e env) *cobra.Command {
	var format string
	var noHeaders bool
	formats := view.CheckListFormats()
	c := e.command(&cobra.Command{
		Use:               "checks [ID]",
		Short:             "List the checks, or print the documentation of one",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeCheckID,
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := formats.Named(format); err != nil {
				return exit.Usage(err)
			}
			checks, err := checks.All.Select(args)
			if err != nil {
				return exit.Usage(err)
			}
			if len(args) == 1 && len(checks) == 1 && checks[0].ID == args[0] {
				formats = view.CheckFormats()
			}
			f, err := formats.Named(format)
			if err == nil {
				err = f.Write(e.streams.Out, view.NewCheckDocs(checks), view.Options{Width: terminal.Width(e.streams.Out), NoHeaders: noHeaders})
			}
			if err != nil {
				return exit.Usage(fmt.Errorf("writing the checks: %w", err))
			}
			return nil
		},
	})
	c.Flags().StringVarP(&format, "output", "o", "table", "`FORMAT`: "+strings.Join(formats.Names(), "|"))
	c.Flags().BoolVar(&noHeaders, "no-headers", false, "omit the header line")
	flags.OneOf(c, "output", formats.Names()...)
	return c
}
