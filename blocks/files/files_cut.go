package files

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// savedSnapshot is the saved snapshot at hand, from its SnapshotInfo to its
// SnapshotEnd, both in one file. The zero value is none.
type savedSnapshot struct {
	open    bool
	takenAt time.Time
	// counts are the objects that it says it has; nil if it does not say, as one of
	// an earlier version.
	counts map[blocks.Resource]int
	seen   map[blocks.Resource]int
	// last is the place in blocks.Resources of the kind that came last, -1 before
	// the first; all of a kind come together, in that order. Of one that does not
	// count its objects, this alone tells which kinds were read to their end.
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

// readInfo takes what the snapshot command recorded.
func (f *fileReader) readInfo(o rawObject) error {
	f.endSaved() // one before it that has no end
	info := snapshotInfo{resources: map[blocks.Resource]bool{}}
	var counts map[blocks.Resource]int
	r := decode.NewJSONReader(o.json)
	r.Fields(decode.Members{
		"apiGroup": &info.apiGroup, "apiGroupReason": &info.reason,
		"takenAt": func() {
			if info.takenAt = decode.TimeValue(r); info.takenAt.IsZero() {
				r.Fault("is not a time in RFC 3339")
			}
		},
		"counts": func() {
			counts = map[blocks.Resource]int{}
			r.Object(func(key []byte) {
				n, _ := r.Int()
				counts[blocks.Resource(key)] = int(n)
			})
		},
		"resources": func() { r.Array(func(int) { info.resources[blocks.Resource(r.String())] = true }) },
		"gaps": func() {
			r.Array(func(int) {
				var g blocks.Gap
				r.Fields(decode.Members{"resource": (*string)(&g.Resource), "name": &g.Name, "reason": &g.Reason})
				// Gaps of single objects are found again in the objects themselves.
				if g.Whole() && g.Resource != "" {
					info.gaps = append(info.gaps, g)
				}
			})
		},
	})
	if err := faultOf(o, r, infoKind); err != nil {
		return err
	}
	f.info.Join(&info)
	f.saved = savedSnapshot{open: true, takenAt: info.takenAt, counts: counts, seen: map[blocks.Resource]int{}, last: -1}
	return nil
}

// Join adds what a further SnapshotInfo says. Ages are counted from the newest of
// several; of the API group they must say the same.
func (i *snapshotInfo) Join(more *snapshotInfo) {
	if i.snapshots == 0 {
		i.apiGroup, i.reason = more.apiGroup, more.reason
	} else if i.apiGroup != more.apiGroup {
		i.apiGroup, i.reason = "", ""
	}
	i.mixed = i.mixed || i.snapshots > 0 && !i.takenAt.Equal(more.takenAt)
	i.snapshots++
	if more.takenAt.After(i.takenAt) {
		i.takenAt = more.takenAt
	}
	for res := range more.resources {
		i.resources[res] = true
	}
	i.gaps = append(i.gaps, more.gaps...)
}

// readEnd takes the end of a saved snapshot, and holds what was seen of it to what
// it says it has.
func (f *fileReader) readEnd(o rawObject) error {
	var takenAt time.Time
	objects := -1
	r := decode.NewJSONReader(o.json)
	r.Fields(decode.Members{"takenAt": func() { takenAt = decode.TimeValue(r) }, "objects": &objects})
	if err := faultOf(o, r, endKind); err != nil {
		return err
	}
	s := f.saved
	if s.open && s.counts == nil {
		f.endSaved() // an end that cannot be its own
		return nil
	}
	f.saved = savedSnapshot{}
	total := 0
	for _, n := range s.counts {
		total += n
	}
	switch {
	case !s.open:
		f.cutOff(blocks.Resources, ": %s has the end of a snapshot (%s) without its beginning", f.current, endKind)
	case !takenAt.Equal(s.takenAt) || objects != total:
		f.cutOff(blocks.Resources, ": the %s in %s is not that of the snapshot before it", endKind, f.current)
	default:
		for _, res := range blocks.Resources {
			if s.seen[res] != s.counts[res] {
				f.cutOff([]blocks.Resource{res}, ": %s holds %d of %d objects", f.current, s.seen[res], s.counts[res])
			}
		}
	}
	return nil
}

// endSaved ends the saved snapshot at hand, if any, where no SnapshotEnd does: the
// file ends, or another begins.
func (f *fileReader) endSaved() {
	s := f.saved
	f.saved = savedSnapshot{}
	switch {
	case !s.open:
	case s.counts != nil:
		f.cutOff(blocks.Resources, ": the snapshot in %s has no end (%s)", f.current, endKind)
	default:
		ended := max(s.last, 0)
		if s.disorder {
			ended = 0
		}
		// It knew no kinds of others than Kubernetes and Calico, which are not known then, and
		// not missing.
		f.cutOff(slices.DeleteFunc(slices.Clone(blocks.Resources[ended:]), foreign), ", perhaps: the snapshot in %s is of an earlier version, which did not count its objects", f.current)
	}
}

func foreign(r blocks.Resource) bool { return decode.KindOf(r).Foreign != "" }

// cutOff records that resources are not whole because a file is not. One reason is
// enough for each.
func (f *fileReader) cutOff(resources []blocks.Resource, format string, args ...any) {
	for _, res := range resources {
		if !slices.ContainsFunc(f.info.gaps, func(g blocks.Gap) bool { return g.Resource == res }) {
			f.info.gaps = append(f.info.gaps, blocks.Gap{Resource: res, Reason: cutOffReason + fmt.Sprintf(format, args...)})
		}
	}
}

// cutOffReason begins the reason of every gap that a shortened file makes.
const cutOffReason = "cut off"

// faultOf returns the first value of an object of the snapshot command that is not
// as it should be, as an error.
func faultOf(o rawObject, r *decode.JSONReader, kind string) error {
	if len(r.Faults) == 0 {
		return nil
	}
	return &decode.FileError{Document: o.document, Line: o.line, Err: errors.New(kind + ": " + r.Faults[0].Field + " " + r.Faults[0].Reason)}
}

// listed are the kinds of a list's items, by where they are put.
type listed struct {
	kinds []*decode.Objects
	// others is true if there are items of other kinds than an audit reads.
	others bool
}

func (l *listed) add(k *decode.Objects) {
	// The items of a list are of one kind mostly.
	if n := len(l.kinds); n > 0 && l.kinds[n-1] == k || slices.Contains(l.kinds, k) {
		return
	}
	l.kinds = append(l.kinds, k)
}

// endList takes what a list says of itself, after its items. One that says that
// there is more than it holds, as a page of the API server's does, makes a gap of
// the kinds that are in it.
func (f *fileReader) endList(o rawObject) error {
	items := f.list
	f.list = listed{}
	kind, version, more := listHead(o.json)
	if more == "" {
		return nil
	}
	item := strings.TrimSuffix(kind, "List")
	if k := f.kinds[version+"/"+item]; k != nil {
		items.add(f.group(version).of(k))
	}
	const format = ": the list in %s is a part of a longer one: %s"
	if len(items.kinds) == 0 && item == "" && !items.others {
		f.cutOff(blocks.Resources, format, f.current, more)
	}
	for _, k := range items.kinds {
		k.Gaps = append(k.Gaps, blocks.Gap{Resource: k.Kind.Resource, Reason: cutOffReason + fmt.Sprintf(format, f.current, more)})
	}
	return nil
}

// listHead returns a list's kind, and what of its metadata says that there are
// more objects than its items; "" if nothing does.
func listHead(object []byte) (kind, version, more string) {
	var next, remaining []byte
	r := decode.NewJSONReader(object)
	r.Fields(decode.Members{"kind": &kind, "apiVersion": &version, "metadata": func() {
		if r.Peek() == '{' {
			r.Fields(decode.Members{"continue": func() { next = r.Raw() }, "remainingItemCount": func() { remaining = r.Raw() }})
		}
	}})
	switch {
	case len(next) > 0 && string(next) != `""` && string(next) != "null":
		more = "metadata.continue is set"
	case len(remaining) > 0 && string(remaining) != "0" && string(remaining) != "null":
		more = "metadata.remainingItemCount is " + decode.Clip(remaining)
	}
	return kind, version, more
}
