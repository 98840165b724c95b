package journal

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
	"github.com/calico-audit/calico-audit/repair"
)

// Journal is a file with the previous version of every written object: one JSON value per
// line, append-only. From the first change on, each line is on disk before its method
// returns. After a line that could not be written, no further line is accepted, so that a
// broken line is always the last of its run.
type Journal struct {
	path string

	mu sync.Mutex
	// file is nil until the first change, and waiting holds the lines before it. A run
	// without writes leaves no file.
	file    appendFile
	waiting []byte
	step    string
	kept    map[blocks.Ref]bool // the objects that the current step has recorded
	at      audit.Time
	err     error
}

// appendFile is the part of a file that a journal uses.
type appendFile interface {
	Write(line []byte) (int, error)
	// Sync returns when all written data is on disk.
	Sync() error
	Close() error
}

// createFile creates a journal's file, which stays locked until its run ends.
var createFile = func(path string) (appendFile, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Create prepares a new journal. The file must not exist. It is created with the first
// recorded change, readable only by its owner. If its directory is not writable, Create
// returns an error immediately. If the file cannot be created later, the first change returns
// the error and must not be sent.
func Create(path string, h Header) (*Journal, error) {
	h.APIVersion, h.Kind = audit.APIVersion, Kind
	j := &Journal{path: path, at: h.StartedAt}
	err := error(&os.PathError{Op: "open", Path: path, Err: os.ErrExist})
	if _, missing := os.Lstat(path); missing != nil {
		var probe *os.File
		if probe, err = os.CreateTemp(filepath.Dir(path), ".calico-audit-journal-*"); err == nil {
			err = errors.Join(probe.Close(), os.Remove(probe.Name()), j.write(h))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("creating the journal: %w", err)
	}
	return j, nil
}

// ErrRunning means that another process is writing the journal.
var ErrRunning = errors.New("another run is still writing this journal")

// Resume opens an interrupted journal to continue it. The error is [ErrRunning] if its
// run is still active.
func Resume(path string, at audit.Time) (*Journal, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	j := &Journal{path: path, file: file, at: at}
	if err = lock(file); err == nil {
		err = endLine(file)
	}
	if err == nil {
		err = j.append(Entry{Event: EventResume})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the journal: %w", err), file.Close())
	}
	return j, nil
}

// endLine completes a line that a crash truncated.
func endLine(file *os.File) error {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := file.ReadAt(last, info.Size()-1); err != nil {
		return err
	}
	if last[0] == '\n' {
		return nil
	}
	_, err = file.Write([]byte("\n"))
	return err
}

// syncDirectory writes a new file's name to disk. Systems that cannot sync a directory do
// it with the file.
func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	_ = dir.Sync()
	return dir.Close()
}

// Path returns the path of the file, even before the file exists.
func (j *Journal) Path() string { return j.path }

// Exists reports whether the file exists, that is, whether any change was recorded.
func (j *Journal) Exists() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.file != nil
}

// Unwritten returns the error that kept the current step from recording a change, so that it has
// sent no write; nil if it has recorded one, or may.
func (j *Journal) Unwritten() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.kept) > 0 {
		return nil
	}
	return j.err
}

// Err returns why the journal accepts no more lines, or nil.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Clock sets the API server's time for later entries.
func (j *Journal) Clock(now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.at = audit.Time{Time: now}
}

// Start records the start of a step. Later changes without a step belong to it.
func (j *Journal) Start(step string) error {
	j.mu.Lock()
	j.step, j.kept = step, map[blocks.Ref]bool{}
	j.mu.Unlock()
	return j.append(Entry{Event: EventStart, Step: step})
}

// End records the outcome of a step.
func (j *Journal) End(o repair.Outcome) error {
	return j.append(Entry{Event: EventEnd, Step: o.Step.ID, Status: o.Status, Code: o.Code, Reason: o.Reason})
}

// Record records a change. A change that reverts one of the current step is accepted even if the
// file can no longer be written: the journal already has the previous object, and a half-done step
// is worse than a missing line.
func (j *Journal) Record(c repair.Change) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if c.Step == "" {
		c.Step = j.step
	}
	known := j.kept[c.Ref()]
	if j.file == nil {
		if err := j.create(); err != nil {
			return err
		}
	}
	err := j.write(Entry{Event: EventChange, At: j.at, Step: c.Step, Change: &c})
	if err != nil && c.Back && known {
		return nil
	}
	if err == nil && j.kept != nil {
		j.kept[c.Ref()] = true
	}
	return err
}

func (j *Journal) append(e Entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.At = j.at
	return j.write(e)
}

// create creates the file with the waiting lines.
func (j *Journal) create() error {
	if j.err != nil {
		return j.err
	}
	file, err := createFile(j.path)
	if err != nil {
		j.err = fmt.Errorf("creating the journal: %w", err)
		return j.err
	}
	if err = errors.Join(put(file, j.waiting), syncDirectory(filepath.Dir(j.path))); err != nil {
		j.err = fmt.Errorf("creating the journal: %w", errors.Join(err, file.Close(), os.Remove(j.path)))
		return j.err
	}
	j.file, j.waiting = file, nil
	return nil
}

// write writes one line and remembers a failure. Before the file exists, it keeps the
// line.
func (j *Journal) write(v any) error {
	if j.err != nil {
		return j.err
	}
	line, err := json.Marshal(v)
	line = append(line, '\n')
	switch {
	case err != nil:
	case j.file == nil:
		j.waiting = append(j.waiting, line...)
	default:
		err = put(j.file, line)
	}
	if err != nil {
		j.err = fmt.Errorf("writing the journal %s: %w", j.path, err)
	}
	return j.err
}

// put writes lines to disk. The announced writes are sent after it returns.
func put(file appendFile, lines []byte) error {
	if _, err := file.Write(lines); err != nil {
		return err
	}
	return file.Sync()
}

// Close closes the file.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = fmt.Errorf("writing the journal %s: it is closed", j.path)
	}
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}
