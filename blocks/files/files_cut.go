package files

import (
	"encoding/json"
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

// readSaved reads an object of the snapshot command, which was taken at the time whose text
// is in it.
func readSaved(o RawObject, kind string, into any, at *string) (takenAt time.Time, err error) {
	if err = json.Unmarshal(o.JSON, into); err == nil && *at != "" {
		if takenAt, err = time.Parse(time.RFC3339, *at); err != nil {
			err = errors.New("takenAt is not a time in RFC 3339")
		}
	}
	if err != nil {
		err = &decode.FileError{Document: o.document, Line: o.line, Err: fmt.Errorf("%s: %w", kind, blocks.FieldError(err))}
	}
	return takenAt.UTC(), err
}

// readInfo takes what the snapshot command recorded. Ages are counted from the newest of
// several; of the API group they must say the same.
func (f *fileReader) readInfo(o RawObject) error {
	f.endSaved() // one before it that has no end
	var saved savedInfo
	takenAt, err := readSaved(o, infoKind, &saved, &saved.TakenAt)
	if err != nil {
		return err
	}
	f.saved = savedSnapshot{open: true, takenAt: takenAt, counts: saved.Counts, seen: map[blocks.Resource]int{}, last: -1}
	all := &f.info
	if all.snapshots == 0 {
		all.apiGroup, all.reason = saved.APIGroup, saved.APIGroupReason
	} else if all.apiGroup != saved.APIGroup {
		all.apiGroup, all.reason = "", ""
	}
	all.mixed = all.mixed || all.snapshots > 0 && !all.takenAt.Equal(takenAt)
	all.snapshots++
	if takenAt.After(all.takenAt) {
		all.takenAt = takenAt
	}
	for _, res := range saved.Resources {
		all.resources[res] = true
	}
	for _, g := range saved.Gaps {
		if g.Whole() && g.Resource != "" { // those of single objects are found again in these
			all.gaps = append(all.gaps, blocks.Gap{Resource: g.Resource, Reason: g.Reason})
		}
	}
	return nil
}

// readEnd takes the end of a saved snapshot, and holds what was seen of it to what
// it says it has.
func (f *fileReader) readEnd(o RawObject) error {
	end := savedEnd{Objects: -1}
	takenAt, err := readSaved(o, endKind, &end, &end.TakenAt)
	if err != nil {
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
	case !takenAt.Equal(s.takenAt) || end.Objects != total:
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
		// The last kind that it knew were namespaces; later ones are not known then, and not
		// missing.
		knew := blocks.Resources[:slices.Index(blocks.Resources, blocks.Namespaces)+1]
		f.cutOff(knew[min(ended, len(knew)):], ", perhaps: the snapshot in %s is of an earlier version, which did not count its objects", f.current)
	}
}

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
func (f *fileReader) endList(o RawObject) error {
	items := f.list
	f.list = listed{}
	kind, version, more := listHead(o.JSON)
	item := strings.TrimSuffix(kind, "List")
	k := f.kinds[version+"/"+item]
	if more == "" {
		if k != nil && len(items.kinds) == 0 {
			f.empty[k.Resource] = true
		}
		return nil
	}
	if k != nil {
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
