package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/blocks/files"
	"github.com/calico-audit/calico-audit/cmd/internal/document"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
	"github.com/calico-audit/calico-audit/cmd/internal/view/page"
)

// evaluation is the state of a source with the results of checks.
type evaluation struct {
	state  *state.State
	result *audit.Result
}

// evaluate reads a source and runs checks. Findings that need confirmation are read a
// second time; if that fails, they are withheld.
func evaluate(ctx context.Context, from source.Reader, checks []*audit.Check, grace graceFlag, progress *terminal.Progress) (*evaluation, error) {
	snapshot, err := from.Read(ctx)
	if err != nil {
		return nil, err
	}
	opts := grace.options()
	progress.Show("checking")
	st := state.New(snapshot, opts)
	result := audit.Run(st, checks)
	again := result.NeedsConfirmation()
	if len(again) == 0 {
		return &evaluation{st, result}, nil
	}
	snapshot = decode.Without(snapshot, again)
	second, failed := rereadAlone(ctx, from, snapshot, again)
	if ctx.Err() != nil {
		return nil, exit.Unread(ctx.Err())
	}
	if failed != nil { // the first snapshot is no longer complete: read everything again
		if second, err = from.Read(ctx); err != nil {
			return nil, err
		}
		st = state.New(second, opts)
		return &evaluation{st, audit.Run(st, checks).Unconfirmed(failed)}, nil
	}
	st = state.New(second, opts)
	return &evaluation{st, audit.Confirm(result, audit.Run(st, checks))}, nil
}

// rereadAlone reads resources again into rest, the previous snapshot without them
// ([decode.Without]). The caller must not keep the previous snapshot or its State: for
// 5,000 nodes each takes about 150 MB.
func rereadAlone(ctx context.Context, from source.Reader, rest *blocks.Snapshot, again []blocks.Resource) (*blocks.Snapshot, error) {
	runtime.GC() // otherwise the heap doubles before the next collection
	return from.Reread(ctx, rest, again)
}

func (j *evaluation) report() *audit.Report { return audit.NewReport(j.state, j.result) }

// reportOf returns the report in a file, or makes one from a snapshot. A pipe, such as the
// output of a command, is first copied to a temporary file. Errors contain the given name.
func (e env) reportOf(ctx context.Context, name, path string, check checkFlag, grace graceFlag, progress *terminal.Progress) (*audit.Report, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, exit.Usagef("reading files: %w", err)
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		pipe, err := os.Open(path)
		if err != nil {
			return nil, exit.Usagef("reading files: %w", err)
		}
		kept, remove, err := keepInput(name, pipe)
		_ = pipe.Close()
		if err != nil {
			return nil, err
		}
		defer remove()
		path = kept
	}
	if !info.IsDir() {
		text, head, done, err := document.Open(path, nil)
		if err != nil {
			return nil, exit.Usagef("reading %s: %w", name, err)
		}
		defer done()
		if version, kind := document.Identity(head); page.Is(head) || document.IsReport(version, kind) || document.IsOurs(version, kind) {
			r, err := document.ReportOf(name, head, text)
			if err != nil {
				return nil, exit.Usage(err)
			}
			check.keep(r)
			return r, nil
		}
	}
	files := &source.Files{Paths: []string{path}, Opts: files.FileOptions{Warn: func(text string) { say(e.streams, "warning: %s: %s", name, text) }}}
	j, err := evaluate(ctx, files, check.checks, grace, progress)
	if err != nil {
		return nil, err
	}
	return j.report(), nil
}

// incomplete returns an error for an incomplete output, with the kinds that the account may not
// list, or the first gap.
func incomplete(what string, gaps []blocks.Gap) error {
	gaps = blocks.Untolerated(gaps)
	var denied []string
	for _, g := range gaps {
		switch {
		case !g.Denied:
		case g.Resource == blocks.Blocks: // what matters most comes first
			denied = slices.Insert(denied, 0, string(g.Resource))
		default:
			denied = append(denied, string(g.Resource))
		}
	}
	switch n := len(gaps); {
	case n == 0:
		return fmt.Errorf("the %s is incomplete", what)
	case n == 1:
		return fmt.Errorf("the %s is incomplete: %s", what, gaps[0])
	case len(denied) > 1:
		return fmt.Errorf("the %s is incomplete: this account may not list %s, as the ClusterRole in examples/kubernetes/rbac may", what, strings.Join(denied, ", "))
	default:
		return fmt.Errorf("the %s is incomplete; the first of its %d gaps is: %s", what, n, gaps[0])
	}
}

// keepInput copies input that can only be read once to a temporary file. Errors contain the
// given name.
func keepInput(name string, in io.Reader) (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "calico-audit-diff-")
	if err != nil {
		return "", nil, exit.Usagef("reading %s: %w", name, err)
	}
	remove = func() { _ = os.RemoveAll(dir) }
	path = filepath.Join(dir, "standard-input")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = io.Copy(file, in)
		err = cmp.Or(err, file.Close())
	}
	if err != nil {
		remove()
		return "", nil, exit.Usagef("reading %s: %w", name, err)
	}
	return path, remove, nil
}
