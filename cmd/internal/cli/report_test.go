package cli

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/files"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
)

// scriptedReader is a running cluster with given readings.
type scriptedReader struct {
	first, second *blocks.Snapshot
	err           error
	// asked are the resources of the second reading.
	asked []blocks.Resource
}

func (r *scriptedReader) Read(context.Context) (*blocks.Snapshot, error) { return r.first, nil }

func (r *scriptedReader) Reread(_ context.Context, _ *blocks.Snapshot, rs []blocks.Resource) (*blocks.Snapshot, error) {
	r.asked = rs
	return r.second, r.err
}

// forgottenReader is a running cluster that checks at the second reading whether the first
// one is still in memory.
type forgottenReader struct {
	t    *testing.T
	read weak.Pointer[blocks.Block]
	// held is true if the blocks were. others counts the other objects.
	held   bool
	others int
}

func (r *forgottenReader) Read(context.Context) (*blocks.Snapshot, error) {
	s := liveStory(r.t)
	r.read = weak.Make(&s.Blocks[0])
	return s, nil
}

func (r *forgottenReader) Reread(_ context.Context, rest *blocks.Snapshot, rs []blocks.Resource) (*blocks.Snapshot, error) {
	runtime.GC()
	r.held, r.others = r.read.Value() != nil, len(rest.Blocks)+len(rest.Workloads)
	if !slices.Contains(rs, blocks.Blocks) || !slices.Contains(rs, blocks.Pods) {
		r.t.Errorf("the second reading is of %v", rs)
	}
	return liveStory(r.t), nil
}

// TestSecondReadingAlone: the resources of two readings are never in memory at the same
// time.
func TestSecondReadingAlone(t *testing.T) {
	r := &forgottenReader{t: t}
	if _, rep, _ := runReport(t, r); len(rep.Findings) == 0 || r.held || r.others > 0 {
		t.Errorf("%d findings; the first reading's blocks are held: %t, and %d objects handed on", len(rep.Findings), r.held, r.others)
	}
	s := &forgottenReader{t: t}
	if _, _, err := awaitStable(t.Context(), s, terminal.NewProgress(nil)); err != nil || s.held || s.others > 0 {
		t.Errorf("snapshot: %v; the first reading's blocks are held: %t, and %d objects handed on", err, s.held, s.others)
	}
}

// liveStory is the story's example, as if just read from a running cluster.
func liveStory(t *testing.T) *blocks.Snapshot {
	t.Helper()
	s, err := files.ReadFiles([]string{filepath.Join("..", "..", "..", "examples", "snapshots", "story")}, files.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Cluster.Datastore, s.Cluster.Live = "kubernetes", true
	return s
}

// runReport makes a report from a reader. It returns the exit code, the report, and
// standard error.
func runReport(t *testing.T, r source.Reader) (int, *audit.Report, string) {
	t.Helper()
	streams, out, errOut := testStreams()
	c := &reportCommand{
		hosts: &source.HostFlags{},
		env:   env{streams, "calico-audit"}, grace: graceFlag{state.DefaultGrace}, check: checkFlag{checks: checks.All},
		fail: failFlag{severity: state.Critical}, reader: r, progress: terminal.NewProgress(nil),
	}
	c.sources.AddTo(newReport(c.env))
	code := execute(t.Context(), streams, func() error {
		var err error
		if c.outputs, err = parseOutputs(reportFormats, &outputFlags{[]string{"json"}, terminal.ColorAuto}, places{}); err != nil {
			return err
		}
		return c.run(t.Context())
	})
	rep := new(audit.Report)
	if err := json.Unmarshal(out.Bytes(), rep); err != nil {
		t.Fatalf("reading the report: %v\n%s\n%s", err, out, errOut)
	}
	return code, rep, errOut.String()
}

// TestConfirmed: severe findings about a running cluster are read twice.
func TestConfirmed(t *testing.T) {
	r := &scriptedReader{first: liveStory(t), second: liveStory(t)}
	code, rep, _ := runReport(t, r)
	if code != exit.CodeFindings || rep.Summary.Critical != 1 || !rep.Complete {
		t.Errorf("ended with %d, %d critical findings, complete: %v; want 1, 1, true", code, rep.Summary.Critical, rep.Complete)
	}
	if len(r.asked) == 0 {
		t.Error("nothing was read a second time")
	}
}

// TestNotConfirmed: findings that the second reading does not show are not reported.
func TestNotConfirmed(t *testing.T) {
	second := liveStory(t)
	second.Blocks = second.Blocks[:1] // since the first reading blocks were released
	code, rep, _ := runReport(t, &scriptedReader{first: liveStory(t), second: second})
	if code != exit.CodeOK || rep.Summary.Critical != 0 {
		t.Errorf("ended with %d and %d critical findings, want 0 and 0", code, rep.Summary.Critical)
	}
}

// TestSecondReadingFails: the report withholds unconfirmed findings, names them, and is
// incomplete.
func TestSecondReadingFails(t *testing.T) {
	code, rep, errOut := runReport(t, &scriptedReader{first: liveStory(t), err: errors.New("connection refused")})
	if code != exit.CodeUnread || rep.Complete {
		t.Errorf("ended with %d, complete: %v; want 3, false", code, rep.Complete)
	}
	if rep.Summary.Critical+rep.Summary.Error != 0 {
		t.Errorf("the report holds %d critical findings and %d errors that nothing confirmed", rep.Summary.Critical, rep.Summary.Error)
	}
	if rep.Summary.Warning == 0 {
		t.Error("the warnings, which need no second reading, are gone")
	}
	skipped := false
	for _, s := range rep.SkippedChecks {
		skipped = skipped || s.Check == "pool/no-free-blocks" && strings.Contains(s.Reason, "withheld")
	}
	if !skipped {
		t.Errorf("the skipped checks do not say that pool/no-free-blocks was withheld: %v", rep.SkippedChecks)
	}
	if len(rep.Gaps) == 0 || !strings.Contains(rep.Gaps[0].Reason, "connection refused") || !strings.Contains(errOut, "connection refused") {
		t.Errorf("neither gaps nor standard error tell the cause: %v, %q", rep.Gaps, errOut)
	}
}
