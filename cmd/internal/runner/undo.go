package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// Undo shows the undoable steps, asks for confirmation, and undoes them.
func (c *Runner) Undo(ctx context.Context, file *journal.File) error {
	if _, err := os.Stat(c.Flags.journal); c.Flags.journal != "" && err == nil {
		return exit.Usagef("--journal %s exists already: a journal is never overwritten", c.Flags.journal)
	}
	file = c.whole(file)
	progress := view.ProgressOn(c.Streams)
	defer progress.Clear()
	target, err := openTarget(c.Sources, nil, file.Cluster.APIGroup, c.Streams, progress.Show)
	if err != nil {
		return err
	}
	preview, err := apply.PreviewUndo(ctx, file, target.reader)
	progress.Clear()
	switch {
	case err != nil:
		return notWritten(err)
	case preview.Count(repair.Planned) == 0:
		return errors.Join(c.finish(preview, nil), lost(file))
	}
	back, ahead := undone(preview)
	if err := errors.Join(target.check(ctx, back, true), target.check(ctx, ahead, false)); err != nil {
		return err
	}
	if !c.Flags.Yes {
		if err := c.Show(preview, view.Options{Program: c.Program}); err != nil {
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
		Workloads: pods, Pace: c.Flags.pace, Progress: c.stepProgress(progress, len(preview.Outcomes), true), Say: c.sayNow(progress),
	})
	progress.Clear()
	if err != nil {
		return notWritten(err)
	}
	return errors.Join(c.finish(res, nil), lost(file))
}

// lost is an error if a part of a run is not taken back, because its journal cannot be read.
func lost(file *journal.File) error {
	var errs []error
	for _, part := range file.Parts() {
		for _, err := range part.Lost {
			errs = append(errs, exit.Unfinished(fmt.Errorf("the run went on with another, which is not undone: %w", err)))
		}
	}
	return errors.Join(errs...)
}

// undone returns the steps to undo, and those of them that must be finished instead.
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
