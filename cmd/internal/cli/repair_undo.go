package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/runner"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair/journal"
)

func newRepairUndo(e env) *cobra.Command {
	p := new(planOutputs)
	x := p.runner(e, new(source.Flags), nil, new(runner.Flags))
	c := e.command(&cobra.Command{
		Use:   "undo [JOURNAL]",
		Short: "Undo the writes of a journal or, without one, the leftovers of killed runs",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				if err := errors.Join(p.complete(view.PlanFormats(), ""), x.Flags.Complete(canAsk(e.streams))); err != nil {
					return err
				}
				return x.UndoLeft(c.Context())
			}
			file, err := journal.ReadRun(args[0])
			if err != nil {
				return exit.Usage(err)
			}
			if err := errors.Join(p.complete(view.PlanFormats(), ""), x.Flags.Complete(canAsk(e.streams))); err != nil {
				return err
			}
			return x.Undo(c.Context(), file)
		},
	})
	x.Sources.AddClusterTo(c)
	addOutputFlags(c, &p.outputFlags, view.ResultFormats(), "")
	x.Flags.AddTo(c, "write the journal of the undo to this new `FILE`")
	return c
}
