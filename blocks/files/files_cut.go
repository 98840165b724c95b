package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// readSaved decodes a SnapshotInfo or SnapshotEnd into a struct, and parses its takenAt.
func readSaved(o RawObject, kind string, into any, at *string) (takenAt time.Time, err error) {
	if err = json.Unmarshal(o.JSON, into); err == nil && *at != "" {
		if takenAt, err = time.Parse(time.RFC3339, *at); err != nil {
			err = errors.New("takenAt is not a time in RFC 3339")
		}
	}
	if err != nil {
		err = &parse.FileError{Document: o.document, Line: o.line, Err: fmt.Errorf("%s: %w", kind, blocks.FieldError(err))}
	}
	return takenAt.UTC(), err
}

// readInfo decodes a SnapshotInfo. Of several snapshots, the newest determines ages, and
// they must agree on the API group.
func (f *fileReader) readInfo(o RawObject) error {
	f.endSaved() // a previous snapshot without an end
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
	all.ageless = all.ageless || saved.Datastore == blocks.DatastoreEtcd
	if takenAt.After(all.takenAt) {
		all.takenAt = takenAt
	}
	for _, res := range saved.Resources {
		all.resources[res] = true
	}
	for _, g := range saved.Gaps {
		if g.Whole() && g.Resource != "" { // gaps of single objects are found again in the objects
			all.gaps = append(all.gaps, blocks.Gap{Resource: g.Resource, Reason: g.Reason, Read: g.Read})
		}
	}
	return nil
}

// readEnd decodes a SnapshotEnd and compares the objects seen with the recorded counts.
func (f *fileReader) readEnd(o RawObject) error {
	end := savedEnd{Objects: -1}
	takenAt, err := readSaved(o, endKind, &end, &end.TakenAt)
	if err != nil {
		return err
	}
	s := f.saved
	if s.open && s.counts == nil {
		f.endSaved() // a snapshot without counts has no SnapshotEnd
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
		f.cutOff(blocks.Resources, ": the %s in %s does not belong to the snapshot before it", endKind, f.current)
	default:
		for _, res := range blocks.Resources {
			if s.seen[res] != s.counts[res] {
				f.cutOff([]blocks.Resource{res}, ": %s holds %d of %d objects", f.current, s.seen[res], s.counts[res])
			}
		}
	}
	return nil
}

// endSaved ends the current saved snapshot, if any, that has no SnapshotEnd: the file ends
// or another snapshot begins.
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
		// Namespaces were the last kind in such versions. They do not know later kinds, so these
		// are not missing.
		knew := blocks.Resources[:slices.Index(blocks.Resources, blocks.Namespaces)+1]
		f.cutOff(knew[min(ended, len(knew)):], ", perhaps: the snapshot in %s is of an earlier version, which did not count its objects", f.current)
	}
}

// cutOff adds a gap for each resource that a truncated file leaves incomplete. One gap per
// resource suffices.
func (f *fileReader) cutOff(resources []blocks.Resource, format string, args ...any) {
	for _, res := range resources {
		if !slices.ContainsFunc(f.info.gaps, func(g blocks.Gap) bool { return g.Resource == res }) {
			f.info.gaps = append(f.info.gaps, blocks.Gap{Resource: res, Reason: cutOffReason + fmt.Sprintf(format, args...)})
		}
	}
}

// endList handles a list after its items. If it is a page of a longer list, as from the API
// server, its kinds get a gap.
func (f *fileReader) endList(o RawObject) error {
	items := f.list
	if o.document != f.document { // the list has no items: the collected ones are those of the document before
		items = listed{}
	}
	f.list = listed{}
	kind, version, more := listHead(o.JSON)
	item := strings.TrimSuffix(kind, "List")
	k := f.kinds[version+"/"+item]
	if more == "" {
		if k != nil && len(items.kinds) == 0 {
			f.emptyLists[emptyList{k, version}] = true
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

// listHead returns a list's kind and version. more describes the metadata that shows
// missing objects; "" if the list is complete.
func listHead(object []byte) (kind, version, more string) {
	var next, remaining []byte
	r := parse.New(object)
	r.Fields(parse.Members{"kind": &kind, "apiVersion": &version, "metadata": func() {
		if r.Peek() == '{' {
			r.Fields(parse.Members{"continue": func() { next = r.Raw() }, "remainingItemCount": func() { remaining = r.Raw() }})
		}
	}})
	switch {
	case len(next) > 0 && string(next) != `""` && string(next) != "null":
		more = "metadata.continue is set"
	case len(remaining) > 0 && string(remaining) != "0" && string(remaining) != "null":
		more = "metadata.remainingItemCount is " + parse.Clip(remaining)
	}
	return kind, version, more
}
