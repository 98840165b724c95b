package cli

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/files"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
)

// changingReader returns a series of readings, and ends the run with the last.
type changingReader struct {
	readings []func() (*blocks.Snapshot, error)
	end      context.CancelFunc
}

func (r *changingReader) Read(context.Context) (*blocks.Snapshot, error) {
	next := r.readings[0]
	if r.readings = r.readings[1:]; len(r.readings) == 0 {
		r.end()
	}
	return next()
}

func (r *changingReader) Reread(context.Context, *blocks.Snapshot, []blocks.Resource) (*blocks.Snapshot, error) {
	return nil, errors.New("files do not change")
}

// TestWatch: the report is printed once, then its changes. Unchanged findings and
// continuing errors are not repeated. An interrupt is the normal end.
func TestWatch(t *testing.T) {
	example := func(name string) func() (*blocks.Snapshot, error) {
		return func() (*blocks.Snapshot, error) {
			return files.ReadFiles([]string{filepath.Join("..", "..", "..", "examples", "snapshots", name)}, files.FileOptions{})
		}
	}
	down := func() (*blocks.Snapshot, error) { return nil, exit.Unread(errors.New("connection refused")) }
	ctx, cancel := context.WithCancel(t.Context())
	streams, out, errOut := testStreams()
	c := &reportCommand{
		hosts: &source.HostFlags{},
		env:   env{streams, "calico-audit"}, grace: graceFlag{state.DefaultGrace}, check: checkFlag{checks: checks.All}, progress: terminal.NewProgress(nil),
		reader: &changingReader{readings: []func() (*blocks.Snapshot, error){example("story"), example("story"), down, down, example("story-drained"), example("story-drained")}, end: cancel},
		every:  time.Millisecond,
	}
	c.sources.AddTo(newReport(c.env))
	code := execute(ctx, streams, func() error {
		var err error
		if c.outputs, err = parseOutputs(reportFormats, &outputFlags{[]string{"table"}, terminal.ColorNever}, places{}); err != nil {
			return err
		}
		return c.run(ctx)
	})
	if code != exit.CodeOK {
		t.Errorf("ended with %d: %s", code, errOut)
	}
	for text, want := range map[string]int{"Audited: ": 1, "\nNEW (2)\n": 1, "10.64.75.0/26 of old-2 holds no allocation": 1, "new, 1 fixed, 15 unchanged\n": 1} {
		if got := strings.Count(out.String(), text); got != want {
			t.Errorf("%q is printed %d times, want %d, in:\n%s", text, got, want, out)
		}
	}
	if got := errOut.String(); got != "warning: reading again: connection refused\n" {
		t.Errorf("standard error is %q", got)
	}
}
