package files

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// FileOptions are options for reading files.
type FileOptions struct {
	// At is when the files were written, the reference time for ages. Zero means the
	// takenAt of a saved snapshot, or else the newest time in any object. A time before the
	// creation of an object, or before the recorded takenAt, is an error.
	At time.Time
	// Warn receives one line per warning, such as two versions of one object; may be nil.
	Warn func(string)
	// Budgets enables decoding of pods' labels, which PodDisruptionBudgets select by; see
	// [blocks.Snapshot.BudgetsKnown]. Saved snapshots contain neither labels nor budgets.
	Budgets bool
	// WarnIgnored also warns of objects of kinds that an audit does not read.
	WarnIgnored bool
	// Record keeps the objects; may be nil.
	Record *Recorder
}

// ReadFiles reads a sorted snapshot from files of Kubernetes objects: the output of
// "kubectl get" with "-o yaml" or "-o json", or of "calico-audit snapshot". A path is a
// file, a directory (searched for *.yaml, *.yml and *.json, also compressed as .gz, without
// hidden files), a symbolic link to one of these, or "-" for standard input.
//
// ReadFiles returns an error for mistakes of the caller: a missing or unreadable file,
// broken YAML or JSON (with file, document and line), a document that is not a Kubernetes
// object, or files without any object for an audit. A well-formed but invalid object is a
// gap.
//
// A kind counts as read if the files hold an object of it, an empty List of it (kind:
// IPAMBlockList), or a snapshot that counted it. Any other kind is a gap if a verdict needs
// it. A warning lists all kinds that were not read.
//
// Truncated files are a gap of each kind that may be incomplete. A list is truncated if it
// is one page of a longer list (by its continue token or remaining count). A saved snapshot
// must be in one file, from its SnapshotInfo to its SnapshotEnd, and must hold as many
// objects as it claims. Snapshots of versions that recorded no counts are complete up to
// their last kind. A YAML list of kubectl has its kind after the items; a list without kind
// is an error.
func ReadFiles(paths []string, opts FileOptions) (*blocks.Snapshot, error) {
	f := newFileReader(opts)
	if len(paths) == 0 {
		return nil, errors.New("no file given")
	}
	for _, path := range paths {
		files, err := Expand(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if err := f.file(file); err != nil {
				return nil, err
			}
		}
	}
	return f.snapshot(paths)
}

// Expand returns the files of a path, sorted. For a directory it returns the files that may
// hold objects.
func Expand(path string) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("reading files: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	root := path + string(filepath.Separator) // follows a symbolic link
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == root:
			return nil
		case strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir() || !holdsObjects(entry.Name()):
			return nil
		}
		// Follow links to files: a mounted ConfigMap contains nothing but links.
		if info, err := os.Stat(name); err != nil {
			return err
		} else if info.Mode().IsRegular() {
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading directory %s: %w", path, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("reading directory %s: it holds no .yaml, .yml or .json file", path)
	}
	slices.Sort(files)
	return files, nil
}

func holdsObjects(name string) bool {
	name = strings.TrimSuffix(strings.ToLower(name), ".gz")
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// file reads one file.
func (f *fileReader) file(path string) (err error) {
	name := path
	var in io.Reader = os.Stdin
	if path == "-" {
		name = "standard input"
	} else {
		file, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("reading files: %w", err)
		}
		defer file.Close()
		in = file
	}
	text, err := Decompress(in)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	f.current, f.document, f.list = name, 0, listed{}
	documents, err := Split(text, f.object, f.endList)
	f.endSaved()
	var syntax *decode.FileError
	var pathError *fs.PathError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("%s: %w", name, err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("reading %s: %w of the gzip data; is the file cut off?", name, err)
	case errors.As(err, &pathError):
		return fmt.Errorf("reading %s: %w", name, pathError.Err)
	case err != nil:
		return fmt.Errorf("reading %s: %w", name, err)
	case documents == 0:
		return fmt.Errorf("%s: it holds no object", name)
	}
	return nil
}

// Decompress returns a reader that decompresses gzip, which it detects by its first bytes.
func Decompress(in io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(in, 1<<16)
	if magic, _ := buffered.Peek(2); string(magic) != "\x1f\x8b" {
		return buffered, nil
	}
	text, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, fmt.Errorf("reading gzip: %w", err)
	}
	return text, nil
}
