package journal

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

func testHeader() Header {
	return Header{
		StartedAt: audit.Time{Time: time.Date(2026, 2, 3, 9, 0, 0, 0, time.UTC)}, Cluster: audit.ReportCluster{GUID: "g"},
		Plan: &repair.Plan{APIVersion: audit.APIVersion, Kind: repair.PlanKind, Steps: []repair.Step{{ID: "a"}, {ID: "b"}}},
	}
}

func newTestJournal(t *testing.T) *Journal {
	t.Helper()
	j, err := Create(filepath.Join(t.TempDir(), "journal.jsonl"), testHeader())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func readJournal(t *testing.T, path string) *File {
	t.Helper()
	f, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// writeTwoSteps writes a step that ended and one that was interrupted.
func writeTwoSteps(t *testing.T, j *Journal) {
	t.Helper()
	change := repair.Change{Verb: repair.VerbPatch, Resource: blocks.Affinities, Name: "x", Before: json.RawMessage(`{"metadata":{"uid":"u"}}`), After: json.RawMessage(`{}`)}
	for _, err := range []error{
		j.Start("a"), j.Record(change), j.End(repair.Outcome{Step: repair.Step{ID: "a"}, Status: repair.Done}), j.Start("b"), j.Record(change),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestJournal checks that written entries are read back by step.
func TestJournal(t *testing.T) {
	j := newTestJournal(t)
	writeTwoSteps(t, j)
	f := readJournal(t, j.Path())
	if diff := cmp.Diff([]string{"b", "a"}, f.Written()); diff != "" {
		t.Errorf("steps with changes, newest first (-want +got):\n%s", diff)
	}
	if o := f.Log("a").Ended; o != repair.Done || f.Started("a") {
		t.Errorf("step a: outcome %q; begun %v", o, f.Started("a"))
	}
	if f.Log("b").Ended != "" || !f.Started("b") {
		t.Error("step b broke off, and the journal does not tell")
	}
	if c := f.Log("b").Changes; len(c) != 1 || c[0].Step != "b" || c[0].UID() != "u" {
		t.Errorf("changes of b: %+v", c)
	}
	if f.Step("b") == nil || f.Step("c") != nil || f.Cluster.GUID != "g" || f.Torn != 0 {
		t.Errorf("header %+v, torn %d", f.Header, f.Torn)
	}
	if info, err := os.Stat(j.Path()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v: others may read it", info.Mode(), err)
	}
}

// TestJournalIsNotOverwritten checks that an existing journal is kept, because an undo
// needs it.
func TestJournalIsNotOverwritten(t *testing.T) {
	j := newTestJournal(t)
	writeTwoSteps(t, j)
	before, err := os.ReadFile(j.Path())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(j.Path(), testHeader()); err == nil || !errors.Is(err, os.ErrExist) {
		t.Errorf("creating it a second time: %v", err)
	}
	after, err := os.ReadFile(j.Path())
	if err != nil || string(before) != string(after) {
		t.Errorf("it was changed: %v", err)
	}
}

// TestJournalIsLazy checks that a run without writes leaves no file although its path is
// known. The first change creates the file with all previous lines, and each change is on
// disk before it may be sent.
func TestJournalIsLazy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	var disk *slowDisk
	create := createFile
	t.Cleanup(func() { createFile = create })
	createFile = func(path string) (appendFile, error) {
		file, err := create(path)
		disk = &slowDisk{appendFile: file}
		return disk, err
	}
	j, err := Create(path, testHeader())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Start("a"), j.End(repair.Outcome{Step: repair.Step{ID: "a"}, Status: repair.Skipped}), j.Start("b")); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 || j.Exists() || j.Path() != path {
		t.Errorf("before the first change there is %v (%v), path %q", left, err, j.Path())
	}
	change := repair.Change{Verb: repair.VerbDelete, Resource: blocks.Handles, Name: "x", Before: json.RawMessage(`{}`)}
	for range 2 {
		if err := j.Record(change); err != nil || disk.unsynced > 0 {
			t.Errorf("a change may be sent with %d lines that are not on the disk (%v)", disk.unsynced, err)
		}
	}
	if f := readJournal(t, path); len(f.Entries) != 5 || !f.Started("b") || f.Started("a") || !j.Exists() {
		t.Errorf("the file has %+v", f.Entries)
	}
}

// slowDisk counts the writes that are not on disk yet.
type slowDisk struct {
	appendFile
	unsynced int
}

func (d *slowDisk) Write(line []byte) (int, error) { d.unsynced++; return d.appendFile.Write(line) }

func (d *slowDisk) Sync() error { d.unsynced = 0; return d.appendFile.Sync() }

// TestJournalDirectory checks that an impossible journal is an error before anything is
// written.
func TestJournalDirectory(t *testing.T) {
	if _, err := Create(filepath.Join(t.TempDir(), "none", "j.jsonl"), testHeader()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
}

// TestTornJournal checks that a line which a crash truncated is skipped, because its
// write was not sent. A broken line anywhere else is an error.
func TestTornJournal(t *testing.T) {
	j := newTestJournal(t)
	writeTwoSteps(t, j)
	whole, err := os.ReadFile(j.Path())
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(whole), "\n")
	last := lines[len(lines)-2]
	torn := strings.TrimSuffix(string(whole), last) + last[:len(last)/2]
	path := filepath.Join(t.TempDir(), "torn.jsonl")
	if err := os.WriteFile(path, []byte(torn), 0o600); err != nil {
		t.Fatal(err)
	}
	f := readJournal(t, path)
	if f.Torn != 1 || len(f.Log("b").Changes) != 0 || !f.Started("b") || len(f.Log("a").Changes) != 1 {
		t.Errorf("torn %d, changes of b %v, of a %v", f.Torn, f.Log("b").Changes, f.Log("a").Changes)
	}

	again, err := Resume(path, audit.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Start("c"); err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if f := readJournal(t, path); f.Torn != 1 || !f.Started("c") || !f.Started("b") {
		t.Errorf("after another run went on: torn %d, %+v", f.Torn, f.Entries)
	}

	lines[2] = lines[2][:len(lines[2])/2] + "\n"
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "line 3 is broken") {
		t.Errorf("a line broken in the middle: %v", err)
	}
}

// TestNoJournal checks the errors about files that are not journals.
func TestNoJournal(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "it is empty",
		"{\"apiVersion\":\n":        "not the header",
		"{\"kind\":\"RepairPlan\"}": `it is a "RepairPlan"`,
		"kind: RepairJournal\n":     "not the header",
		"{\"kind\":\"RepairJournal\",\"apiVersion\":\"calico-audit/v9\"}": "calico-audit/v9",
	} {
		path := filepath.Join(t.TempDir(), "x.jsonl")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestJournalStaysBroken checks that no further line is accepted after one that could not
// be written, so that no further write is sent.
func TestJournalStaysBroken(t *testing.T) {
	j := newTestJournal(t)
	writeTwoSteps(t, j)
	if err := j.file.Close(); err != nil {
		t.Fatal(err)
	}
	first := j.Record(repair.Change{Verb: repair.VerbDelete, Name: "x"})
	if first == nil || j.Err() == nil {
		t.Fatalf("a line that could not be written: %v, %v", first, j.Err())
	}
	if err := j.Start("b"); err == nil || err.Error() != first.Error() {
		t.Errorf("the next line: %v, want %v", err, first)
	}
}

// disk is a journal's file that knows whether its content is on disk.
type disk struct {
	appendFile
	unsynced bool
	broken   bool // every sync fails
}

func (d *disk) Write(p []byte) (int, error) {
	d.unsynced = true
	return d.appendFile.Write(p)
}

func (d *disk) Sync() error {
	if d.broken {
		return errors.New("input/output error")
	}
	d.unsynced = false
	return d.appendFile.Sync()
}

// TestJournalIsSynced checks that each line is on disk when its method returns. A failed
// sync is an error, after which nothing may be sent.
func TestJournalIsSynced(t *testing.T) {
	var d *disk
	create := createFile
	t.Cleanup(func() { createFile = create })
	createFile = func(path string) (appendFile, error) {
		file, err := create(path)
		d = &disk{appendFile: file}
		return d, err
	}
	j := newTestJournal(t)
	change := repair.Change{Verb: repair.VerbDelete, Name: "x"}
	for range 2 {
		for i, line := range []func() error{
			func() error { return j.Start("a") }, func() error { return j.Record(change) },
			func() error { return j.End(repair.Outcome{Step: repair.Step{ID: "a"}, Status: repair.Done}) },
		} {
			if err := line(); err != nil || d != nil && d.unsynced {
				t.Errorf("line %d is not on the disk (%v)", i, err)
			}
		}
	}
	d.broken = true
	if err := j.Record(change); err == nil || !strings.Contains(err.Error(), "input/output error") {
		t.Errorf("a line that could not be synced: %v", err)
	}
}

// TestJournalLetsBack checks that when the disk is full in the middle of a step, the
// step's writes can still be reverted, but nothing else can be written.
func TestJournalLetsBack(t *testing.T) {
	j, err := Create(filepath.Join(t.TempDir(), "j.jsonl"), testHeader())
	if err != nil {
		t.Fatal(err)
	}
	change := repair.Change{Verb: repair.VerbPatch, Resource: blocks.Affinities, Name: "x", Before: json.RawMessage(`{}`)}
	if err := j.Start("a"); err != nil {
		t.Fatal(err)
	}
	if err := j.Record(change); err != nil {
		t.Fatal(err)
	}
	if err := j.file.Close(); err != nil {
		t.Fatal(err)
	}
	back, other := change, change
	back.Back, other.Back, other.Name = true, true, "y"
	if err := j.Record(change); err == nil {
		t.Error("another write is let through")
	}
	if err := j.Record(back); err != nil {
		t.Errorf("what takes it back: %v", err)
	}
	if err := j.Record(other); err == nil {
		t.Error("an object that the journal does not hold is let through")
	}
	if err := j.Start("b"); err == nil {
		t.Error("the next step is let through")
	}
	if err := j.Record(back); err == nil {
		t.Error("what another step wrote is let through")
	}
}

// TestOneRunAtATime checks that a journal cannot be resumed while its run is still
// active.
func TestOneRunAtATime(t *testing.T) {
	j := newTestJournal(t)
	writeTwoSteps(t, j)
	if _, err := Resume(j.Path(), audit.Time{}); !errors.Is(err, ErrRunning) {
		t.Errorf("while its run is writing it: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Resume(j.Path(), audit.Time{})
	if err != nil {
		t.Fatalf("when its run is over: %v", err)
	}
	defer again.Close()
	if _, err := Resume(j.Path(), audit.Time{}); !errors.Is(err, ErrRunning) {
		t.Errorf("while another goes on in it: %v", err)
	}
}

// TestJournalOfAPlan: a journal belongs to a plan if cluster, time and steps are the same. A plan
// that was made again has other objects, even with the same steps.
func TestJournalOfAPlan(t *testing.T) {
	plan := func() *repair.Plan {
		return &repair.Plan{Cluster: audit.ReportCluster{GUID: "g"}, CreatedAt: audit.Time{Time: time.Unix(1767225600, 0)}, Steps: []repair.Step{{ID: "a"}, {ID: "b"}}}
	}
	f := File{Header: Header{Plan: plan()}}
	for name, edit := range map[string]func(*repair.Plan){
		"":                 func(*repair.Plan) {},
		"another cluster":  func(p *repair.Plan) { p.Cluster.GUID = "h" },
		"made again":       func(p *repair.Plan) { p.CreatedAt.Time = p.CreatedAt.Add(time.Second) },
		"another step":     func(p *repair.Plan) { p.Steps[1].ID = "c" },
		"a step less":      func(p *repair.Plan) { p.Steps = p.Steps[:1] },
		"in another order": func(p *repair.Plan) { p.Steps[0], p.Steps[1] = p.Steps[1], p.Steps[0] },
	} {
		p := plan()
		edit(p)
		if f.Of(p) != (name == "") {
			t.Errorf("%q: the journal is the plan's: %t", name, f.Of(p))
		}
	}
	if (&File{}).Of(plan()) {
		t.Error("the journal of an undo is a plan's")
	}
}

// TestDeletionIsOurs: a missing object was deleted by the step if the step had marked it, or if its
// deletion is known to have succeeded. A run that died right after it recorded the deletion of an
// unmarked object, as in etcd, proves nothing.
func TestDeletionIsOurs(t *testing.T) {
	entry := func(verb, spec string) Entry {
		return Entry{Event: EventChange, Step: "s", Change: &repair.Change{Verb: verb, Resource: blocks.Handles, Name: "h", Before: []byte(`{"metadata":{"uid":"1"},"spec":{` + spec + `}}`)}}
	}
	mark, removeMarked, removeText := entry(repair.VerbPatch, ""), entry(repair.VerbDelete, `"deleted":true`), entry(repair.VerbDelete, `"deleted":"true"`)
	remove, done := entry(repair.VerbDelete, `"deleted":false`), Entry{Event: EventEnd, Step: "s", Status: repair.Done}
	for _, x := range []struct {
		name    string
		entries []Entry
		ours    bool
	}{
		{"marked, and the run died", []Entry{mark, removeMarked}, true},
		{"marked by a text, and the run died", []Entry{mark, removeText}, true},
		{"changed, not marked, and the run died", []Entry{mark, remove}, false},
		{"not marked, and the run died", []Entry{remove}, false},
		{"not marked, and done", []Entry{remove, done}, true},
		{"not marked, and failed", []Entry{remove, {Event: EventEnd, Step: "s", Status: repair.Failed, Reason: "no answer"}}, false},
		{"marked only", []Entry{mark}, false},
	} {
		f := &File{Entries: append([]Entry{{Event: EventStart, Step: "s"}}, x.entries...)}
		if got := f.Log("s").DeleteSent(remove.Change); got != x.ours {
			t.Errorf("%s: deleted by us is %v, want %v", x.name, got, x.ours)
		}
	}
}

// TestFoundDone: if a step is found done, its run wrote nothing, provided that it is the run that
// sent the changes. A later run also finds the changes of a killed one.
func TestFoundDone(t *testing.T) {
	change := Entry{Event: EventChange, Step: "s", Change: &repair.Change{Verb: repair.VerbPatch, Resource: blocks.Affinities, Name: "x", Before: json.RawMessage(`{}`)}}
	start, found := Entry{Event: EventStart, Step: "s"}, Entry{Event: EventEnd, Step: "s", Status: repair.Already}
	if f := (&File{Entries: []Entry{start, change, found}}); !f.Log("s").Unwritten {
		t.Error("what another client did counts as the run's")
	}
	if f := (&File{Entries: []Entry{start, change, {Event: EventResume}, found}}); f.Log("s").Unwritten {
		t.Error("what a killed run did counts as never written")
	}
}

// TestPartsOfOtherClusters: a run does not continue a run on another cluster, or an undo.
func TestPartsOfOtherClusters(t *testing.T) {
	for name, edit := range map[string]func(*Header){
		"":                func(*Header) {},
		"another cluster": func(h *Header) { h.Cluster.GUID = "h" },
		"an undo":         func(h *Header) { h.Plan = nil },
	} {
		before, h := newTestJournal(t), testHeader()
		edit(&h)
		path := filepath.Join(filepath.Dir(before.Path()), "before.jsonl")
		for at, h := range map[string]Header{path: h, before.Path(): {StartedAt: h.StartedAt, Cluster: testHeader().Cluster, Plan: testHeader().Plan, Continues: []string{"before.jsonl"}}} {
			j, err := Create(at, h)
			if err != nil {
				t.Fatal(err)
			}
			writeTwoSteps(t, j)
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		}
		f, err := ReadRun(before.Path())
		if err != nil || len(f.Parts()) != map[bool]int{true: 2, false: 1}[name == ""] || (len(f.Lost) > 0) == (name == "") {
			t.Errorf("%q: %d parts, lost %v, %v", name, len(f.Parts()), f.Lost, err)
		}
	}
}
