package cli

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/cmd/internal/runner"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// applyCommand is "repair apply".
type applyCommand struct {
	*runner.Runner
	print  planOutputs
	resume string
}

func newRepairApply(e env) *cobra.Command {
	x := &applyCommand{}
	x.Runner = x.print.runner(e, new(source.Flags), new(source.HostFlags), new(runner.Flags))
	c := e.command(&cobra.Command{
		Use:   "apply PLAN | --resume JOURNAL",
		Short: "Apply a plan",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := x.check(args); err != nil {
				return err
			}
			plan, before, err := x.planOrJournal(args)
			if err != nil {
				return err
			}
			if err := x.Flags.Complete(canAsk(e.streams)); err != nil {
				return err
			}
			if !x.Flags.Yes {
				if err := x.print.show(e.streams, plan, view.Options{Program: e.program}); err != nil {
					return err
				}
			}
			return x.Apply(c.Context(), plan, before)
		},
	})
	x.Sources.AddClusterTo(c)
	x.Hosts.AddTo(c)
	addOutputFlags(c, &x.print.outputFlags, view.ResultFormats(), "")
	x.Flags.AddAllTo(c)
	c.Flags().StringVar(&x.resume, "resume", "", "continue the interrupted run that wrote this `JOURNAL`")
	c.Flags().IntVar(&x.MaxSteps, "max-steps", 0, "apply at most this `NUMBER` of steps; 0 sets no limit")
	flags.NoFiles(c, "max-steps")
	return c
}

// check validates the flags.
func (c *applyCommand) check(args []string) error {
	switch {
	case len(args) == 0 && c.resume == "":
		return exit.Usagef("no plan to apply: name a PLAN, or a journal to continue with --resume")
	case slices.Contains(args, "-") && !c.Flags.Yes:
		return exit.Usagef("standard input is the plan, so it cannot confirm the writes: add --yes")
	case c.MaxSteps < 0:
		return exit.Usagef("--max-steps %d is negative", c.MaxSteps)
	case c.resume != "" && c.Flags.Journal() != "":
		return exit.Usagef("--journal cannot be used with --resume, which continues its own journal")
	}
	return c.print.complete(view.PlanFormats(), "")
}

// planOrJournal returns the plan to apply and the journal to continue; the journal is nil
// for a new run. An interrupted run continues with the plan in its journal, even if the
// file has changed.
func (c *applyCommand) planOrJournal(args []string) (*repair.Plan, *journal.File, error) {
	var plan *repair.Plan
	var before *journal.File
	var err error
	if len(args) > 0 {
		c.PlanFile = args[0]
		if plan, err = readPlan(args[0], c.Streams.In); err != nil {
			return nil, nil, err
		}
	}
	switch c.resume {
	case "":
		if before, err = c.Broken(plan); err != nil {
			return nil, nil, err
		}
	default:
		if before, err = journal.Read(c.resume); err != nil {
			return nil, nil, exit.Usage(err)
		}
		switch {
		case before.Plan == nil:
			return nil, nil, exit.Usagef("%s is the journal of an undo: run \"%s repair undo %s\" again", c.resume, c.Program, before.Undoes)
		case plan != nil && !before.Of(plan):
			return nil, nil, exit.Usagef("%s is the journal of another plan", c.resume)
		}
	}
	if before != nil {
		plan = before.Plan
	}
	return plan, before, nil
}
