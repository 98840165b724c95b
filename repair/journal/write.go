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

// Journal is the file that holds every object as it was before it was written:
// one JSON value a line, only ever appended to. From the first change on each line
// is on the disk before its method returns. After one line that could not be
// written no other is taken, so that a broken line is always the last of its run.
type Journal struct {
	path string

	mu sync.Mutex
	// file is nil until the first change; waiting are the lines before it. A run
	// that writes nothing leaves no file.
	file    appendFile
	waiting []byte
	step    string
	kept    map[blocks.Ref]bool // the objects that the step has taken down
	at      audit.Time
	err     error
}

// appendFile is what a journal needs of a file.
type appendFile interface {
	Write(line []byte) (int, error)
	// Sync returns when what was written is on the disk.
	Sync() error
	Close() error
}

// createFile creates the file of a journal, locked for as long as its run lasts.
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

// Create prepares a new journal. The file, which must not exist, is for its
// owner alone to read, and is made with the first change that is taken down. That its
// directory takes no file is an error at once; should it come to that later, it is an
// error of that change, which then must not be sent.
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

// ErrRunning says that another process is writing a journal at this moment.
var ErrRunning = errors.New("a run that is not over is writing this journal")

// Resume opens a journal that broke off, to go on in it. It is [ErrRunning] if
// its run is not over.
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

// endLine ends a line that a crash left unfinished.
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

// Path returns the path of the file, which is known before the file is there.
func (j *Journal) Path() string { return j.path }

// Exists reports whether there is a file: whether any change was taken down.
func (j *Journal) Exists() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.file != nil
}

// Untouched reports whether the step in hand has taken no change down: nothing of
// it was sent then.
func (j *Journal) Untouched() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.kept) == 0
}

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
	return j.append(Entry{Event: EventStart, Step: step})
}

// End takes down what became of a step.
func (j *Journal) End(o repair.Outcome) error {
	return j.append(Entry{Event: EventEnd, Step: o.Step.ID, Status: o.Status, Code: o.Code, Reason: o.Reason})
}

// Record takes down a change. One that takes back what the step in hand has written
// goes on although the file cannot be written any more: the object as it was is in
// the journal already, and half a step is worse than a line that is missing.
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

// create makes the file, with the lines that were waiting for it.
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

// write writes one line, and remembers if that failed. Before there is a file it
// keeps the line.
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

// put brings lines onto the disk: what they announce is sent when it returns.
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
