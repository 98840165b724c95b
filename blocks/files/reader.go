package files

import (
	"fmt"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
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

// fileReader collects the objects of files.
type fileReader struct {
	opts FileOptions
	// The current file, document, list and saved snapshot.
	current  string
	document int
	list     listed
	saved    savedSnapshot

	// leftOut counts the files that were skipped because of their names; skipped counts the files,
	// documents and messages that are not objects. why describes the first such document.
	leftOut, skipped int
	why              error
	messages         []message
	// clusters is the error for files of two clusters.
	clusters error

	core, crd, native groupObjects // by API group
	ignored           map[string]int
	// parts are the files of the objects of a kind, in order.
	parts map[*decode.Objects][]part
	// emptyLists are the Lists without items. empty are their kinds, if they belong to the API
	// group that is read.
	emptyLists map[emptyList]bool
	empty      map[blocks.Resource]bool
	ours       string // a command's output file in the input; empty if there is none
	objects    int    // of kinds that an audit reads
	newest     time.Time
	info       snapshotInfo
	// reader reads the envelopes of objects, and decoder the objects. Both are reused,
	// because creating them costs more than reading an object.
	reader  *parse.Reader
	decoder decode.Decoder
	kinds   map[string]*decode.Kind
}

// emptyList is a kind in a version of an API.
type emptyList struct {
	kind    *decode.Kind
	version string
}

// part begins the objects of one file.
type part struct {
	from int
	file string
}

func newFileReader(opts FileOptions) *fileReader {
	f := &fileReader{opts: opts, reader: parse.New(nil), ignored: map[string]int{}, empty: map[blocks.Resource]bool{}, emptyLists: map[emptyList]bool{}, parts: map[*decode.Objects][]part{}, kinds: map[string]*decode.Kind{}, core: groupObjects{}, crd: groupObjects{}, native: groupObjects{}}
	f.decoder = decode.Decoder{Strings: &decode.SharedStrings{}, Newest: &f.newest, PodLabels: opts.Budgets}
	f.info.resources = map[blocks.Resource]bool{}
	for _, k := range slices.Concat(decode.Kinds, decode.OnDemand) {
		for _, name := range k.Names {
			if !k.OfCalico() {
				f.kinds[k.Version("")+"/"+name] = k
				continue
			}
			f.kinds[decode.GroupCRD+"/"+name] = k
			f.kinds[decode.GroupNative+"/"+name] = k
		}
	}
	return f
}

// snapshotInfo summarises the SnapshotInfo objects of the files.
type snapshotInfo struct {
	// snapshots is their number; mixed is true if their times differ.
	snapshots int
	mixed     bool

	takenAt  time.Time
	apiGroup string
	reason   string
	// ageless is true if objects were in an etcd of Calico's own: see [blocks.Cluster].
	ageless bool
	// resources were read completely, even those without objects.
	resources map[blocks.Resource]bool
	// gaps are whole resources that could not be read.
	gaps []blocks.Gap
}

// groupObjects holds the objects of one API group, by kind.
type groupObjects map[*decode.Kind]*decode.Objects

// of returns the objects of a kind.
func (g groupObjects) of(k *decode.Kind) *decode.Objects {
	if g[k] == nil {
		g[k] = decode.NewObjects(k)
	}
	return g[k]
}

// empty reports whether no object was read.
func (g groupObjects) empty() bool {
	for _, o := range g {
		if o.Found() {
			return false
		}
	}
	return true
}

func (f *fileReader) group(version string) groupObjects {
	switch version {
	case decode.GroupCRD:
		return f.crd
	case decode.GroupNative:
		return f.native
	}
	return f.core
}

func (f *fileReader) warn(format string, args ...any) {
	if f.opts.Warn != nil {
		f.opts.Warn(fmt.Sprintf(format, args...))
	}
}

// listed collects the kinds of a list's items.
type listed struct {
	kinds []*decode.Objects
	// others is true if there are items of kinds that an audit does not read.
	others bool
}

func (l *listed) add(k *decode.Objects) {
	// Most lists have items of one kind.
	if n := len(l.kinds); n > 0 && l.kinds[n-1] == k || slices.Contains(l.kinds, k) {
		return
	}
	l.kinds = append(l.kinds, k)
}

// savedSnapshot tracks the current saved snapshot, from its SnapshotInfo to its SnapshotEnd
// in one file. The zero value means that there is none.
type savedSnapshot struct {
	open    bool
	takenAt time.Time
	// counts are the numbers of objects that it claims to have; nil if an earlier version
	// wrote it without counts.
	counts map[blocks.Resource]int
	seen   map[blocks.Resource]int
	// last is the index in blocks.Resources of the latest kind; -1 at first. All objects of
	// a kind are together, in that order. Without counts, only the order shows which kinds
	// are complete.
	last     int
	disorder bool
}

func (s *savedSnapshot) count(res blocks.Resource) {
	if !s.open {
		return
	}
	s.seen[res]++
	if s.counts == nil {
		place := slices.Index(blocks.Resources, res)
		s.disorder = s.disorder || place < s.last
		s.last = place
	}
}

// message is a line that was saved instead of objects.
type message struct {
	resource blocks.Resource
	file     string
	text     string
}

// infoKind is the kind of the first object that "calico-audit snapshot" writes. The object records
// the scope and the time of the reading. endKind is the kind of the last object.
const (
	infoKind = "SnapshotInfo"
	endKind  = "SnapshotEnd"
)

// seen reports whether the files show which objects of a kind exist: they hold one, an
// empty List, or a snapshot that counted them.
func (f *fileReader) seen(o *decode.Objects) bool {
	return o.Found() || f.info.resources[o.Kind.Resource] || f.empty[o.Kind.Resource]
}
