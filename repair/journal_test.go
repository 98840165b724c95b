package repair

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
)

func testHeader() JournalHeader {
	return JournalHeader{
		StartedAt: audit.Time{Time: time.Date(2026, 2, 3, 9, 0, 0, 0, time.UTC)}, Cluster: audit.ReportCluster{GUID: "g"},
		Plan: &Plan{APIVersion: audit.APIVersion, Kind: PlanKind, Steps: []Step{{ID: "a"}, {ID: "b"}}},
	}
}

func newTestJournal(t *testing.T) *Journal {
	t.Helper()
	j, err := CreateJournal(filepath.Join(t.TempDir(), "journal.jsonl"), testHeader())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func readJournal(t *testing.T, path string) *JournalFile {
	t.Helper()
	f, err := ReadJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// writeTwoSteps writes a step that ended and one that broke off.
func writeTwoSteps(t *testing.T, j *Journal) {
	t.Helper()
	change := Change{Verb: VerbPatch, Resource: blocks.Affinities, Name: "x", Before: json.RawMessage(`{"metadata":{"uid":"u"}}`), After: json.RawMessage(`{}`)}
	for _, err := range []error{
		j.Start("a"), j.Record(change), j.End(Outcome{Step: Step{ID: "a"}, Status: Done}), j.Start("b"), j.Record(change),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestJournal: what was written is read back, by step.
func TestJournal(t *testing.T) {
	j := newTestJournal(t)
	writeTwoSteps(t, j)
	f := readJournal(t, j.Path())
	if diff := cmp.Diff([]string{"b", "a"}, f.Written()); diff != "" {
		t.Errorf("steps with changes, newest first (-want +got):\n%s", diff)
	}
	if o := f.log("a").end; o == nil || o.Status != Done || f.Started("a") {
		t.Errorf("step a: outcome %+v; begun %v", o, f.Started("a"))
	}
	if f.log("b").end != nil || !f.Started("b") {
		t.Error("step b broke off, and the journal does not tell")
	}
	if c := f.log("b").changes; len(c) != 1 || c[0].Change.Step != "b" || c[0].Change.was().Metadata.UID != "u" {
		t.Errorf("changes of b: %+v", c)
	}
	if f.Step("b") == nil || f.Step("c") != nil || f.Cluster.GUID != "g" || f.Torn != 0 {
		t.Errorf("header %+v, torn %d", f.JournalHeader, f.Torn)
	}
	if info, err := os.Stat(j.Path()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v: others may read it", info.Mode(), err)
	}
}

// TestJournalIsNotOverwritten: a journal is what an undo lives on.
func TestJournalIsNotOverwritten(t *testing.T) {
	j := newTestJournal(t)
	writeTwoSteps(t, j)
	before, err := os.ReadFile(j.Path())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := CreateJournal(j.Path(), testHeader()); err == nil || !errors.Is(err, os.ErrExist) {
		t.Errorf("creating it a second time: %v", err)
	}
	after, err := os.ReadFile(j.Path())
	if err != nil || string(before) != string(after) {
		t.Errorf("it was changed: %v", err)
	}
}

// TestJournalIsLazy: a run that writes nothing leaves no file, though its path is
// known; the first change brings the file with all lines before it, and each change
// is on the disk before it may be sent.
func TestJournalIsLazy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	var disk *slowDisk
	create := createFile
	t.Cleanup(func() { createFile = create })
	createFile = func(path string) (journalFile, error) {
		file, err := create(path)
		disk = &slowDisk{journalFile: file}
		return disk, err
	}
	j, err := CreateJournal(path, testHeader())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Start("a"), j.End(Outcome{Step: Step{ID: "a"}, Status: Skipped}), j.Start("b")); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 || j.Exists() || j.Path() != path {
		t.Errorf("before the first change there is %v (%v), path %q", left, err, j.Path())
	}
	change := Change{Verb: VerbDelete, Resource: blocks.Handles, Name: "x", Before: json.RawMessage(`{}`)}
	for range 2 {
		if err := j.Record(change); err != nil || disk.unsynced > 0 {
			t.Errorf("a change may be sent with %d lines that are not on the disk (%v)", disk.unsynced, err)
		}
	}
	if f := readJournal(t, path); len(f.Entries) != 5 || !f.Started("b") || f.Started("a") || !j.Exists() {
		t.Errorf("the file has %+v", f.Entries)
	}
}

// slowDisk counts what was written and is not on the disk.
type slowDisk struct {
	journalFile
	unsynced int
}

func (d *slowDisk) Write(line []byte) (int, error) { d.unsynced++; return d.journalFile.Write(line) }

func (d *slowDisk) Sync() error { d.unsynced = 0; return d.journalFile.Sync() }

// TestJournalCannotBeMade: a journal that cannot be made is known before anything is
// written, whenever it comes to that.
func TestJournalCannotBeMade(t *testing.T) {
	if _, err := CreateJournal(filepath.Join(t.TempDir(), "none", "j.jsonl"), testHeader()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
	dir := t.TempDir()
	j, err := CreateJournal(filepath.Join(dir, "j.jsonl"), testHeader())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	f := storyDrained(t)
	p := f.plan(t, emptyBlocks)
	f.journal = j
	r, err := Apply(t.Context(), p, f, f, j, ApplyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, outcomes(r), "skipped Journal", "not-tried Journal")
	if len(f.wrote) > 0 || r.Journal != "" {
		t.Errorf("it wrote %v, journal %q", f.wrote, r.Journal)
	}
}

// TestTornJournal: a crash in the middle of a line costs that line alone, whose
// write was not sent; anywhere else a broken line is an error.
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
	if f.Torn != 1 || len(f.log("b").changes) != 0 || !f.Started("b") || len(f.log("a").changes) != 1 {
		t.Errorf("torn %d, changes of b %v, of a %v", f.Torn, f.log("b").changes, f.log("a").changes)
	}

	again, err := ResumeJournal(path, audit.Time{})
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
	if _, err := ReadJournal(path); err == nil || !strings.Contains(err.Error(), "line 3 is broken") {
		t.Errorf("a line broken in the middle: %v", err)
	}
}

// TestNoJournal: files that are none say so.
func TestNoJournal(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "it is empty",
		"{\"apiVersion\":\n":        "no header",
		"{\"kind\":\"RepairPlan\"}": `it is a "RepairPlan"`,
		"kind: RepairJournal\n":     "no header",
		"{\"kind\":\"RepairJournal\",\"apiVersion\":\"calico-audit/v9\"}": "calico-audit/v9",
	} {
		path := filepath.Join(t.TempDir(), "x.jsonl")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadJournal(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := ReadJournal(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestJournalStaysBroken: after one line that could not be written no other is
// taken, so that no write follows.
func TestJournalStaysBroken(t *testing.T) {
	j := newTestJournal(t)
	writeTwoSteps(t, j)
	if err := j.file.Close(); err != nil {
		t.Fatal(err)
	}
	first := j.Record(Change{Verb: VerbDelete, Name: "x"})
	if first == nil || j.Err() == nil {
		t.Fatalf("a line that could not be written: %v, %v", first, j.Err())
	}
	if err := j.Start("b"); err == nil || err.Error() != first.Error() {
		t.Errorf("the next line: %v, want %v", err, first)
	}
}

// disk is a journal's file that knows whether what was written is on the disk.
type disk struct {
	journalFile
	unsynced bool
	broken   bool // nothing is synced any more
}

func (d *disk) Write(p []byte) (int, error) {
	d.unsynced = true
	return d.journalFile.Write(p)
}

func (d *disk) Sync() error {
	if d.broken {
		return errors.New("input/output error")
	}
	d.unsynced = false
	return d.journalFile.Sync()
}

// sending is a journal before a writer that sends as soon as a change is recorded.
type sending struct {
	*Journal
	send func(Change)
}

func (s sending) Record(c Change) error {
	err := s.Journal.Record(c)
	if err == nil {
		s.send(c)
	}
	return err
}

// TestJournalIsSynced: whatever a run writes is on the disk in the journal when it is
// sent, not only in the file. What could not be synced is not sent.
func TestJournalIsSynced(t *testing.T) {
	var d *disk
	create := createFile
	t.Cleanup(func() { createFile = create })
	createFile = func(path string) (journalFile, error) {
		file, err := create(path)
		d = &disk{journalFile: file}
		return d, err
	}
	f := storyDrained(t)
	p := f.plan(t, emptyBlocks)
	j := newTestJournal(t)
	sent := 0
	f.journal = sending{j, func(c Change) {
		sent++
		if d.unsynced {
			t.Errorf("%s %s is sent, and its line is not on the disk", c.Verb, c.Name)
		}
	}}
	if _, err := Apply(t.Context(), p, f, f, j, ApplyOptions{}); err != nil || sent != len(p.Steps) {
		t.Fatalf("%d writes of %d steps: %v", sent, len(p.Steps), err)
	}
	if d.unsynced {
		t.Error("the end of the last step is not on the disk")
	}
	d.broken = true
	if err := j.Record(Change{Verb: VerbDelete, Name: "x"}); err == nil || !strings.Contains(err.Error(), "input/output error") {
		t.Errorf("a line that could not be synced: %v", err)
	}
}
