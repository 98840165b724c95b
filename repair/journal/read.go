package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
)

// File is a parsed journal.
type File struct {
	Path string
	Header
	Entries []Entry
	// Torn is the number of truncated lines after a crash. Their writes were never sent.
	Torn int
	// Earlier are the journals that the run continues. Lost names those that could not be read.
	Earlier []*File
	Lost    []error
}

// ReadRun reads a journal and the journals that its run continues.
func ReadRun(path string) (*File, error) { return readRun(path, map[string]bool{}) }

func readRun(path string, seen map[string]bool) (*File, error) {
	f, err := Read(path)
	if err != nil {
		return nil, err
	}
	seen[filepath.Base(path)] = true
	for _, name := range f.Continues {
		if name = filepath.Base(name); seen[name] {
			continue
		}
		before, err := readRun(filepath.Join(filepath.Dir(path), name), seen)
		switch {
		case err != nil:
			f.Lost = append(f.Lost, err)
		case before.Plan == nil || before.Cluster.GUID != f.Cluster.GUID:
			f.Lost = append(f.Lost, fmt.Errorf("%s is not the journal of a run on this cluster", before.Path))
		default:
			f.Earlier = append(f.Earlier, before)
		}
	}
	return f, nil
}

// Parts are the journals of the run, the newest first.
func (f *File) Parts() []*File {
	out := []*File{f}
	for _, before := range f.Earlier {
		out = append(out, before.Parts()...)
	}
	slices.SortStableFunc(out, func(a, b *File) int { return b.StartedAt.Compare(a.StartedAt.Time) })
	return out
}

// ErrNotRegular means that the path of a journal is a directory, a pipe or a device.
var ErrNotRegular = errors.New("it is not a regular file")

// Read reads a journal. If the path is not a regular file, the error is [ErrNotRegular].
// A line with invalid JSON is tolerated where a run was interrupted: at the end, and
// before a resumed run. Elsewhere it is an error, because an undo may need the missing
// content.
func Read(path string) (*File, error) {
	// Opening a pipe may block forever, and some devices have no end.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("reading the journal %s: %w", path, ErrNotRegular)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the journal: %w", err)
	}
	defer file.Close()
	f := &File{Path: path}
	if err := f.read(file); err != nil {
		return nil, fmt.Errorf("reading the journal %s: %w", path, err)
	}
	return f, nil
}

// Is reports whether a file begins as a journal does.
func Is(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	start := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,`, audit.APIVersion, Kind)
	head := make([]byte, len(start))
	n, _ := io.ReadFull(file, head)
	return string(head[:n]) == start
}

func (f *File) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	torn := 0 // number of a broken line, after which only a resumed run may follow
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

// line parses one line. torn is the number of the last truncated line, after which only a
// resumed run may follow.
func (f *File) line(n int, line []byte, torn *int) error {
	if n == 1 {
		if err := json.Unmarshal(line, &f.Header); err != nil {
			return fmt.Errorf("its first line is not the header of a %s: %w", Kind, blocks.FieldError(err))
		}
		if f.Kind != Kind || f.APIVersion != audit.APIVersion {
			return fmt.Errorf("it is a %q of %q, not a %s of %s", f.Kind, f.APIVersion, Kind, audit.APIVersion)
		}
		return nil
	}
	var e Entry
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

// whole reports whether an entry has the fields of its event.
func (e *Entry) whole() bool {
	return e.Event != "" && (e.Event != EventChange || e.Change != nil)
}

// Running reports whether a process writes the journal at this moment.
func (f *File) Running() bool {
	file, err := os.Open(f.Path)
	if err != nil {
		return false
	}
	defer file.Close()
	return errors.Is(lock(file), ErrRunning)
}
