package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/journal"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// Undo shows the undoable steps, asks for confirmation, and undoes them.
func (c *Runner) Undo(ctx context.Context, file *journal.File) error {
	if _, err := os.Stat(c.Flags.journal); c.Flags.journal != "" && err == nil {
		return exit.Usagef("--journal %s already exists: a journal is never overwritten", c.Flags.journal)
	}
	return c.undo(ctx, c.whole(file))
}

func (c *Runner) undo(ctx context.Context, file *journal.File) error {
	progress := terminal.ProgressOn(c.Streams)
	defer progress.Clear()
	target, err := openTarget(ctx, c.Sources, nil, file.Cluster.APIGroup, c.Streams, progress.Show)
	if err != nil {
		return err
	}
	defer target.close()
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
	return errors.Join(target.end(ctx, res), c.finish(res, nil), lost(file))
}

// UndoLeft undoes interrupted runs. It uses their journals if these are in the working directory.
// Otherwise it removes the reservations and cordons that it finds in the cluster. It names the
// leftovers that it cannot undo.
func (c *Runner) UndoLeft(ctx context.Context) error {
	now, err := c.look(ctx)
	if err != nil {
		return err
	}
	guid := now.Cluster.GUID
	done := map[string]bool{}
	var errs []error
	for _, file := range slices.Backward(c.brokeOff(guid)) {
		if file = c.whole(file); file.Running() || done[file.Path] {
			continue
		}
		done[file.Path] = true
		target, err := openTarget(ctx, c.Sources, nil, file.Cluster.APIGroup, c.Streams, func(string) {})
		if err != nil {
			return err
		}
		preview, err := apply.PreviewUndo(ctx, file, target.reader)
		target.close()
		if err != nil {
			return notWritten(err)
		}
		if preview.Count(repair.Planned) > 0 {
			c.say("undoing the run of %s", file.Path)
			if err := c.Undo(ctx, file); err != nil {
				errs = append(errs, err)
			}
		}
	}
	if now, err = c.look(ctx); err != nil {
		return errors.Join(append(errs, err)...)
	}
	st := state.New(now, state.Options{})
	plan := planner.Build(st, repair.Request{Consolidate: true})
	plan.Steps = slices.DeleteFunc(plan.Steps, func(s repair.Step) bool { return !planner.Stands(&s, st) })
	if len(plan.Steps) > 0 {
		file := &journal.File{Header: journal.Header{Cluster: plan.Cluster, Plan: plan}}
		if err := c.undo(ctx, file); err != nil {
			errs = append(errs, err)
		}
	} else if len(errs) == 0 && len(done) == 0 {
		c.say("no run left a reservation or a cordon, and this directory has no journal of an interrupted run")
	}
	if now, err = c.look(ctx); err == nil {
		if left := planner.LeftHalfDone(state.New(now, state.Options{})); len(left) > 0 {
			err = exit.Unfinished(fmt.Errorf("a run whose journal is not in this directory left %s; name its journal, or see \"%s report\"", phrase.List(left), c.Program))
		}
	}
	return errors.Join(append(errs, err)...)
}

// look reads the cluster.
func (c *Runner) look(ctx context.Context) (*blocks.Snapshot, error) {
	progress := terminal.ProgressOn(c.Streams)
	defer progress.Clear()
	c.Sources.Budgets = true
	from, err := c.Sources.OpenWith(new(source.HostFlags), c.Streams, progress.Show)
	if err != nil {
		return nil, err
	}
	return from.Read(ctx)
}

// lost returns an error if a part of a run is not undone because its journal cannot be read.
func lost(file *journal.File) error {
	var errs []error
	for _, part := range file.Parts() {
		for _, err := range part.Lost {
			errs = append(errs, exit.Unfinished(fmt.Errorf("another run continued this one, and is not undone: %w", err)))
		}
	}
	return errors.Join(errs...)
}

// undone returns the steps to undo, and those that must be finished instead.
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
