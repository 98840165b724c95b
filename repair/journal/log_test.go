package journal

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/repair"
)

// logged is a journal whose lines are words: start, resume, end|STATUS[|CODE[|REASON]], and
// VERB|RESOURCE[|BEFORE] for a change. A word is of step s; one with a prefix "t:" is of step t.
func logged(words string) *File {
	resources := map[string]blocks.Resource{"block": blocks.Blocks, "affinity": blocks.Affinities, "handle": blocks.Handles, "pool": blocks.WhereaboutsPools, "reservation": blocks.WhereaboutsReservations}
	f := &File{Header: Header{Plan: &repair.Plan{Steps: []repair.Step{{ID: "s"}, {ID: "t"}}}}}
	for word := range strings.FieldsSeq(words) {
		e := Entry{Step: "s"}
		if rest, other := strings.CutPrefix(word, "t:"); other {
			word, e.Step = rest, "t"
		}
		p := append(strings.Split(word, "|"), "", "", "")
		switch e.Event = Event(p[0]); e.Event {
		case EventStart:
		case EventResume:
			e.Step = ""
		case EventEnd:
			e.Status, e.Code, e.Reason = repair.Status(p[1]), repair.SkipCode(p[2]), p[3]
		default:
			e.Event, e.Change = EventChange, &repair.Change{Verb: p[0], Resource: resources[p[1]], Name: p[1], Before: json.RawMessage(`{"spec":{"is":"` + p[2] + `"}}`)}
		}
		f.Entries = append(f.Entries, e)
	}
	return f
}

// TestFreed: an address counts as freed by a step only if the journal proves that its write
// succeeded: the step went on with another object, or ended as done without a remark.
func TestFreed(t *testing.T) {
	for words, want := range map[string]struct{ freed, freeing bool }{
		"start":                                                                        {false, false},
		"start patch|block":                                                            {false, true},
		"patch|block patch|handle":                                                     {true, true}, // its first line is lost
		"start patch|block patch|handle":                                               {true, true},
		"start patch|block|1 patch|block|2":                                            {false, true}, // tried again
		"start patch|block delete|block":                                               {true, true},  // an ownerless block goes with its last address
		"start patch|block end|done":                                                   {true, true},
		"start patch|block end|done||lost":                                             {false, true},
		"start patch|block end|failed":                                                 {false, true},
		"start patch|block end|skipped|Changed":                                        {false, true},
		"start patch|block end|failed start patch|handle end|done":                     {false, true},
		"start patch|block patch|handle end|failed":                                    {true, true},
		"start patch|block patch|handle end|failed start end|failed":                   {true, true},
		"start create|block end|done":                                                  {false, false},
		"start patch|affinity end|done":                                                {false, false},
		"start patch|affinity patch|handle end|done":                                   {false, false},
		"start patch|pool end|done":                                                    {true, true},
		"start patch|pool delete|reservation":                                          {true, true},
		"start patch|pool delete|reservation end|done":                                 {true, true},
		"start delete|reservation":                                                     {false, false},
		"start delete|reservation end|done":                                            {true, false},
		"start delete|reservation end|failed":                                          {false, false},
		"start delete|reservation patch|handle":                                        {true, false},
		"start delete|handle end|done":                                                 {false, false},
		"start patch|pool delete|reservation create|reservation end|done":              {false, false},
		"start patch|pool delete|reservation create|reservation patch|handle end|done": {false, false},
		"start patch|block|1 t:patch|block|1 t:patch|handle":                           {true, true}, // one write of both steps
		"start patch|block|1 t:patch|block|2 t:patch|handle":                           {false, true},
		"start patch|block|1 t:patch|affinity|1 t:patch|handle":                        {false, true},
		"start patch|block|1 t:delete|block|1 t:patch|handle":                          {false, true},
		"start t:patch|block|1 patch|block|1 t:patch|handle":                           {true, true},
		"start patch|block|1 resume t:end|done":                                        {false, true},
	} {
		if l := logged(words).Log("s"); l.Freed != want.freed || (l.Freeing != nil) != want.freeing {
			t.Errorf("%s: freed %v, by a write %v; want %v", words, l.Freed, l.Freeing != nil, want)
		}
	}
}

// TestStates: which steps a journal leaves open, by their last lines.
func TestStates(t *testing.T) {
	for words, want := range map[string]struct{ started, unwritten, unfinished bool }{
		"":                                       {false, true, false},
		"start":                                  {true, true, false},
		"start patch|block":                      {true, false, true},
		"start patch|block end|done":             {false, false, false},
		"start patch|block end|failed":           {false, false, true},
		"start patch|block end|skipped":          {false, true, false},
		"start patch|block end|already":          {false, true, false},
		"start patch|block end|not-tried":        {true, false, true},
		"start patch|block end|not-tried|Unread": {true, false, true},
		"start patch|block end|skipped|Unread":   {true, false, true},
		"start patch|block end|failed|Unread":    {false, false, true},
		"start patch|block end|skipped|Changed resume end|failed":    {false, true, false},
		"start patch|block resume end|already":                       {false, false, false},
		"start patch|block end|done resume end|not-tried":            {false, false, false},
		"start patch|block end|failed resume start end|done":         {false, false, false},
		"start patch|block end|failed resume start end|failed":       {false, false, true},
		"start patch|block end|skipped|Changed start patch|block":    {true, false, true},
		"start patch|block resume start t:patch|block t:end|skipped": {true, false, true},
	} {
		f := logged(words)
		l := f.Log("s")
		if got := (struct{ started, unwritten, unfinished bool }{l.Started, l.Unwritten, l.Unfinished}); got != want {
			t.Errorf("%s: %+v, want %+v", words, got, want)
		}
		if f.Started("s") != want.started {
			t.Errorf("%s: started %v", words, f.Started("s"))
		}
	}
}

// TestMarkedAndPatched: only a deletion proves that the step deleted a marked object.
func TestMarkedAndPatched(t *testing.T) {
	f := logged("start patch|handle")
	f.Entries[1].Change.Before = json.RawMessage(`{"metadata":{"uid":"1"},"spec":{"deleted":true}}`)
	if l := f.Log("s"); len(l.Deleted) > 0 {
		t.Errorf("deleted are %v", l.Deleted)
	}
}

// TestWritten: steps that sent nothing are not undone; the others are undone newest first.
func TestWritten(t *testing.T) {
	for words, want := range map[string][]string{
		"patch|block":                                         {"s"},
		"start t:start end|done":                              nil,
		"t:start t:patch|block start patch|block":             {"s", "t"},
		"start patch|block t:start t:patch|block patch|block": {"s", "t"},
		"start patch|block t:start t:end|skipped":             {"s"},
	} {
		if got := logged(words).Written(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", words, got, want)
		}
	}
}

// TestUndoHasNoSteps: the journal of an undo has no plan, so it has no step to finish.
func TestUndoHasNoSteps(t *testing.T) {
	f := logged("start patch|block")
	f.Plan = nil
	if f.Step("s") != nil || f.Unfinished() != nil || f.BrokeOff() {
		t.Errorf("step %v, unfinished %v, broke off %v", f.Step("s"), f.Unfinished(), f.BrokeOff())
	}
}

// TestFinishedByItsRequest: if a run left nothing half-done, the request that finishes it includes
// the steps that it did not reach.
func TestFinishedByItsRequest(t *testing.T) {
	for words, want := range map[string][2]bool{ // by a request for empty blocks, and for handles
		"":                                    {false, false},
		"start end|done":                      {false, true},
		"start patch|block":                   {true, false},
		"start end|done t:start t:end|done":   {true, true},
		"start end|failed t:start t:end|done": {true, true},
	} {
		f := logged(words)
		f.Plan.Steps[0].Kind, f.Plan.Steps[1].Kind = repair.ReleaseBlock, repair.DeleteHandle
		if got := [2]bool{f.FinishedBy(repair.Request{EmptyBlocks: true}), f.FinishedBy(repair.Request{LeakedHandles: true})}; got != want {
			t.Errorf("%q: %v, want %v", words, got, want)
		}
	}
}

// TestMark: a journal names the leftovers of its run: the marks of its consolidations, its
// half-done objects, and the handles that a killed step had not lowered.
func TestMark(t *testing.T) {
	snap, err := statedsl.Parse("node n1\nblock 10.0.0.0/26 n1\n")
	if err != nil {
		t.Fatal(err)
	}
	group := repair.Guard{Name: repair.GuardConsolidation, Value: "10.0.0.0/26 n1"}
	f := logged("start patch|block t:start t:end|done")
	f.Path = "j.jsonl"
	f.Plan.Steps[0].Guards = []repair.Guard{{Name: repair.GuardHandle, Value: "K8s.A"}}
	f.Plan.Steps[1].Guards = []repair.Guard{{Name: repair.GuardHandle, Value: "done"}, group}
	f.Plan.Steps = append(f.Plan.Steps, repair.Step{ID: "u", Guards: []repair.Guard{group}})
	f.Entries = append(f.Entries, Entry{Event: EventStart, Step: "u"}, Entry{Event: EventEnd, Step: "u", Status: repair.Done})
	f.Earlier = []*File{{}}
	f.Mark(snap)
	want := []blocks.KnownRun{{Journal: "j.jsonl", Marks: []string{group.Value}, Objects: []blocks.Ref{{Resource: blocks.Handles, Name: "k8s.a"}, {Resource: blocks.Handles, Name: "K8s.A"}}}}
	if diff := cmp.Diff(want, snap.KnownRuns); diff != "" {
		t.Errorf("known runs (-want +got):\n%s", diff)
	}
}

// TestJournalsOfEachOther: journals that continue each other are read once, and an earlier one that
// cannot be read is named.
func TestJournalsOfEachOther(t *testing.T) {
	dir := t.TempDir()
	for name, continues := range map[string][]string{"a": {"a", "b", "lost"}, "b": {"a", "../b"}} {
		h := testHeader()
		h.Continues = continues
		j, err := Create(filepath.Join(dir, name), h)
		if err != nil {
			t.Fatal(err)
		}
		writeTwoSteps(t, j)
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f, err := ReadRun(filepath.Join(dir, "a"))
	if err != nil || len(f.Parts()) != 2 || len(f.Lost) != 1 || !strings.Contains(f.Lost[0].Error(), "lost") {
		t.Fatalf("%d parts, lost %v, %v", len(f.Parts()), f.Lost, err)
	}
}

// TestIsJournal: a file is a journal by its first bytes. Any other file, and a file that cannot be
// read, is not a journal.
func TestIsJournal(t *testing.T) {
	j := newTestJournal(t)
	writeTwoSteps(t, j)
	if !Is(j.Path()) {
		t.Error("a journal is none")
	}
	dir := t.TempDir()
	text, err := os.ReadFile(j.Path())
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"empty": "", "cut": string(text[:20]), "plan": strings.Replace(string(text), Kind, "RepairPlan", 1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if Is(filepath.Join(dir, name)) {
			t.Errorf("%s is a journal", name)
		}
	}
	if Is(dir) || Is(filepath.Join(dir, "absent")) {
		t.Error("a directory or a missing file is a journal")
	}
}

// TestRunningJournal: a journal is running while a process has it open for writing.
func TestRunningJournal(t *testing.T) {
	j := newTestJournal(t)
	writeTwoSteps(t, j)
	f := readJournal(t, j.Path())
	if !f.Running() {
		t.Error("it is not running")
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if f.Running() || (&File{Path: filepath.Join(t.TempDir(), "absent")}).Running() {
		t.Error("it is still running")
	}
}

// TestBrokenLines: a line without an event, or a change without its content, is a broken line, and
// a file of another kind is no journal.
func TestBrokenLines(t *testing.T) {
	j := newTestJournal(t)
	writeTwoSteps(t, j)
	text, err := os.ReadFile(j.Path())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "j.jsonl")
	for name, c := range map[string]struct {
		text string
		torn int
		says string
	}{
		"whole":                    {string(text), 0, ""},
		"cut":                      {string(text) + `{"event":"end","step":"b`, 1, ""},
		"no event":                 {string(text) + `{"step":"b"}`, 1, ""},
		"a change of nothing":      {string(text) + `{"event":"change","step":"b"}`, 1, ""},
		"broken, and continued":    {string(text) + "{\n" + `{"event":"resume"}` + "\n", 1, ""},
		"broken twice":             {string(text) + "{\n" + `{"step":"b"}` + "\n", 0, "is broken"},
		"broken, and not resumed":  {string(text) + "{\n" + `{"event":"start","step":"b"}` + "\n", 0, "is broken"},
		"another kind":             {strings.Replace(string(text), Kind, "RepairPlan", 1), 0, `it is a "RepairPlan"`},
		"another version":          {strings.Replace(string(text), "v1alpha1", "v2", 1), 0, `it is a`},
		"its first line is broken": {"{\n", 0, "its first line is not the header"},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Read(path)
		switch {
		case c.says == "" && (err != nil || f.Torn != c.torn), c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
}
