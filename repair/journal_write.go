package repair

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// Journal is the file that holds every object as it was before it was written:
// one JSON value a line, only ever appended to. Each line is on the disk before
// its method returns. After one line that could not be written no other is taken,
// so that a broken line is always the last of its run.
type Journal struct {
	path string

	mu   sync.Mutex
	file *os.File
	step string
	kept map[blocks.Ref]bool // the objects that the step has taken down
	at   audit.Time
	err  error
}

// CreateJournal makes a new file, which must not exist, for its owner alone to
// read.
func CreateJournal(path string, h JournalHeader) (*Journal, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating the journal: %w", err)
	}
	h.APIVersion, h.Kind = audit.APIVersion, JournalKind
	j := &Journal{path: path, file: file, at: h.StartedAt}
	if err := errors.Join(j.write(h), syncDirectory(filepath.Dir(path))); err != nil {
		return nil, errors.Join(fmt.Errorf("creating the journal: %w", err), file.Close(), os.Remove(path))
	}
	return j, nil
}

// ResumeJournal opens a journal that broke off, to go on in it.
func ResumeJournal(path string, at audit.Time) (*Journal, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	j := &Journal{path: path, file: file, at: at}
	if err := j.endLine(); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the journal: %w", err), file.Close())
	}
	if err := j.append(JournalEntry{Event: EventResume}); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return j, nil
}

// endLine ends a line that a crash left unfinished.
func (j *Journal) endLine() error {
	info, err := j.file.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := j.file.ReadAt(last, info.Size()-1); err != nil {
		return err
	}
	if last[0] == '\n' {
		return nil
	}
	_, err = j.file.Write([]byte("\n"))
	return err
}

// syncDirectory puts a new file's name on the disk. Systems that cannot do that
// for a directory do it with the file.
func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	_ = dir.Sync()
	return dir.Close()
}

// Path returns the path of the file.
func (j *Journal) Path() string { return j.path }

// Err returns why the journal takes no more lines; nil if it does.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Clock tells the journal the API server's time.
func (j *Journal) Clock(now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.at = audit.Time{Time: now}
}

// Start takes down that a step begins. Changes that name no step are its own.
func (j *Journal) Start(step string) error {
	j.mu.Lock()
	j.step, j.kept = step, map[blocks.Ref]bool{}
	j.mu.Unlock()
	return j.append(JournalEntry{Event: EventStart, Step: step})
}

// End takes down what became of a step.
func (j *Journal) End(o Outcome) error {
	return j.append(JournalEntry{Event: EventEnd, Step: o.Step.ID, Status: o.Status, Code: o.Code, Reason: o.Reason})
}

// Record takes down a change. One that takes back what the step in hand has written
// goes on although the file cannot be written any more: the object as it was is in
// the journal already, and half a step is worse than a line that is missing.
func (j *Journal) Record(c Change) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if c.Step == "" {
		c.Step = j.step
	}
	object := blocks.Ref{Resource: c.Resource, Name: c.Name}
	known := c.Step == j.step && j.kept[object]
	err := j.add(JournalEntry{Event: EventChange, Step: c.Step, Change: &c})
	if err != nil && c.Back && known {
		return nil
	}
	if err == nil && c.Step == j.step && j.kept != nil {
		j.kept[object] = true
	}
	return err
}

func (j *Journal) append(e JournalEntry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.add(e)
}

// add writes an entry; the lock is held.
func (j *Journal) add(e JournalEntry) error {
	e.At = j.at
	return j.write(e)
}

// write writes one line, and remembers if that failed.
func (j *Journal) write(v any) error {
	if j.err != nil {
		return j.err
	}
	line, err := json.Marshal(v)
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		j.err = fmt.Errorf("writing the journal %s: %w", j.path, err)
	}
	return j.err
}

// Close closes the file.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = fmt.Errorf("writing the journal %s: it is closed", j.path)
	}
	return j.file.Close()
}
