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

// FileOptions are choices for reading files.
type FileOptions struct {
	// At is when the files were written, which all ages are counted from. Zero:
	// the takenAt that "calico-audit snapshot" recorded in them, else the newest
	// time in any object that was read. One before the files' objects were created,
	// or before the recorded time, is an error.
	At time.Time
	// Warn is called with one line for each thing that a user should know and
	// that is not an error, such as two versions of one object. nil drops them.
	Warn func(string)
	// Budgets has the labels of pods read, by which PodDisruptionBudgets select them; see
	// [blocks.Snapshot.BudgetsKnown]. Neither stands in a saved snapshot.
	Budgets bool
	// WarnIgnored warns of objects of kinds that an audit does not read, too.
	WarnIgnored bool
	// Record keeps the objects that are read; nil keeps none.
	Record *Recorder
}

// ReadFiles makes a snapshot, sorted, of files of Kubernetes objects: whatever
// "kubectl get -o yaml" or "-o json" prints, and what "calico-audit snapshot"
// writes. A path is a file, a directory (searched for *.yaml, *.yml and *.json, each
// also compressed as .gz, hidden ones left out), a symbolic link to one of these, or
// "-" for standard input.
//
// An error is a mistake in the call, to be put right by its author: a file that
// is missing or cannot be read, broken YAML or JSON (with file, document and
// line), a document that is no Kubernetes object, or files without any object that
// an audit reads. An object that is well-formed and makes no sense is a gap.
//
// A kind was read if the files hold an object of it, an empty List of it (kind:
// IPAMBlockList), or a snapshot that counted it. Any other kind is a gap, unless no verdict
// needs it; a warning names those.
//
// So are files that are cut off, with a gap of each kind of which something may be
// missing: a list that is a page of a longer one (by its continue token or remaining
// count), and what the snapshot command wrote, unless it ends as it should and holds
// as many objects as it says. Such a snapshot stands in one file, from its SnapshotInfo
// to its SnapshotEnd; those of versions that counted nothing are whole up to the last
// kind that is there. A list of kubectl in YAML tells its kind after its items; without
// it, it is an error.
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

// Expand returns the files that a path stands for, sorted: of a directory those that may
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
	root := path + string(filepath.Separator) // what a symbolic link leads to
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
		// Links to files are followed; a mounted ConfigMap has nothing else.
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

// Decompress reads what may be gzip, which its first bytes tell.
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
