package cli

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/journal"
)

func newRepairUndo(e env) *cobra.Command {
	x := &carrier{env: e, sources: new(source.Flags), flags: new(carryFlags), print: new(planOutputs)}
	c := e.command(&cobra.Command{
		Use:   "undo JOURNAL",
		Short: "Undo what a journal says was written",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			file, err := journal.Read(args[0])
			if err != nil {
				return exit.Usage(err)
			}
			if err := exit.Together(x.print.complete(""), x.flags.complete(x.streams)); err != nil {
				return err
			}
			if _, err := os.Stat(x.flags.journal); x.flags.journal != "" && err == nil {
				return exit.Usagef("--journal %s exists already: a journal is never overwritten", x.flags.journal)
			}
			return x.undo(c.Context(), file)
		},
	})
	x.sources.AddClusterTo(c)
	x.print.addFlags(c, view.PlanFormats())
	x.flags.addFlags(c, "write this undo's own journal to this new `FILE`")
	return c
}

// undo shows what can be taken back, asks, and takes it back.
func (c *carrier) undo(ctx context.Context, file *journal.File) error {
	progress := view.ProgressOn(c.streams)
	defer progress.Clear()
	target, err := openTarget(c.sources, nil, file.Cluster.APIGroup, c.streams, progress.Show)
	if err != nil {
		return err
	}
	preview, err := apply.PreviewUndo(ctx, file, target.reader)
	progress.Clear()
	switch {
	case err != nil:
		return notWritten(err)
	case preview.Count(repair.Planned) == 0:
		return c.finish(preview, nil)
	}
	back, ahead := undone(preview)
	if err := exit.Together(target.check(ctx, back, true), target.check(ctx, ahead, false)); err != nil {
		return err
	}
	if !c.flags.yes {
		shown, streams := c.shown()
		if err := shown.result(streams, preview, view.Options{Program: c.program}); err != nil {
			return err
		}
	}
	if err := c.ask(ctx, stepsText(preview.Count(repair.Planned), "undone"), preview.Cluster.GUID); err != nil {
		return err
	}
	journal, err := c.createJournal(journal.Header{StartedAt: audit.Time{Time: time.Now().UTC()}, Cluster: preview.Cluster, Undoes: file.Path})
	if err != nil {
		return err
	}
	defer func() { _ = journal.Close() }()
	writer, pods, err := target.open(journal)
	if err != nil {
		return err
	}
	res, err := apply.Undo(ctx, file, target.reader, writer, journal, apply.Options{
		Workloads: pods, Pace: c.flags.pace, Progress: c.stepProgress(progress, len(preview.Outcomes), true), Say: c.sayNow(progress),
	})
	progress.Clear()
	if err != nil {
		return notWritten(err)
	}
	return c.finish(res, nil)
}

// undone returns the steps that would be taken back, and those that would be finished
// because they cannot be.
func undone(preview *repair.Result) (back, ahead []repair.Step) {
	for i := range preview.Outcomes {
		o := &preview.Outcomes[i]
		if o.Status != repair.Planned {
			continue
		}
		back = append(back, o.Step)
		if o.Code == repair.CodeFinished {
			ahead = append(ahead, o.Step)
		}
	}
	return back, ahead
}
