package files

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// ReadFiles reads a sorted snapshot from files of Kubernetes objects: the output of
// "kubectl get" with "-o yaml" or "-o json", or of "calico-audit snapshot". A path is a
// file, a directory or an archive (both searched for *.yaml, *.yml, *.json and further archives,
// without hidden files), a symbolic link to one of these, or "-" for standard input. Archives
// are tar and zip; everything may be compressed with gzip.
//
// ReadFiles returns an error for mistakes of the caller: a missing or unreadable file, broken YAML
// or JSON (with file, document and line), an object without kind or apiVersion, or files without
// any object for an audit. A well-formed but invalid object is a gap. Content that is not a
// Kubernetes object is skipped and counted in a warning. An error message of kubectl is a gap of
// the kind that it names.
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
		leftOut, err := eachText(path, f.text)
		if err != nil {
			return nil, err
		}
		f.leftOut += leftOut
	}
	return f.snapshot(paths)
}

// text reads the objects of one text. A text in a directory or archive that begins with no
// Kubernetes object is skipped.
func (f *fileReader) text(t text) error {
	f.current, f.document, f.list = t.name, 0, listed{}
	in := bufio.NewReaderSize(t.in, 1<<16)
	head, _ := in.Peek(1 << 16)
	objects := t.named || bytes.Contains(head, []byte("apiVersion"))
	text := &lines{in: in, message: f.message}
	documents, err := Split(text, f.object, f.endList)
	f.endSaved()
	var syntax *parse.FileError
	switch {
	case errors.As(err, &syntax) && objects:
		return fmt.Errorf("%s: %w", t.name, err)
	case err != nil && syntax == nil:
		return readError(t.name, err)
	case documents == 0 && t.named && !text.found:
		return fmt.Errorf("%s: it holds no object", t.name)
	case err != nil || documents == 0 && !text.found:
		f.skipped++
	}
	return nil
}
