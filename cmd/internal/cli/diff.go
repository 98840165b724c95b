package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks/files"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/cmd/internal/view/page"
)

// diffCommand is the diff command with its flags.
type diffCommand struct {
	streams genericiooptions.IOStreams
	program string

	output outputFlags
	failOn string
	checks []string
	grace  time.Duration
}

// diffRun is what the flags of a comparison come to.
type diffRun struct {
	outputs  outputs[*audit.Diff]
	failOn   state.Severity
	checks   []*audit.Check
	progress *view.ProgressLine
}

func newDiff(program string, streams genericiooptions.IOStreams) *cobra.Command {
	d := &diffCommand{program: program, streams: streams}
	c := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Findings new, fixed and unchanged between two reports or snapshots",
		Long: `Compare two reports, or what two snapshots or dumps hold, finding by finding: which
are new, which are fixed, which have another severity, and which are as they were.

OLD and NEW are each a report that "report -o json" or "-o yaml" wrote, or a file or
directory as "report -f" reads it, which is audited first, both with the same options.
"-" is standard input. They need not be of the same sort.

A finding is the same if its check and what it is about are the same, whatever its
severity and message. One that NEW does not have is called fixed only if NEW could have
it: where NEW is incomplete, was narrowed to other checks, pools or nodes, or skipped
the check, the finding is "not judged"; where NEW mutes it, it is "muted".

Exit codes: 0 it ran; 1 under --fail-on, a finding at or above that severity is new, or
has risen to it; 2 the command line makes no sense, or a file cannot be read; 3 OLD or
NEW is incomplete (what can be told is printed all the same); 5 a failure inside the
program.`,
		Example: strings.ReplaceAll(`  # What did the change do?
  PROGRAM snapshot -o before.yaml
  PROGRAM snapshot -o after.yaml
  PROGRAM diff before.yaml after.yaml

  # For a pipeline: fail on what was not there before
  PROGRAM report -o json | PROGRAM diff yesterday.json - --fail-on error`, "PROGRAM", program),
		Args: cobra.ExactArgs(2),
	}
	fs := c.Flags()
	addOutputFlags(c, &d.output, view.DiffFormats(), "the severities ")
	addFailOn(c, &d.failOn, "a finding at or above this `SEVERITY` is new")
	fs.StringSliceVar(&d.checks, "check", nil, "compare only the check, or group of checks, of this `ID`, such as ip/borrowed or pool; repeatable, or joined by commas")
	fs.DurationVar(&d.grace, "grace", state.DefaultGrace, "how long a state must have held before it counts as lasting; of no effect on reports")
	_ = c.RegisterFlagCompletionFunc("check", completeChecks)
	_ = c.RegisterFlagCompletionFunc("grace", cobra.NoFileCompletions)
	c.RunE = run(func(c *cobra.Command, args []string) error {
		r, err := d.complete(args)
		if err != nil {
			return err
		}
		return d.run(c.Context(), r, args[0], args[1])
	})
	return c
}

// complete checks the flags. All its errors are errors of usage, found before
// anything is read.
func (d *diffCommand) complete(args []string) (*diffRun, error) {
	r := &diffRun{progress: view.NewProgressLine(nil)}
	if args[0] == "-" && args[1] == "-" {
		return nil, usagef("OLD and NEW are both standard input")
	}
	var err error
	if r.failOn, err = parseFailOn(d.failOn); err != nil {
		return nil, err
	}
	if d.grace < 0 {
		return nil, usagef("--grace %s is negative", d.grace)
	}
	if r.checks, err = checks.All.Select(d.checks); err != nil {
		return nil, usageError(err)
	}
	r.progress = progressLine(d.streams)
	r.outputs, err = parseOutputs(view.DiffFormats(), &d.output, places{})
	return r, err
}

// run reads both sides, compares and prints.
func (d *diffCommand) run(ctx context.Context, r *diffRun, from, to string) error {
	reports := make([]*audit.Report, 2)
	for i, path := range []string{from, to} {
		var err error
		reports[i], err = d.side(ctx, r, path)
		r.progress.Clear()
		if err != nil {
			return err
		}
	}
	before, after := reports[0], reports[1]
	if a, b := before.Cluster.GUID, after.Cluster.GUID; a != b && a != "" && b != "" {
		say(d.streams, "warning: these are two clusters: %s is of %s, and %s of %s", from, a, to, b)
	}
	compared := audit.Compare(before, after)
	compared.Old.Source, compared.New.Source = sideName(from), sideName(to)
	errs := []error{r.outputs.write(d.streams, "comparison", compared, func(toStdout bool) view.Options {
		return d.output.display(view.Options{Program: d.program}, d.streams, toStdout)
	})}
	if !before.Complete {
		errs = append(errs, unreadError(fmt.Errorf("%w; what is new may be older than it looks", incomplete("old report", before.Gaps))))
	}
	if !after.Complete {
		errs = append(errs, unreadError(incomplete("new report", after.Gaps)))
	}
	if r.failOn != 0 && compared.AtOrAbove(r.failOn) {
		errs = append(errs, findingsError(fmt.Errorf("there are new findings at or above --fail-on %s", r.failOn)))
	}
	return together(errs...)
}

func sideName(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}

// side returns the report of one side: as it was written, or made of a snapshot.
func (d *diffCommand) side(ctx context.Context, r *diffRun, path string) (*audit.Report, error) {
	if path == "-" {
		kept, remove, err := keepInput(d.streams.In)
		if err != nil {
			return nil, err
		}
		defer remove()
		path = kept
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, usagef("reading files: %w", err)
	}
	if !info.IsDir() {
		text, head, done, err := openText(path, nil)
		if err != nil {
			return nil, usagef("reading %s: %w", path, err)
		}
		defer done()
		if page.Is(head) || isReport(identity(head)) {
			rep, err := decodeReport(path, text)
			if err == nil {
				d.narrow(rep, r.checks)
			}
			return rep, err
		}
	}
	files := &fileReader{paths: []string{path}, opts: files.FileOptions{Warn: func(text string) { say(d.streams, "warning: %s: %s", path, text) }}}
	j, err := judge(ctx, files, r.checks, d.grace, r.progress)
	if err != nil {
		return nil, err
	}
	return j.report(), nil
}

// narrow leaves out of a report the findings of checks that were not asked for.
func (d *diffCommand) narrow(r *audit.Report, checks []*audit.Check) {
	if len(d.checks) == 0 {
		return
	}
	r.Keep(checks)
}

// keepInput saves standard input to a temporary file, which can be read twice.
func keepInput(in io.Reader) (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "calico-audit-diff-")
	if err != nil {
		return "", nil, usagef("reading standard input: %w", err)
	}
	remove = func() { _ = os.RemoveAll(dir) }
	path = filepath.Join(dir, "standard-input")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = io.Copy(file, in)
		if e := file.Close(); err == nil {
			err = e
		}
	}
	if err != nil {
		remove()
		return "", nil, usagef("reading standard input: %w", err)
	}
	return path, remove, nil
}
