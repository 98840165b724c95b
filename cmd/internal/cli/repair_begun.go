package cli

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
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// The functions of this file find runs that broke off in mid-step, by the journals
// that they left, and finish what they began.

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
func (f *carryFlags) directory() string {
	if f.journal == "" {
		return "."
	}
	return filepath.Dir(f.journal)
}

// exists returns the journal that --journal names, if it is there already: the same
// command again goes on in it. It is an error if there is nothing to go on with, for
// no journal is ever overwritten.
func (f *carryFlags) exists() (*journal.File, error) {
	if _, err := os.Stat(f.journal); f.journal == "" || errors.Is(err, os.ErrNotExist) {
		return nil, nil // no journal, and no error
	}
	file, err := journal.Read(f.journal)
	if err != nil || !file.BrokeOff() {
		return nil, exit.Usagef("--journal %s exists already: a journal is never overwritten", f.journal)
	}
	return file, nil
}

// halfDone returns the journals of runs on a cluster that left a step half-done, in
// the order in which the runs began.
func (c *carrier) halfDone(guid string) []*journal.File {
	entries, err := os.ReadDir(c.flags.directory())
	if err != nil || guid == "" {
		return nil
	}
	var out []*journal.File
	for _, e := range entries {
		path := filepath.Join(c.flags.directory(), e.Name())
		named := c.flags.journal != "" && path == filepath.Clean(c.flags.journal)
		if !named && (!strings.HasPrefix(e.Name(), journalPrefix(guid)) || !strings.HasSuffix(e.Name(), ".jsonl")) {
			continue
		}
		file, err := journal.Read(path)
		if err != nil {
			say(c.streams, "warning: whether a run left something half-done is not known: %v", err)
			continue
		}
		if file.Cluster.GUID == guid && len(file.Unfinished()) > 0 {
			out = append(out, file)
		}
	}
	return out
}

// finishCommand is the command line that finishes what a journal's run left half-done.
func (c *carrier) finishCommand(file *journal.File) string {
	return c.program + " repair apply --resume " + phrase.Arg(file.Path) + c.sources.ClusterArguments()
}

func unfinishedText(file *journal.File) string {
	steps := file.Unfinished()
	if len(steps) == 1 {
		return fmt.Sprintf("a run that began at %s left step %s half-done", phrase.Time(file.StartedAt.Time), steps[0].ID)
	}
	return fmt.Sprintf("a run that began at %s left %d steps half-done", phrase.Time(file.StartedAt.Time), len(steps))
}

// name says of a journal that is left to another command which that is.
func (c *carrier) name(file *journal.File) {
	say(c.streams, "%s; to finish it: %s", unfinishedText(file), c.finishCommand(file))
}

// broken returns the journal of a run of a plan that broke off, which is gone on with;
// nil if there is none. Those of other plans are named.
func (c *carrier) broken(plan *repair.Plan) (*journal.File, error) {
	own, err := c.flags.exists()
	if err != nil {
		return nil, err
	}
	if own != nil && !own.Of(plan) {
		return nil, exit.Usagef("--journal %s exists already, and is the journal of another plan: a journal is never overwritten", c.flags.journal)
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
		say(c.streams, "an earlier run of this plan was cut short: going on in its journal, %s", own.Path)
	}
	return own, nil
}

// finishBegun finishes what earlier runs left half-done of the kinds that a request
// asks for, and names the rest. It returns whether anything was tried; the outcomes
// come first in the result of the run.
func (c *carrier) finishBegun(ctx context.Context, guid string, req repair.Request) (bool, error) {
	var files []*journal.File
	steps := 0
	for _, file := range c.halfDone(guid) {
		if !file.FinishedBy(req) {
			c.name(file)
			continue
		}
		say(c.streams, "%s (journal %s): it is finished first", unfinishedText(file), file.Path)
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
func (c *carrier) finishOne(ctx context.Context, file *journal.File, req *repair.Request) error {
	progress := view.ProgressOn(c.streams)
	defer progress.Clear()
	c.sources.Budgets = file.Plan.Request.Evicts()
	target, err := openTarget(c.sources, c.hosts, file.Plan.Cluster.APIGroup, c.streams, progress.Show)
	if err != nil {
		return err
	}
	if err := target.check(ctx, file.Unfinished(), false); err != nil {
		return err
	}
	j, err := journal.Resume(file.Path, audit.Time{Time: time.Now().UTC()})
	if errors.Is(err, journal.ErrRunning) {
		say(c.streams, "%s: it is left to that run", err)
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
		Workloads: pods, EvictTimeout: c.flags.evict, Pace: c.flags.pace, Wait: c.flags.wait, Waiting: c.waiting(progress), Say: c.sayNow(progress), Consents: req,
	})
	if err != nil {
		return notWritten(err)
	}
	c.finished = append(c.finished, res.Outcomes...)
	return nil
}
