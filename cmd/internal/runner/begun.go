package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// journalPrefix returns the prefix of a cluster's journal names, for runs without
// --journal.
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

// directory returns the directory of journals.
func (f *Flags) directory() string {
	if f.journal == "" {
		return "."
	}
	return filepath.Dir(f.journal)
}

// Exists returns the journal of --journal if it exists: the same command then continues it.
// It is an error if the journal cannot be continued, because journals are never
// overwritten.
func (f *Flags) Exists() (*journal.File, error) {
	if _, err := os.Stat(f.journal); f.journal == "" || errors.Is(err, os.ErrNotExist) {
		return nil, nil // no journal, and no error
	}
	file, err := journal.Read(f.journal)
	if errors.Is(err, journal.ErrNotRegular) {
		return nil, exit.Usagef("--journal: %w", err)
	}
	if err != nil || !file.BrokeOff() {
		return nil, exit.Usagef("--journal %s already exists: a journal is never overwritten", f.journal)
	}
	return file, nil
}

// brokeOff returns the journals of a cluster's interrupted runs that no later run has continued, by
// start of the run. A journal may have any name, because its first line identifies it.
func (c *Runner) brokeOff(guid string) (out []*journal.File) {
	continued := map[string]bool{}
	for _, file := range c.journals(c.Flags.directory(), guid) {
		for _, name := range file.Continues {
			continued[name] = true
		}
		if file.BrokeOff() {
			out = append(out, file)
		}
	}
	return slices.DeleteFunc(out, func(f *journal.File) bool { return continued[filepath.Base(f.Path)] })
}

// journals returns the journals of a cluster in a directory.
func (c *Runner) journals(dir, guid string) (out []*journal.File) {
	entries, err := os.ReadDir(dir)
	if err != nil || guid == "" {
		return nil
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		ours := strings.HasPrefix(e.Name(), journalPrefix(guid)) && strings.HasSuffix(e.Name(), ".jsonl")
		if !ours && !journal.Is(path) {
			continue
		}
		switch file, err := journal.ReadRun(path); {
		case err != nil && ours:
			c.say("warning: a journal could not be read, so its run may have left steps half-done: %v", err)
		case err == nil && file.Cluster.GUID == guid:
			out = append(out, file)
		}
	}
	return out
}

// whole returns the journal of the newest part of a run. It names all earlier parts.
func (c *Runner) whole(file *journal.File) *journal.File {
	for again := true; again; {
		again = false
		for _, other := range c.journals(filepath.Dir(file.Path), file.Cluster.GUID) {
			if slices.Contains(other.Continues, filepath.Base(file.Path)) {
				c.say("%s continues in %s: both are one run", file.Path, other.Path)
				file, again = other, true
				break
			}
		}
	}
	return file
}

func unfinishedText(file *journal.File) string {
	what := phrase.Plural(len(file.Unfinished()), "step")
	if steps := file.Unfinished(); len(steps) == 1 {
		what = "step " + steps[0].ID
	}
	return fmt.Sprintf("a run started at %s left %s half-done", file.StartedAt.String(), what)
}

// name prints the command that finishes a journal if this run does not.
func (c *Runner) name(file *journal.File) {
	c.say("%s; finish with: %s repair apply --resume %s%s", unfinishedText(file), c.Program, phrase.Arg(file.Path), c.Sources.ClusterArguments())
}

// Broken returns the journal of an interrupted run of a plan, to be continued; nil if there
// is none. It prints a hint for journals of other plans.
func (c *Runner) Broken(plan *repair.Plan) (*journal.File, error) {
	own, err := c.Flags.Exists()
	if err != nil {
		return nil, err
	}
	if own != nil && !own.Of(plan) {
		return nil, exit.Usagef("--journal %s already exists and belongs to another plan: a journal is never overwritten", c.Flags.journal)
	}
	for _, file := range c.brokeOff(plan.Cluster.GUID) {
		switch {
		case own != nil && file.Path == filepath.Clean(own.Path):
		case own == nil && file.Of(plan):
			own = file
		case len(file.Unfinished()) > 0:
			c.name(file)
		}
	}
	if own != nil {
		c.say("an earlier run of this plan was interrupted: continuing its journal, %s", own.Path)
	}
	return own, nil
}

// FinishBegun finishes the half-done steps of earlier runs, if a request includes their
// kinds, and prints a hint for the others. It reports whether it tried any step. Their
// outcomes come first in the result of the run, which continues these runs.
func (c *Runner) FinishBegun(ctx context.Context, guid string, req repair.Request) (bool, error) {
	var files []*journal.File
	steps := 0
	for _, file := range c.brokeOff(guid) {
		half, finishes := len(file.Unfinished()) > 0, file.FinishedBy(req)
		if finishes {
			c.continues = append(c.continues, filepath.Base(file.Path))
		}
		if !half {
			continue
		}
		if !finishes {
			c.name(file)
			continue
		}
		c.say("%s (journal %s); finishing first", unfinishedText(file), file.Path)
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

// finishOne finishes the half-done steps of one run, within the consents of the present
// request.
func (c *Runner) finishOne(ctx context.Context, file *journal.File, req *repair.Request) error {
	progress := terminal.ProgressOn(c.Streams)
	defer progress.Clear()
	c.Sources.Budgets = file.Plan.Request.Evicts()
	target, err := openTarget(ctx, c.Sources, c.Hosts, file.Plan.Cluster.APIGroup, c.Streams, progress.Show)
	if err != nil {
		return err
	}
	defer target.close()
	if err := target.check(ctx, file.Unfinished(), false); err != nil {
		return err
	}
	j, err := journal.Resume(file.Path, audit.Time{Time: time.Now().UTC()})
	if errors.Is(err, journal.ErrRunning) {
		c.say("%s: that run finishes its own steps", err)
		return nil
	}
	if err != nil {
		return notWritten(err)
	}
	defer func() { _ = j.Close() }()
	if file, err = journal.Read(file.Path); err != nil { // its run may have ended in the meantime
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
	return target.end(ctx, res)
}
