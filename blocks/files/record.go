package files

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/alias"
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

// SaveOptions are options for saving a snapshot.
type SaveOptions struct {
	// Anonymize replaces names of nodes, pods, namespaces, pools, handles and other
	// objects, the cluster's GUID, UIDs, label keys and values, addresses of nodes and BGP
	// peers, and AS numbers other than Calico's default. Addresses of pools, CIDRs, times
	// and versions stay. Calico's objects are reduced to the fields that an audit reads.
	Anonymize bool
}

// Save calls emit for each object of a saved snapshot, as JSON on one line. The first is a
// SnapshotInfo: when and where s was read, its gaps, and the number of objects of each
// kind. The recorded objects follow. The last is a SnapshotEnd, which proves to readers
// that no object was lost. s must be the snapshot of the recorded objects. [ReadFiles]
// reads the emitted objects as the same snapshot.
//
// The bytes are only valid during the call. The names are nil unless o.Anonymize is set.
func (r *Recorder) Save(s *blocks.Snapshot, o SaveOptions, emit func(object []byte) error) (alias.Names, error) {
	var n *alias.Aliases
	if o.Anonymize {
		n = alias.New()
		if err := r.eachSaved(n, func([]byte) error { return nil }); err != nil {
			return nil, err
		}
		n.EndCollecting()
	}
	if err := emit(r.info(s, n)); err != nil {
		return nil, err
	}
	objects := 0
	if err := r.eachSaved(n, func(object []byte) error {
		objects++
		return emit(object)
	}); err != nil {
		return nil, err
	}
	if err := emit(r.end(s, objects)); err != nil || n == nil {
		return nil, err
	}
	return n.Table(), nil
}

func (r *Recorder) eachSaved(n *alias.Aliases, emit func(object []byte) error) error {
	var out []byte
	for _, res := range blocks.Resources {
		s := r.spools[res]
		if err := s.each(func(line []byte) error {
			if n == nil {
				return emit(line)
			}
			_, version := kindAndVersion(line)
			n.Claimant = decode.Claimant(line)
			out = s.kind.AppendSaved(out[:0], version, decode.Object{Text: line}, n)
			return emit(out)
		}); err != nil {
			return err
		}
	}
	return nil
}

// readWholly returns the resources that were read completely, in order.
func (r *Recorder) readWholly(s *blocks.Snapshot) []blocks.Resource {
	out := []blocks.Resource{}
	for _, res := range blocks.Resources {
		whole := s.Cluster.Live || r.whole[res]
		if slices.Contains(blocks.VMKinds, res) {
			whole = s.VMsKnown // KubeVirt may not be served, or not be permitted
		}
		if _, missing := s.Missing(res); !missing && whole {
			out = append(out, res)
		}
	}
	return slices.Clip(out)
}
