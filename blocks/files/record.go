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

// A Recorder keeps the objects of a reading, as bytes, beside the snapshot that
// is made of them, so that both can be saved as they were read, once. It keeps
// them in temporary files that only their owner can read; memory is needed for a
// page of a list at a time.
//
// It holds what an audit reads and no more: Calico's own objects with their whole
// spec, of nodes, namespaces and pods a few fields (no labels of pods but KubeVirt's,
// nothing of their containers), of virtual machines the identity and age, of all of
// them no annotations but Calico's, our own, the network status and those that ask not
// to evict a pod, of a pod's owners its controller alone, and of managedFields who wrote
// when.
//
// Give it to the options of a cluster or [FileOptions]. A resource that is read again
// replaces what was recorded of it.
type Recorder struct {
	dir    string
	spools map[blocks.Resource]*spool
	// whole are resources that files said were read whole, also where no object
	// of them exists.
	whole map[blocks.Resource]bool
}

// NewRecorder returns an empty Recorder. It must be closed.
func NewRecorder() (*Recorder, error) {
	dir, err := os.MkdirTemp("", "calico-audit-snapshot-")
	if err != nil {
		return nil, fmt.Errorf("keeping what is read: %w", err)
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

// of returns the spool of a resource; nil, which records nothing, for a nil
// Recorder.
func (r *Recorder) of(res blocks.Resource) *spool {
	if r == nil {
		return nil
	}
	return r.spools[res]
}

// Spool returns what keeps the objects of a resource; a nil Recorder keeps nothing.
func (r *Recorder) Spool(res blocks.Resource) decode.Spool { return r.of(res) }

// readWhole records what files say was read whole.
func (r *Recorder) readWhole(resources map[blocks.Resource]bool) {
	if r == nil {
		return
	}
	for res := range resources {
		r.whole[res] = true
	}
}

// spool keeps the objects of one resource: in a file those of finished pages, in
// memory those of the page at hand, which may yet be read again. Only one
// goroutine may use it at a time. A nil spool keeps nothing.
type spool struct {
	kind *decode.Kind
	path string
	file *os.File
	page bytes.Buffer
	// count is how many objects the file holds, paged how many the page does.
	count, paged int
	// scratch is the object at hand.
	scratch []byte
	err     error
}

// Restart forgets everything.
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

// Drop forgets the page at hand.
func (s *spool) Drop() {
	if s != nil {
		s.page.Reset()
		s.paged = 0
	}
}

// Commit keeps the page at hand for good.
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

// Object keeps an object of the API version given.
func (s *spool) Object(version string, o decode.Object) {
	if s == nil {
		return
	}
	s.scratch = s.kind.AppendSaved(s.scratch[:0], version, o, nil)
	s.page.Write(s.scratch)
	s.page.WriteByte('\n')
	s.paged++
}

// commitAt is how much of a file's objects may wait in memory.
const commitAt = 1 << 20

// flush commits once enough has come together.
func (s *spool) flush() {
	if s != nil && s.page.Len() > commitAt {
		s.Commit()
	}
}

// each calls fn with each object that was kept.
func (s *spool) each(fn func(line []byte) error) error {
	if s == nil {
		return nil
	}
	s.Commit()
	if s.err != nil {
		return fmt.Errorf("keeping what was read: %w", s.err)
	}
	if s.file == nil {
		return nil
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("keeping what was read: %w", err)
	}
	in := bufio.NewReaderSize(s.file, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("keeping what was read: %w", err)
		}
		if err := fn(line[:len(line)-1]); err != nil {
			return err
		}
	}
}

// SaveOptions are choices for saving a snapshot.
type SaveOptions struct {
	// Anonymize replaces names: of nodes, pods, namespaces, pools, handles and
	// other objects, the cluster's GUID, UIDs, label keys and values. Addresses,
	// CIDRs, times, versions and AS numbers stay, and of Calico's objects only
	// those fields do that an audit reads.
	Anonymize bool
}

// Save calls emit with the objects of a saved snapshot, each as JSON on one line:
// first one of kind SnapshotInfo that says when and where s was read, what is missing
// from it and how many objects of which kinds follow; then the recorded objects; and
// one of kind SnapshotEnd, by which anyone who reads them knows that none were lost. s
// must be the snapshot that was made of them. [ReadFiles] makes the same snapshot of
// what was emitted.
//
// The bytes are only valid during the call. The names are nil unless replaced.
func (r *Recorder) Save(s *blocks.Snapshot, o SaveOptions, emit func(object []byte) error) (alias.Names, error) {
	var n *decode.Anonymizer
	if o.Anonymize {
		n = decode.NewAnonymizer()
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

func (r *Recorder) eachSaved(n *decode.Anonymizer, emit func(object []byte) error) error {
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

// readWholly returns the resources that were read whole, in order.
func (r *Recorder) readWholly(s *blocks.Snapshot) []blocks.Resource {
	out := []blocks.Resource{}
	for _, res := range blocks.Resources {
		whole := s.Cluster.Live || r.whole[res]
		if slices.Contains(blocks.VMKinds, res) {
			whole = s.VMsKnown // where they are not served, nothing is known of them
		}
		if _, missing := s.Missing(res); !missing && whole {
			out = append(out, res)
		}
	}
	return slices.Clip(out)
}
