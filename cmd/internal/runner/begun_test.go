package runner

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// TestAsksFirst: nothing is written before a question that names the cluster is answered.
// --yes skips the question.
func TestAsksFirst(t *testing.T) {
	var asked string
	x := &Runner{Sources: &source.Flags{Files: []string{"x"}}, Flags: new(Flags), Ask: func(_ context.Context, what string) error {
		asked = what
		return errors.New("no")
	}}
	if err := x.ask(t.Context(), stepsText(2, "applied"), "5ca1ab1e"); err == nil || asked != "2 steps to be applied on the cluster of x (GUID 5ca1ab1e)." {
		t.Errorf("it asks %q: %v", asked, err)
	}
	x.Flags.Yes, asked = true, ""
	if err := x.ask(t.Context(), "x", "y"); err != nil || asked != "" {
		t.Errorf("--yes asks all the same: %v, %q", err, asked)
	}
}

// left returns a plan with one step, and writes the journal of a run that died in that step
// or ended.
func left(t *testing.T, path, guid string, kind repair.Kind, ended bool) *repair.Plan {
	t.Helper()
	cluster := audit.ReportCluster{GUID: guid}
	plan := &repair.Plan{APIVersion: audit.APIVersion, Kind: repair.PlanKind, Cluster: cluster, CreatedAt: audit.Time{Time: time.Unix(1767225600, 0).UTC()},
		Steps: []repair.Step{{ID: string(kind) + ":x", Kind: kind}}}
	j, err := journal.Create(path, journal.Header{StartedAt: plan.CreatedAt, Cluster: cluster, Plan: plan})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	step := plan.Steps[0]
	errs := []error{j.Start(step.ID), j.Record(repair.Change{Verb: repair.VerbPatch, Resource: blocks.Blocks, Name: "x", Before: []byte("{}")})}
	if ended {
		errs = append(errs, j.End(repair.Outcome{Step: step, Status: repair.Done}))
	}
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return plan
}

// TestBrokenJournals: of the journals in the directory, the interrupted run of the same
// plan is continued. Runs of other plans of the cluster are named with the command that
// finishes them. All other journals are ignored.
func TestBrokenJournals(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	plan := left(t, "calico-audit-journal-5ca1ab1e-1.jsonl", "5ca1ab1e-0000", repair.ReleaseBlock, false)
	left(t, "calico-audit-journal-5ca1ab1e-2.jsonl", "5ca1ab1e-0000", repair.ReleaseIP, false)
	left(t, "calico-audit-journal-5ca1ab1e-3.jsonl", "5ca1ab1e-0000", repair.DeleteHandle, true)
	left(t, "calico-audit-journal-5ca1ab1e-4.jsonl", "5ca1ab1e-9999", repair.DeleteAffinity, false)
	left(t, "calico-audit-journal-0ddba11-1.jsonl", "0ddba11", repair.DeleteAffinity, false)
	left(t, "mine.jsonl", "5ca1ab1e-0000", repair.ReleaseBlock, false)
	if err := os.WriteFile("calico-audit-journal-5ca1ab1e-5.jsonl", []byte("?\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		flags Flags
		want  string
		says  []string
	}{
		"by default": {Flags{}, "calico-audit-journal-5ca1ab1e-1.jsonl", []string{
			"continuing its journal, calico-audit-journal-5ca1ab1e-1.jsonl",
			"left step release-ip:x half-done; finish with: calico-audit repair apply --resume calico-audit-journal-5ca1ab1e-2.jsonl\n",
			"calico-audit-journal-5ca1ab1e-5.jsonl: its first line is not the header",
		}},
		"as --journal says":           {Flags{journal: filepath.Join(dir, "mine.jsonl")}, filepath.Join(dir, "mine.jsonl"), nil},
		"where --journal would write": {Flags{journal: filepath.Join(dir, "new.jsonl")}, filepath.Join(dir, "calico-audit-journal-5ca1ab1e-1.jsonl"), nil},
		"elsewhere":                   {Flags{journal: filepath.Join(t.TempDir(), "new.jsonl")}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			x := &Runner{Streams: genericiooptions.IOStreams{ErrOut: &said}, Program: "calico-audit", Sources: new(source.Flags), Flags: &c.flags}
			x.Sources.AddClusterTo(new(cobra.Command))
			file, err := x.Broken(plan)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if file != nil {
				got = file.Path
			}
			if got != c.want {
				t.Errorf("it goes on in %q, want %q", got, c.want)
			}
			for _, want := range c.says {
				if !strings.Contains(said.String(), want) {
					t.Errorf("it does not say %q:\n%s", want, said.String())
				}
			}
			for _, never := range []string{"-3.jsonl", "-4.jsonl", "0ddba11"} {
				if strings.Contains(said.String(), never) {
					t.Errorf("it speaks of %s:\n%s", never, said.String())
				}
			}
		})
	}
}

// TestJournalOfAnotherPlan: a journal is not continued for another plan, and never
// overwritten.
func TestJournalOfAnotherPlan(t *testing.T) {
	t.Chdir(t.TempDir())
	plan := left(t, "one.jsonl", "g", repair.ReleaseBlock, false)
	left(t, "two.jsonl", "g", repair.ReleaseIP, false)
	left(t, "ended.jsonl", "g", repair.ReleaseBlock, true)
	for path, want := range map[string]string{"two.jsonl": "belongs to another plan", "ended.jsonl": "already exists", os.DevNull: os.DevNull + ": it is not a regular file"} {
		x := &Runner{Streams: genericiooptions.IOStreams{ErrOut: new(bytes.Buffer)}, Sources: new(source.Flags), Flags: &Flags{journal: path}}
		if file, err := x.Broken(plan); file != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	f := &Flags{journal: filepath.Join(".", "two.jsonl")}
	if path := f.journalPath("g", time.Now()); path == f.journal || filepath.Dir(path) != "." {
		t.Errorf("a new plan's journal would go to %s", path)
	}
}

// TestOnlyWhatIsAskedForIsFinished: a command finishes half-done steps of an earlier run only if
// its own request includes them. Otherwise it names them.
func TestOnlyWhatIsAskedForIsFinished(t *testing.T) {
	t.Chdir(t.TempDir())
	left(t, "calico-audit-journal-5ca1ab1e-1.jsonl", "5ca1ab1e-0000", repair.ReleaseIP, false)
	for finishes, asks := range map[bool]repair.Request{false: {EmptyBlocks: true}, true: {LeakedIPs: true}} {
		var said bytes.Buffer
		x := &Runner{Streams: genericiooptions.IOStreams{ErrOut: &said}, Program: "calico-audit", Sources: new(source.Flags), Flags: new(Flags), Ask: func(context.Context, string) error {
			return errors.New("asked")
		}}
		x.Sources.AddClusterTo(new(cobra.Command))
		done, err := x.FinishBegun(t.Context(), "5ca1ab1e-0000", asks)
		if done || (err != nil) != finishes || strings.Contains(said.String(), "finishing first") != finishes || !strings.Contains(said.String(), "left step release-ip:x half-done") {
			t.Errorf("asked for %+v: %t, %v\n%s", asks, done, err, said.String())
		}
	}
}

// TestNothingWithoutAnAnswer: if no one can be asked, nothing is written without --yes, and an undo
// does not write to an existing journal.
func TestNothingWithoutAnAnswer(t *testing.T) {
	for _, c := range []struct{ yes, canAsk, fine bool }{{false, false, false}, {true, false, true}, {false, true, true}, {true, true, true}} {
		f := Flags{Yes: c.yes}
		if err := f.Complete(c.canAsk); (err == nil) != c.fine || err != nil && exit.Code(err) != exit.CodeUsage {
			t.Errorf("--yes %t, a terminal %t: %v", c.yes, c.canAsk, err)
		}
	}
	t.Chdir(t.TempDir())
	left(t, "mine.jsonl", "g", repair.ReleaseBlock, true)
	x := &Runner{Flags: &Flags{journal: "mine.jsonl"}}
	if err := x.Undo(t.Context(), nil); exit.Code(err) != exit.CodeUsage || !strings.Contains(err.Error(), "mine.jsonl already exists") {
		t.Errorf("an undo writes to a journal that exists: %v", err)
	}
}

// TestExitCodeOfARun: steps left undone, including untried ones, give exit code 4; gaps give code
// 3.
func TestExitCodeOfARun(t *testing.T) {
	for name, c := range map[string]struct {
		res  repair.Result
		code int
	}{
		"done":            {repair.Result{Outcomes: []repair.Outcome{{Status: repair.Done}, {Status: repair.Already}, {Status: repair.NotNeeded}}}, exit.CodeOK},
		"failed":          {repair.Result{Outcomes: []repair.Outcome{{Status: repair.Done}, {Status: repair.Failed}}}, exit.CodeUnfinished},
		"skipped":         {repair.Result{Outcomes: []repair.Outcome{{Status: repair.Skipped}}}, exit.CodeUnfinished},
		"not tried":       {repair.Result{Outcomes: []repair.Outcome{{Status: repair.Done}, {Status: repair.NotTried, Code: repair.SkipLimit}}}, exit.CodeUnfinished},
		"gaps":            {repair.Result{Outcomes: []repair.Outcome{{Status: repair.Done}}, Gaps: []string{"pods: forbidden"}}, exit.CodeUnread},
		"gaps and failed": {repair.Result{Outcomes: []repair.Outcome{{Status: repair.Failed}}, Gaps: []string{"pods: forbidden"}}, exit.CodeUnfinished},
	} {
		x := &Runner{Print: func(*repair.Result, view.Options) error { return nil }}
		if got := exit.Code(x.finish(&c.res, nil)); got != c.code {
			t.Errorf("%s: exit code %d, want %d", name, got, c.code)
		}
	}
}

// served is a cluster whose objects are of an API group.
type served struct {
	source.Reader
	group string
}

func (s served) Read(context.Context) (*blocks.Snapshot, error) {
	return &blocks.Snapshot{Cluster: blocks.Cluster{APIGroup: s.group}}, nil
}

// TestGroupOfThePlan: a plan is for objects of one API group. After a migration there are different
// objects.
func TestGroupOfThePlan(t *testing.T) {
	for group, same := range map[string]bool{"crd.projectcalico.org/v1": true, "projectcalico.org/v3": false} {
		r := &repairReader{Reader: served{group: group}, group: "crd.projectcalico.org/v1"}
		if _, err := r.Read(t.Context()); (err == nil) != same || err != nil && !strings.Contains(err.Error(), "make a new plan") {
			t.Errorf("objects of %s: %v", group, err)
		}
	}
}

// TestGoesOn: a run that was interrupted between two steps is continued with its plan, under any
// journal name. The same command with a plan of its own lists the journals that it continues. A
// later run does not continue them again, and an undo of any of them covers all.
func TestGoesOn(t *testing.T) {
	t.Chdir(t.TempDir())
	plan := left(t, "mine", "g", repair.ReleaseIP, true)
	plan.Steps = append(plan.Steps, repair.Step{ID: "release-ip:y", Kind: repair.ReleaseIP})
	died := func(path string, continues ...string) {
		t.Helper()
		j, err := journal.Create(path, journal.Header{StartedAt: plan.CreatedAt, Cluster: plan.Cluster, Plan: plan, Continues: continues})
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		step := plan.Steps[0]
		for _, err := range []error{
			j.Start(step.ID), j.Record(repair.Change{Verb: repair.VerbPatch, Resource: blocks.Blocks, Name: "x", Before: []byte("{}")}),
			j.End(repair.Outcome{Step: step, Status: repair.Done}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	runs := func() *Runner {
		x := &Runner{Streams: genericiooptions.IOStreams{ErrOut: new(bytes.Buffer)}, Program: "calico-audit", Sources: new(source.Flags), Flags: new(Flags)}
		x.Sources.AddClusterTo(new(cobra.Command))
		return x
	}
	died("one.log")
	if file, err := runs().Broken(plan); err != nil || file == nil || file.Path != "one.log" {
		t.Errorf("it goes on in %+v: %v", file, err)
	}
	for _, c := range []struct {
		request repair.Request
		want    []string
	}{{repair.Request{LeakedIPs: true}, []string{"one.log"}}, {repair.Request{EmptyBlocks: true}, nil}} {
		x := runs()
		if tried, err := x.FinishBegun(t.Context(), "g", c.request); tried || err != nil || !slices.Equal(x.continues, c.want) {
			t.Errorf("%+v continues %v, and tried %v: %v", c.request, x.continues, tried, err)
		}
	}
	died("two.log", "one.log")
	x := runs()
	if _, err := x.FinishBegun(t.Context(), "g", repair.Request{LeakedIPs: true}); err != nil || !slices.Equal(x.continues, []string{"two.log"}) {
		t.Errorf("the third run continues %v: %v", x.continues, err)
	}
	file, err := journal.ReadRun("one.log")
	if err != nil {
		t.Fatal(err)
	}
	if all := runs().whole(file).Parts(); len(all) != 2 || all[0].Path != "two.log" && all[1].Path != "two.log" {
		t.Errorf("an undo of the first is of %d parts", len(all))
	}
	if err := os.Remove("one.log"); err != nil {
		t.Fatal(err)
	}
	if file, err = journal.ReadRun("two.log"); err != nil || lost(file) == nil || !strings.Contains(lost(file).Error(), "one.log") {
		t.Errorf("the journal that is gone is not named: %v, %v", err, lost(file))
	}
}

// TestHalfDone: the record of a run in etcd outlives the run if the run may have left a step half-done.
func TestHalfDone(t *testing.T) {
	for want, of := range map[bool][]repair.Outcome{
		true:  {{Status: repair.Failed}, {Status: repair.Skipped, Code: repair.SkipChanged, HalfDone: true}},
		false: {{Status: repair.Done}, {Status: repair.Already}, {Status: repair.NotNeeded}, {Status: repair.Done, Code: repair.CodeFinished}, {Status: repair.Skipped, Code: repair.SkipCode(repair.RefusedInUse)}},
	} {
		for _, o := range of {
			if got := halfDone(&repair.Result{Outcomes: []repair.Outcome{{Status: repair.Done}, o}}); got != want {
				t.Errorf("%s %s: half-done %t", o.Status, o.Code, got)
			}
		}
	}
}
