package files

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// text is a text that may hold objects.
type text struct {
	// name is the file's path. In an archive, the archive's path precedes the member's.
	name string
	in   io.Reader
	// named is true for a file that the user named, rather than found in a directory or archive.
	named bool
}

// eachText calls fn with each text under a path: a file, the files of a directory, or the members
// of an archive (tar or zip, also within another archive), compressed or not. Hidden files are left
// out. It returns the number of files that it skipped because of their names (neither YAML, JSON
// nor an archive), and an error if no other file exists.
func eachText(root string, fn func(text) error) (leftOut int, err error) {
	w := texts{fn: fn}
	if err := w.root(root); err != nil {
		return 0, err
	}
	if !w.found {
		return 0, fmt.Errorf("reading %s: it holds no .yaml, .yml or .json file", root)
	}
	return w.leftOut, nil
}

// texts reads files and archives.
type texts struct {
	fn      func(text) error
	leftOut int
	found   bool
}

func (w *texts) root(path string) error {
	if path == "-" {
		return w.read(text{"standard input", os.Stdin, true})
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("reading files: %w", err)
	}
	if !info.IsDir() {
		return w.file(path, true)
	}
	paths, err := regularFiles(path)
	for _, path := range paths {
		if err == nil {
			err = w.member(path, func() error { return w.file(path, false) })
		}
	}
	return err
}

func (w *texts) file(path string, named bool) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading files: %w", err)
	}
	defer file.Close()
	return w.read(text{path, file, named})
}

// otherPackers holds the first bytes of files compressed by other programs than gzip.
var otherPackers = map[string]string{"xz": "\xfd7zXZ\x00", "zstd": "\x28\xb5\x2f\xfd", "bzip2": "BZh"}

// read detects the format of a text by its first bytes.
func (w *texts) read(t text) error {
	unpacked, err := Decompress(t.in)
	if err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	in := bufio.NewReaderSize(unpacked, 1<<16)
	head, _ := in.Peek(512)
	switch {
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return readError(t.name, w.zip(t, in))
	case len(head) > 262 && string(head[257:262]) == "ustar":
		return readError(t.name, w.tar(t.name, in))
	}
	for program, magic := range otherPackers {
		if t.named && bytes.HasPrefix(head, []byte(magic)) {
			return fmt.Errorf("%s is compressed with %s, which is not supported: decompress it first", t.name, program)
		}
	}
	w.found = true
	return w.fn(text{t.name, in, t.named})
}

// member calls read if the file's name allows it to hold objects.
func (w *texts) member(name string, read func() error) error {
	switch base := path.Base(filepath.ToSlash(name)); {
	case strings.HasPrefix(base, "."):
	case !isObjects(base) && !isArchive(base):
		w.leftOut++
	default:
		return read()
	}
	return nil
}

func (w *texts) tar(name string, in io.Reader) error {
	end := &lastBlock{in: in}
	for archive := tar.NewReader(end); ; {
		switch header, err := archive.Next(); {
		case err == io.EOF && end.block != [512]byte{}:
			return io.ErrUnexpectedEOF // archive/tar takes this for the end of the archive
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case header.Typeflag == tar.TypeReg:
			member := path.Join(name, path.Clean("/"+header.Name))
			if err := w.member(member, func() error { return w.read(text{member, archive, false}) }); err != nil {
				return err
			}
		}
	}
}

// lastBlock keeps the last block that was read. A complete tar archive ends with a block of zeros.
type lastBlock struct {
	in    io.Reader
	block [512]byte
}

func (l *lastBlock) Read(p []byte) (n int, err error) {
	n, err = l.in.Read(p)
	if n >= len(l.block) {
		copy(l.block[:], p[n-len(l.block):n])
	} else {
		copy(l.block[:], append(bytes.Clone(l.block[n:]), p[:n]...))
	}
	return n, err
}

// zip reads a zip archive, whose directory is at its end. Input that is not a regular file is kept
// in memory.
func (w *texts) zip(t text, in io.Reader) error {
	file, ok := t.in.(*os.File)
	var at io.ReaderAt = file
	var size int64
	if info, err := file.Stat(); ok && err == nil && info.Mode().IsRegular() {
		size = info.Size()
	} else {
		raw, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		at, size = bytes.NewReader(raw), int64(len(raw))
	}
	archive, err := zip.NewReader(at, size)
	if err != nil {
		return err
	}
	for _, f := range archive.File {
		if !f.Mode().IsRegular() {
			continue
		}
		member := path.Join(t.name, path.Clean("/"+f.Name))
		err := w.member(member, func() error {
			packed, err := f.Open()
			if err != nil {
				return err
			}
			defer packed.Close()
			return w.read(text{member, packed, false})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readError names the file in an error of reading it, unless the error names it already.
func readError(name string, err error) error {
	var pathError *fs.PathError
	switch {
	case err == nil || strings.Contains(err.Error(), name):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("reading %s: %w; is the file cut off?", name, err)
	case errors.As(err, &pathError):
		err = pathError.Err
	}
	return fmt.Errorf("reading %s: %w", name, err)
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
	files, err := regularFiles(path)
	files = slices.DeleteFunc(files, func(name string) bool { return !isObjects(name) })
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("reading directory %s: it holds no .yaml, .yml or .json file", path)
	}
	return files, err
}

// regularFiles returns the files in a directory and below, sorted, without hidden ones. It
// follows links to files: a mounted ConfigMap contains nothing but links.
func regularFiles(dir string) (files []string, err error) {
	root := dir + string(filepath.Separator) // follows a symbolic link
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
		case entry.IsDir():
			return nil
		}
		if info, err := os.Stat(name); err != nil {
			return err
		} else if info.Mode().IsRegular() {
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading directory %s: %w", dir, err)
	}
	slices.Sort(files)
	return files, nil
}

// isObjects and isArchive report by a file's name whether it may hold objects.
func isObjects(name string) bool { return hasExtension(name, ".yaml", ".yml", ".json") }
func isArchive(name string) bool { return hasExtension(name, ".tar", ".tgz", ".zip") }

func hasExtension(name string, extensions ...string) bool {
	name = strings.TrimSuffix(strings.ToLower(name), ".gz")
	return slices.Contains(extensions, filepath.Ext(name))
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
