package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// journalPrefix begins the names of the journals of a cluster, where --journal says
// nothing else.
func journalPrefix(guid string) string {
	if len(guid) > 8 {
		guid = guid[:8]
	}
	guid = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, guid)
	return "calico-audit-journal-" + guid + "-"
}

// directory is where journals are written.
func (f *Flags) directory() string {
	if f.journal == "" {
		return "."
	}
	return filepath.Dir(f.journal)
}

// Exists returns the journal that --journal names, if it is there already: the same
// command again goes on in it. It is an error if there is nothing to go on with, for
// no journal is ever overwritten.
func (f *Flags) Exists() (*journal.File, error) {
	if _, err := os.Stat(f.journal); f.journal == "" || errors.Is(err, os.ErrNotExist) {
		return nil, nil // no journal, and no error
	}
	file, err := journal.Read(f.journal)
	if errors.Is(err, journal.ErrNotRegular) {
		return nil, exit.Usagef("--journal: %w", err)
	}
	if err != nil || !file.BrokeOff() {
		return nil, exit.Usagef("--journal %s exists already: a journal is never overwritten", f.journal)
	}
	return file, nil
}

// halfDone returns the journals of runs on a cluster that left a step half-done, in
// the order in which the runs began.
func (c *Runner) halfDone(guid string) []*journal.File {
	entries, err := os.ReadDir(c.Flags.directory())
	if err != nil || guid == "" {
		return nil
	}
	var out []*journal.File
	for _, e := range entries {
		path := filepath.Join(c.Flags.directory(), e.Name())
		named := c.Flags.journal != "" && path == filepath.Clean(c.Flags.journal)
		if !named && (!strings.HasPrefix(e.Name(), journalPrefix(guid)) || !strings.HasSuffix(e.Name(), ".jsonl")) {
			continue
		}
		file, err := journal.Read(path)
		if err != nil {
			c.say("warning: whether a run left something half-done is not known: %v", err)
			continue
		}
		if file.Cluster.GUID == guid && len(file.Unfinished()) > 0 {
			out = append(out, file)
		}
	}
	return out
}

// FinishCommand is the command line that finishes what a journal's run left half-done.
func FinishCommand(program string, from *source.Flags, file *journal.File) string {
	return program + " repair apply --resume " + phrase.Arg(file.Path) + from.ClusterArguments()
}

func unfinishedText(file *journal.File) string {
	what := phrase.Plural(len(file.Unfinished()), "step")
	if steps := file.Unfinished(); len(steps) == 1 {
		what = "step " + steps[0].ID
	}
	return fmt.Sprintf("a run that began at %s left %s half-done", phrase.Time(file.StartedAt.Time), what)
}

// name says of a journal that is left to another command which that is.
func (c *Runner) name(file *journal.File) {
	c.say("%s; to finish it: %s", unfinishedText(file), FinishCommand(c.Program, c.Sources, file))
}

// Broken returns the journal of a run of a plan that broke off, which is gone on with;
// nil if there is none. Those of other plans are named.
func (c *Runner) Broken(plan *repair.Plan) (*journal.File, error) {
	own, err := c.Flags.Exists()
	if err != nil {
		return nil, err
	}
	if own != nil && !own.Of(plan) {
		return nil, exit.Usagef("--journal %s exists already, and is the journal of another plan: a journal is never overwritten", c.Flags.journal)
	}
	for _, file := range c.halfDone(plan.Cluster.GUID) {
		switch {
		case own != nil && file.Path == filepath.Clean(own.Path):
		case own == nil && file.Of(plan):
			own = file
		default:
			c.name(file)
		}
	}
	if own != nil {
		c.say("an earlier run of this plan was cut short: going on in its journal, %s", own.Path)
	}
	return own, nil
}

// FinishBegun finishes what earlier runs left half-done of the kinds that a request
// asks for, and names the rest. It returns whether anything was tried; the outcomes
// come first in the result of the run.
func (c *Runner) FinishBegun(ctx context.Context, guid string, req repair.Request) (bool, error) {
	var files []*journal.File
	steps := 0
	for _, file := range c.halfDone(guid) {
		if !file.FinishedBy(req) {
			c.name(file)
			continue
		}
		c.say("%s (journal %s): it is finished first", unfinishedText(file), file.Path)
		files, steps = append(files, file), steps+len(file.Unfinished())
	}
	if len(files) == 0 {
		return false, nil
	}
	if err := c.ask(ctx, stepsText(steps, "finished"), guid); err != nil {
		return false, err
	}
	for _, file := range files {
		if err := c.finishOne(ctx, file, &req); err != nil {
			return false, err
		}
	}
	return true, nil
}

// finishOne finishes what one run left half-done, as far as the consents of now go.
func (c *Runner) finishOne(ctx context.Context, file *journal.File, req *repair.Request) error {
	progress := view.ProgressOn(c.Streams)
	defer progress.Clear()
	c.Sources.Budgets = file.Plan.Request.Evicts()
	target, err := openTarget(c.Sources, c.Hosts, file.Plan.Cluster.APIGroup, c.Streams, progress.Show)
	if err != nil {
		return err
	}
	if err := target.check(ctx, file.Unfinished(), false); err != nil {
		return err
	}
	j, err := journal.Resume(file.Path, audit.Time{Time: time.Now().UTC()})
	if errors.Is(err, journal.ErrRunning) {
		c.say("%s: it is left to that run", err)
		return nil
	}
	if err != nil {
		return notWritten(err)
	}
	defer func() { _ = j.Close() }()
	if file, err = journal.Read(file.Path); err != nil { // its run may have ended meanwhile
		return notWritten(err)
	}
	writer, pods, err := target.open(j)
	if err != nil {
		return err
	}
	res, err := apply.Finish(ctx, file, target.reader, writer, j, apply.Options{
		Workloads: pods, EvictTimeout: c.Flags.evict, Pace: c.Flags.pace, Wait: c.Flags.wait, Waiting: c.waiting(progress), Say: c.sayNow(progress), Consents: req,
	})
	if err != nil {
		return notWritten(err)
	}
	c.finished = append(c.finished, res.Outcomes...)
	return nil
}
