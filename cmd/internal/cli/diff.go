package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

type diffCommand struct {
	env
	fail  failFlag
	check checkFlag
	grace graceFlag

	output   outputFlags
	outputs  outputs[*audit.Diff]
	progress *terminal.Progress
}

func newDiff(e env) *cobra.Command {
	d := &diffCommand{env: e}
	c := e.command(&cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Compare the findings of two reports or snapshots",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := d.complete(args); err != nil {
				return err
			}
			return d.run(c.Context(), args[0], args[1])
		},
	})
	addOutputFlags(c, &d.output, view.DiffFormats(), "the severities ")
	d.fail.addFlag(c, "a finding at or above this `SEVERITY` is new or has risen to it")
	d.check.addFlag(c, "compare")
	d.grace.addFlag(c, "time that a state must last before it counts; ignored for reports")
	return c
}

// complete validates the flags, before anything is read. All its errors are usage errors.
func (d *diffCommand) complete(args []string) (err error) {
	if args[0] == "-" && args[1] == "-" {
		return exit.Usagef("OLD and NEW are both standard input")
	}
	if err := cmp.Or(d.fail.parse(), d.grace.check(), d.check.parse()); err != nil {
		return err
	}
	d.progress = terminal.ProgressOn(d.streams)
	d.outputs, err = parseOutputs(view.DiffFormats(), &d.output, places{})
	return err
}

func (d *diffCommand) run(ctx context.Context, from, to string) error {
	reports := make([]*audit.Report, 2)
	for i, path := range []string{from, to} {
		var err error
		reports[i], err = d.side(ctx, path)
		d.progress.Clear()
		if err != nil {
			return err
		}
	}
	before, after := reports[0], reports[1]
	if a, b := before.Cluster.GUID, after.Cluster.GUID; a != b && a != "" && b != "" {
		say(d.streams, "warning: OLD and NEW are different clusters: %s is %s, %s is %s", from, a, to, b)
	}
	compared := audit.Compare(before, after)
	compared.Old.Source, compared.New.Source = sideName(from), sideName(to)
	errs := []error{d.outputs.write(d.streams, "comparison", compared, func(toStdout bool) view.Options {
		return d.output.display(view.Options{Program: d.program}, d.streams, toStdout)
	})}
	if !before.Complete {
		errs = append(errs, exit.Unread(fmt.Errorf("%w; findings reported as new may be old", incomplete("old report", before.Gaps))))
	}
	if !after.Complete {
		errs = append(errs, exit.Unread(incomplete("new report", after.Gaps)))
	}
	if sev := d.fail.severity; sev != 0 && compared.AtOrAbove(sev) {
		errs = append(errs, exit.Findings(fmt.Errorf("there are new findings at or above --fail-on %s", sev)))
	}
	return errors.Join(errs...)
}

func sideName(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}

// side returns the report of one side, which is a report or a snapshot.
func (d *diffCommand) side(ctx context.Context, path string) (*audit.Report, error) {
	name := sideName(path)
	if path == "-" {
		kept, remove, err := keepInput(name, d.streams.In)
		if err != nil {
			return nil, err
		}
		defer remove()
		path = kept
	}
	return d.reportOf(ctx, name, path, d.check, d.grace, d.progress)
}
