package repair

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/calico-audit/calico-audit/audit"
)

// JournalFile is a journal as it was read.
type JournalFile struct {
	Path string
	JournalHeader
	Entries []JournalEntry
	// Torn counts lines that a crash left unfinished. Their writes were never
	// sent.
	Torn int
}

// ReadJournal reads a journal. A line that is no JSON is forgiven where a run
// broke off: at the end, and before a run that went on. Elsewhere it is an error,
// because what is missing there may be what an undo needs.
func ReadJournal(path string) (*JournalFile, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the journal: %w", err)
	}
	defer file.Close()
	f := &JournalFile{Path: path}
	if err := f.read(file); err != nil {
		return nil, fmt.Errorf("reading the journal %s: %w", path, err)
	}
	return f, nil
}

func (f *JournalFile) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	torn := 0 // the number of a line that must have been the last of its run
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if bad := f.line(n, line, &torn); bad != nil {
				return bad
			}
		} else if n == 1 {
			return errors.New("it is empty: nothing was written under it")
		}
		if last {
			return nil
		}
	}
}

// line reads one line. torn is the number of the last line that was broken off;
// only a run that goes on may follow it.
func (f *JournalFile) line(n int, line []byte, torn *int) error {
	if n == 1 {
		if err := json.Unmarshal(line, &f.JournalHeader); err != nil {
			return fmt.Errorf("its first line is no header of a %s: %w", JournalKind, err)
		}
		if f.Kind != JournalKind || f.APIVersion != audit.APIVersion {
			return fmt.Errorf("it is a %q of %q, not a %s of %s", f.Kind, f.APIVersion, JournalKind, audit.APIVersion)
		}
		return nil
	}
	var e JournalEntry
	broken := json.Unmarshal(line, &e) != nil || !e.whole()
	if *torn > 0 && (broken || e.Event != EventResume) {
		return fmt.Errorf("line %d is broken", *torn)
	}
	if broken {
		*torn = n
		f.Torn++
		return nil
	}
	*torn = 0
	f.Entries = append(f.Entries, e)
	return nil
}

// whole tells whether an entry has what its event needs.
func (e *JournalEntry) whole() bool {
	return e.Event != "" && (e.Event != EventChange || e.Change != nil)
}

// Changes returns the changes of a step in the order in which they were sent.
func (f *JournalFile) Changes(step string) []Change {
	var out []Change
	for _, e := range f.Entries {
		if e.Event == EventChange && e.Step == step {
			out = append(out, *e.Change)
		}
	}
	return out
}

// Outcome returns the last outcome of a step, and false if none was written down.
func (f *JournalFile) Outcome(step string) (JournalEntry, bool) {
	for i := len(f.Entries) - 1; i >= 0; i-- {
		if e := f.Entries[i]; e.Event == EventEnd && e.Step == step {
			return e, true
		}
	}
	return JournalEntry{}, false
}

// Started tells whether a step was begun and broke off without an outcome. That a
// later run did not come to it, or could not judge it, is none.
func (f *JournalFile) Started(step string) bool {
	open := false
	for _, e := range f.Entries {
		if e.Step != step {
			continue
		}
		switch e.Event {
		case EventStart:
			open = true
		case EventEnd:
			open = open && e.undecided()
		default: // it neither begins nor ends
		}
	}
	return open
}

// Written returns the IDs of the steps that have changes, newest first, each
// where its last change stands.
func (f *JournalFile) Written() []string {
	var out []string
	seen := map[string]bool{}
	for i := len(f.Entries) - 1; i >= 0; i-- {
		if e := f.Entries[i]; e.Event == EventChange && !seen[e.Step] {
			seen[e.Step] = true
			out = append(out, e.Step)
		}
	}
	return out
}

// Step returns a step of the plan by ID; nil if the plan has none.
func (f *JournalFile) Step(id string) *Step {
	if f.Plan == nil {
		return nil
	}
	for i := range f.Plan.Steps {
		if f.Plan.Steps[i].ID == id {
			return &f.Plan.Steps[i]
		}
	}
	return nil
}
