package decode

import (
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// Objects holds the decoded records of one kind, and gaps for undecodable objects or the
// whole kind.
type Objects struct {
	Kind *Kind
	records
	Gaps []blocks.Gap
}

// Found reports whether there is any object, including undecodable ones.
func (o *Objects) Found() bool { return o.Len() > 0 || len(o.Gaps) > 0 }

// Join adds the records of more, which must be of the same kind.
func (o *Objects) Join(more *Objects) { o.join(more.records) }

// NewObjects returns an empty list for objects of a kind.
func NewObjects(k *Kind) *Objects { return &Objects{Kind: k, records: k.none()} }

// A descriptor describes the records of a kind: how to decode an object, and where a
// snapshot holds the records.
type descriptor[T any] struct {
	// json decodes an object into an empty record, or returns false if it yields none.
	json func(*Decoder, *parse.Reader, *T) bool
	// Exactly one of in, shared and put is set. in returns the snapshot's records; shared does so
	// for kinds with very many objects, which snapshots share. put stores the one record of a
	// single kind; its value is also what a cluster without the object has.
	in        func(*blocks.Snapshot) *[]T
	shared    func(*blocks.Snapshot) *[]*T
	put       func(*blocks.Snapshot, T)
	otherwise T
	// others, for a single kind, returns the snapshot's records of objects that are not
	// named "default"; nil to drop them.
	others func(*blocks.Snapshot) *[]T
}

// record is the constraint of all record types.
type record[T any] interface {
	*T
	blocks.Record
}

type list[T any, P record[T]] struct {
	*descriptor[T]
	all []*T
}

func (l *list[T, P]) Len() int       { return len(l.all) }
func (l *list[T, P]) Truncate(n int) { l.all = l.all[:n] }
func (l *list[T, P]) Grow(n int)     { l.all = slices.Grow(l.all, n) }

func (l *list[T, P]) At(i int) (blocks.Key, *blocks.Meta) {
	o := P(l.all[i])
	return o.Key(), o.Metadata()
}

func (l *list[T, P]) Only(keep func(i int) bool) {
	kept := make([]*T, 0, len(l.all))
	for i, o := range l.all {
		if keep(i) {
			kept = append(kept, o)
		}
	}
	l.all = kept
}

func (l *list[T, P]) join(more records)  { l.all = append(l.all, more.(*list[T, P]).all...) }
func (l *list[T, P]) Swap(i, j int)      { l.all[i], l.all[j] = l.all[j], l.all[i] }
func (l *list[T, P]) Less(i, j int) bool { return blocks.Compare(P(l.all[i]), P(l.all[j])) < 0 }

func (l *list[T, P]) Take(s *blocks.Snapshot) {
	in := l.in
	if l.others != nil {
		in = l.others
	}
	switch {
	case l.shared != nil:
		l.all = slices.Clip(*l.shared(s)) // so that appending does not write to the snapshot
	case in != nil:
		l.all = nil
		for i := range *in(s) {
			l.all = append(l.all, &(*in(s))[i])
		}
	}
}

func (l *list[T, P]) Fill(s *blocks.Snapshot) {
	switch {
	case l.shared != nil:
		*l.shared(s) = l.all
	case l.in != nil:
		*l.in(s) = l.values()
	default:
		l.put(s, l.otherwise)
		var others []T
		for _, o := range l.all {
			if P(o).Key().Name == blocks.DefaultName {
				l.put(s, *o)
			} else {
				others = append(others, *o)
			}
		}
		if l.others != nil {
			*l.others(s) = others
		}
	}
}

// values returns the records as one slice of values.
func (l *list[T, P]) values() []T {
	var out []T
	for _, o := range l.all {
		out = append(slices.Grow(out, len(l.all)-len(out)), *o)
	}
	return out
}
