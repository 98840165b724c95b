package source

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// infoVersion and infoKind identify the object by which "calico-audit snapshot"
// says what it read and when.
const (
	infoVersion = "calico-audit/v1alpha1"
	infoKind    = "SnapshotInfo"
)

// snapshotInfo is what a SnapshotInfo says.
type snapshotInfo struct {
	takenAt  time.Time
	apiGroup string
	reason   string
	// resources were read whole, also where no object of them exists.
	resources map[blocks.Resource]bool
	// gaps are whole resources that could not be read.
	gaps []blocks.Gap
}

// fileReader gathers the objects of files.
type fileReader struct {
	opts    FileOptions
	current string // the file at hand

	core, crd, native part // by API group
	ignored           map[string]int
	objects           int // of kinds that an audit reads
	newest            time.Time
	info              snapshotInfo
	strings           sharedStrings
	kinds             map[string]*kind
}

func newFileReader(opts FileOptions) *fileReader {
	f := &fileReader{opts: opts, ignored: map[string]int{}, kinds: map[string]*kind{}}
	for _, k := range kinds {
		for _, name := range k.names {
			if k.core || k.foreign != "" {
				f.kinds[k.version("")+"/"+name] = k
				continue
			}
			f.kinds[groupCRD+"/"+name] = k
			f.kinds[groupNative+"/"+name] = k
		}
	}
	return f
}

// envelope is what tells objects apart.
type envelope struct {
	kind, version string
	items         bool
}

// maxListDepth limits lists within lists.
const maxListDepth = 8

// object takes one object of the file at hand.
func (f *fileReader) object(o rawObject) error { return f.nested(o, 0) }

func (f *fileReader) nested(o rawObject, depth int) error {
	if err := checkSyntax(o.json, o.document, o.line); err != nil {
		return err
	}
	wrong := func(format string, args ...any) error {
		return &fileError{o.document, o.line, fmt.Errorf(format, args...)}
	}
	r := newJSONReader(o.json)
	if r.peek() != '{' {
		return wrong("not a Kubernetes object, but %s", clip(o.json))
	}
	var e envelope
	r.object(func(key []byte) {
		switch string(key) {
		case "kind":
			s, _ := r.str()
			e.kind = string(s)
		case "apiVersion":
			s, _ := r.str()
			e.version = string(s)
		case "items":
			e.items = r.peek() == '[' || r.peek() == 'n' // null is an empty list, too
		}
	})
	if kind, ok := strings.CutSuffix(o.listKind, "List"); ok {
		e.kind = cmp.Or(e.kind, kind)
		e.version = cmp.Or(e.version, o.listVersion)
	}
	switch {
	case e.kind == "":
		return wrong("not a Kubernetes object: it has no kind")
	case e.version == "":
		return wrong("not a Kubernetes object: the %s has no apiVersion", e.kind)
	case e.items && strings.HasSuffix(e.kind, "List"):
		if depth == maxListDepth {
			return wrong("lists within lists, more than %d deep", maxListDepth)
		}
		return f.listItems(o, e, depth)
	case e.version == infoVersion && e.kind == infoKind:
		return f.readInfo(o)
	}
	return f.decode(o, e)
}

// listItems takes the objects of a list that stands within another object.
func (f *fileReader) listItems(o rawObject, e envelope, depth int) error {

	r := newJSONReader(o.json)
	var failed error
	r.object(func(key []byte) {
		if string(key) != "items" {
			return
		}
		r.array(func(int) {
			r.peek()
			from := r.pos
			r.skip()
			if failed == nil && r.err == nil {
				failed = f.nested(rawObject{
					json: o.json[from:r.pos], document: o.document, line: o.line, listKind: e.kind, listVersion: e.version,
				}, depth+1)
			}
		})
	})
	return failed
}

// decode takes an object that is no list.
func (f *fileReader) decode(o rawObject, e envelope) error {
	k := f.kinds[e.version+"/"+e.kind]
	if k == nil {
		f.ignored[e.kind+" "+e.version]++
		return nil
	}
	d := &decoder{out: f.group(e.version), strings: &f.strings, native: e.version == groupNative,
		source: f.current, newest: &f.newest}
	r := newJSONReader(o.json)
	r.begin()
	k.json(d, r)
	record := f.opts.Record.of(k.resource)
	record.json(e.version, o.json)
	record.flush()
	f.objects++
	return nil
}

func (f *fileReader) group(version string) *part {
	switch version {
	case groupCRD:
		return &f.crd
	case groupNative:
		return &f.native
	}
	return &f.core
}

// readInfo takes what the snapshot command recorded.
func (f *fileReader) readInfo(o rawObject) error {
	r := newJSONReader(o.json)
	r.begin()
	r.object(func(key []byte) {
		switch string(key) {
		case "takenAt":
			if t := timeValue(r); !t.IsZero() {
				f.info.takenAt = t
			} else {
				r.fault("is no time in RFC 3339")
			}
		case "apiGroup":
			f.info.apiGroup = string(orEmpty(r.str()))
		case "apiGroupReason":
			f.info.reason = string(orEmpty(r.str()))
		case "resources":
			f.info.resources = map[blocks.Resource]bool{}
			r.array(func(int) { f.info.resources[blocks.Resource(orEmpty(r.str()))] = true })
		case "gaps":
			r.array(func(int) { f.readGap(r) })
		}
	})
	if len(r.faults) > 0 {
		first := r.faults[0]
		return &fileError{o.document, o.line, errors.New(infoKind + ": " + first.field + " " + first.reason)}
	}

	return nil
}

func orEmpty(s []byte, _ bool) []byte { return s }

// readGap takes a gap that the snapshot command recorded. Gaps of single objects
// are found again in the objects themselves.
func (f *fileReader) readGap(r *jsonReader) {
	var g blocks.Gap
	r.object(func(key []byte) {
		switch string(key) {
		case "resource":
			g.Resource = blocks.Resource(orEmpty(r.str()))
		case "name":
			g.Name = string(orEmpty(r.str()))
		case "reason":
			g.Reason = string(orEmpty(r.str()))
		}
	})
	if g.Whole() && g.Resource != "" {
		f.info.gaps = append(f.info.gaps, g)
	}
}
