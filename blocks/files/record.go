package files

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// A Recorder keeps the objects of a reading, so that they can be saved as read, in one
// piece with the snapshot. They are in temporary files that only their owner can read;
// memory holds one page of a list at a time.
//
// It keeps only what an audit reads:
//
//   - Calico's objects with their whole spec;
//   - a few fields of nodes, namespaces and pods, with only KubeVirt's labels of pods and
//     without their containers;
//   - identity and age of virtual machines;
//   - annotations of Calico and of this program, the network status, and the annotations
//     against eviction;
//   - of a pod's owners the controller and a VirtualMachineInstance;
//   - of managedFields the writers and times.
//
// Set it in the options of a cluster or in [FileOptions]. A resource that is read again
// replaces its recorded objects.
type Recorder struct {
	dir    string
	spools map[blocks.Resource]*spool
	// whole are the resources that files declare as read completely, even those without
	// objects.
	whole map[blocks.Resource]bool
}

// NewRecorder returns an empty Recorder. The caller must close it.
func NewRecorder() (*Recorder, error) {
	dir, err := os.MkdirTemp("", "calico-audit-snapshot-")
	if err != nil {
		return nil, fmt.Errorf("keeping the objects read: %w", err)
	}
	r := &Recorder{dir: dir, spools: map[blocks.Resource]*spool{}, whole: map[blocks.Resource]bool{}}
	for _, k := range decode.Kinds {
		r.spools[k.Resource] = &spool{kind: k, path: filepath.Join(dir, string(k.Resource))}
	}
	return r, nil
}

// Close removes the temporary files.
func (r *Recorder) Close() error {
	var errs []error
	for _, s := range r.spools {
		if s.file != nil {
			errs = append(errs, s.file.Close())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}

// of returns the spool of a resource. A nil Recorder has nil spools, which record nothing.
func (r *Recorder) of(res blocks.Resource) *spool {
	if r == nil {
		return nil
	}
	return r.spools[res]
}

// Spool returns the spool for a resource's objects. A nil Recorder keeps no objects.
func (r *Recorder) Spool(res blocks.Resource) decode.Spool { return r.of(res) }

// readWhole records the resources that files declare as read completely.
func (r *Recorder) readWhole(resources map[blocks.Resource]bool) {
	if r == nil {
		return
	}
	for res := range resources {
		r.whole[res] = true
	}
}

// spool keeps the objects of one resource: finished pages in a file, and the current page,
// which may be read again, in memory. It is not safe for concurrent use. A nil spool keeps
// nothing.
type spool struct {
	kind *decode.Kind
	path string
	file *os.File
	page bytes.Buffer
	// count is the number of objects in the file, paged in the current page.
	count, paged int
	// scratch is a buffer for the current object.
	scratch []byte
	err     error
}

// Restart discards all objects.
func (s *spool) Restart() {
	if s == nil {
		return
	}
	s.page.Reset()
	s.count, s.paged = 0, 0
	if s.file != nil {
		_, err := s.file.Seek(0, io.SeekStart)
		s.fail(err)
		s.fail(s.file.Truncate(0))
	}
}

// Drop discards the current page.
func (s *spool) Drop() {
	if s != nil {
		s.page.Reset()
		s.paged = 0
	}
}

// Commit moves the current page to the file.
func (s *spool) Commit() {
	if s == nil || s.page.Len() == 0 {
		return
	}
	if s.file == nil {
		file, err := os.OpenFile(s.path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			s.fail(err)
			return
		}
		s.file = file
	}
	_, err := s.page.WriteTo(s.file)
	s.fail(err)
	s.page.Reset()
	s.count, s.paged = s.count+s.paged, 0
}

func (s *spool) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// Object adds an object of an API version.
func (s *spool) Object(version string, o decode.Object) {
	if s == nil {
		return
	}
	s.scratch = s.kind.AppendSaved(s.scratch[:0], version, o, nil)
	s.page.Write(s.scratch)
	s.page.WriteByte('\n')
	s.paged++
}

// commitAt is how many bytes of objects from files may wait in memory.
const commitAt = 1 << 20

// flush commits when enough objects have accumulated.
func (s *spool) flush() {
	if s != nil && s.page.Len() > commitAt {
		s.Commit()
	}
}

// each calls fn for each object.
func (s *spool) each(fn func(line []byte) error) error {
	if s == nil {
		return nil
	}
	s.Commit()
	if s.err != nil {
		return fmt.Errorf("keeping the objects read: %w", s.err)
	}
	if s.file == nil {
		return nil
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("keeping the objects read: %w", err)
	}
	in := bufio.NewReaderSize(s.file, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("keeping the objects read: %w", err)
		}
		if err := fn(line[:len(line)-1]); err != nil {
			return err
		}
	}
}
