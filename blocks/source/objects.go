package source

import (
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// objects are what decoders have made of objects of one kind: records, and gaps
// where an object, or the kind, could not be understood.
type objects struct {
	kind *kind
	records
	gaps []blocks.Gap
}

// found reports whether there is any object, be it one that could not be understood.
func (o *objects) found() bool { return o.len() > 0 || len(o.gaps) > 0 }

func newObjects(k *kind) *objects { return &objects{kind: k, records: k.none()} }

// records are a list of records of one type.
type records interface {
	len() int
	// at returns the name and the metadata of one.
	at(i int) (blocks.Key, *blocks.Meta)
	// only leaves those that keep is true for, and truncate the first n.
	only(keep func(i int) bool)
	truncate(n int)
	// grow makes room for n more.
	grow(n int)
	// join adds those of a list of the same type.
	join(records)
	// sort puts them into the canonical order.
	sort()
	// take makes the list that of a snapshot, and fill makes it a snapshot's. Both
	// share memory with it. The list of a single kind takes nothing.
	take(*blocks.Snapshot)
	fill(*blocks.Snapshot)
}

// A column describes the records of a kind: how an object is decoded, and where a
// snapshot has them.
type column[T any] struct {
	// json returns the record of an object; false if there is none.
	json func(*decoder, *jsonReader) (T, bool)
	// in is where a snapshot has the records of the kind, put sets the one of a single
	// kind, and otherwise is that of a cluster that has no such object.
	in        func(*blocks.Snapshot) *[]T
	put       func(*blocks.Snapshot, T)
	otherwise T
	// compare is the canonical order; nil is that of [blocks.CompareMeta].
	compare func(a, b *T) int
}

// record is what all types of records have.
type record[T any] interface {
	*T
	Key() blocks.Key
	Metadata() *blocks.Meta
}

// describe returns a kind with the functions that know its type.
func describe[T any, P record[T]](k kind, c column[T]) *kind {
	if c.compare == nil {
		c.compare = func(a, b *T) int { return blocks.CompareMeta(P(a).Metadata(), P(b).Metadata()) }
	}
	k.single = c.put != nil
	k.none = func() records { return &list[T, P]{column: &c} }
	k.store = func() storedRecords { return &store[T, P]{base: list[T, P]{column: &c}} }
	k.json = func(d *decoder, r *jsonReader) {
		if o, ok := c.json(d, r); ok {
			add[T, P](d.out, o)
		}
	}
	return &k
}

func add[T any, P record[T]](to *objects, o T) {
	l := to.records.(*list[T, P])
	l.all = append(l.all, o)
}

type list[T any, P record[T]] struct {
	*column[T]
	all []T
}

func (l *list[T, P]) len() int       { return len(l.all) }
func (l *list[T, P]) truncate(n int) { l.all = l.all[:n] }
func (l *list[T, P]) grow(n int)     { l.all = slices.Grow(l.all, n) }

func (l *list[T, P]) at(i int) (blocks.Key, *blocks.Meta) {
	o := P(&l.all[i])
	return o.Key(), o.Metadata()
}

func (l *list[T, P]) only(keep func(i int) bool) {
	var kept []T
	for i := range l.all {
		if keep(i) {
			kept = append(kept, l.all[i])
		}
	}
	l.all = kept
}

func (l *list[T, P]) join(more records) {
	from := more.(*list[T, P]).all
	if len(l.all) == 0 {
		l.all = from // hardly anything is copied: most lists come in one piece
		return
	}
	l.all = append(l.all, from...)
}

func (l *list[T, P]) sort() {
	slices.SortStableFunc(l.all, func(a, b T) int { return l.compare(&a, &b) })
}

func (l *list[T, P]) take(s *blocks.Snapshot) {
	if l.in != nil {
		l.all = *l.in(s)
	}
}

func (l *list[T, P]) fill(s *blocks.Snapshot) {
	switch {
	case l.in != nil:
		*l.in(s) = l.all
	case len(l.all) == 0:
		l.put(s, l.otherwise)
	default:
		l.put(s, l.all[len(l.all)-1])
	}
}

// newSnapshot makes a snapshot of lists of different kinds, with Calico's defaults
// for configuration that does not exist.
func newSnapshot(lists ...*objects) *blocks.Snapshot {
	s := &blocks.Snapshot{}
	for _, k := range kinds {
		k.none().fill(s)
	}
	for _, l := range lists {
		l.fill(s)
		s.Gaps = append(s.Gaps, l.gaps...)
	}
	return s
}

// replaced returns prev, which must be sorted, with the objects and gaps of the
// lists' kinds in the place of what it holds of these. It shares with prev what is
// taken over.
func replaced(prev *blocks.Snapshot, lists []*objects) *blocks.Snapshot {
	s := *prev
	s.Gaps = nil
	for _, l := range lists {
		l.sort()
		l.fill(&s)
		s.Gaps = append(s.Gaps, l.gaps...)
	}
	for _, g := range prev.Gaps {
		if !slices.ContainsFunc(lists, func(l *objects) bool { return l.kind.resource == g.Resource }) {
			s.Gaps = append(s.Gaps, g)
		}
	}
	slices.SortStableFunc(s.Gaps, blocks.CompareGaps)
	return &s
}
