package decode

import (
	"slices"
	"sort"

	"github.com/calico-audit/calico-audit/blocks"
)

// Objects are what decoders have made of objects of one kind: records, and gaps
// where an object, or the kind, could not be understood.
type Objects struct {
	Kind *Kind
	records
	Gaps []blocks.Gap
}

// Found reports whether there is any object, be it one that could not be understood.
func (o *Objects) Found() bool { return o.Len() > 0 || len(o.Gaps) > 0 }

// Join adds the records of more, which are of the same kind.
func (o *Objects) Join(more *Objects) { o.join(more.records) }

// NewObjects returns an empty list for objects of a kind.
func NewObjects(k *Kind) *Objects { return &Objects{Kind: k, records: k.none()} }

// records are a list of records of one type.
type records interface {
	Len() int
	// At returns the name and the metadata of one.
	At(i int) (blocks.Key, *blocks.Meta)
	// Only leaves those that keep is true for, and truncate the first n.
	Only(keep func(i int) bool)
	Truncate(n int)
	// Grow makes room for n more.
	Grow(n int)
	// join adds those of a list of the same type.
	join(records)
	// Less and Swap are for sorting into the canonical order.
	Less(i, j int) bool
	Swap(i, j int)
	// Take makes the list that of a snapshot, and Fill makes it a snapshot's. Both
	// share memory with it. The list of a single kind takes nothing.
	Take(*blocks.Snapshot)
	Fill(*blocks.Snapshot)
}

// A descriptor describes the records of a kind: how an object is decoded, and where a
// snapshot has them.
type descriptor[T any] struct {
	// json makes an empty record that of an object; false if there is none.
	json func(*Decoder, *JSONReader, *T) bool
	// in is where a snapshot has the records of the kind, or shared, where it has those of
	// a kind with very many objects; put sets the one of a single kind, and otherwise is
	// that of a cluster that has no such object.
	in        func(*blocks.Snapshot) *[]T
	shared    func(*blocks.Snapshot) *[]*T
	put       func(*blocks.Snapshot, T)
	otherwise T
}

// record is what all types of records have.
type record[T any] interface {
	*T
	blocks.Record
}

// describe returns a kind with the functions that know its type.
func describe[T any, P record[T]](k Kind, c descriptor[T]) *Kind {
	k.Single = c.put != nil
	k.none = func() records { return &list[T, P]{descriptor: &c} }
	k.store = func() storedRecords { return &store[T, P]{base: list[T, P]{descriptor: &c}} }
	k.JSON = func(d *Decoder, r *JSONReader) {
		d.inNamespace = ""
		l := d.Out.records.(*list[T, P])
		if o := new(T); c.json(d, r, o) {
			l.all = append(l.all, o)
		}
	}
	return &k
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
	switch {
	case l.shared != nil:
		l.all = slices.Clip(*l.shared(s)) // what is joined to it is not the snapshot's
	case l.in != nil:
		l.all = nil
		for i := range *l.in(s) {
			l.all = append(l.all, &(*l.in(s))[i])
		}
	}
}

func (l *list[T, P]) Fill(s *blocks.Snapshot) {
	switch {
	case l.shared != nil:
		*l.shared(s) = l.all
	case l.in != nil:
		*l.in(s) = l.values()
	case len(l.all) == 0:
		l.put(s, l.otherwise)
	default:
		l.put(s, *l.all[len(l.all)-1])
	}
}

// values returns the records in one piece.
func (l *list[T, P]) values() []T {
	var out []T
	for _, o := range l.all {
		out = append(slices.Grow(out, len(l.all)-len(out)), *o)
	}
	return out
}

// NewSnapshot makes a snapshot of lists of different kinds, with Calico's defaults
// for configuration that does not exist.
func NewSnapshot(lists ...*Objects) *blocks.Snapshot {
	s := &blocks.Snapshot{}
	for _, k := range Kinds {
		k.none().Fill(s)
	}
	for _, l := range lists {
		l.Fill(s)
		s.Gaps = append(s.Gaps, l.gaps()...)
	}
	return s
}

// Without returns a snapshot like s without the objects and gaps of some resources, as one
// that they are yet to be read into: s, which holds them, can be let go of meanwhile.
func Without(s *blocks.Snapshot, rs []blocks.Resource) *blocks.Snapshot {
	var none []*Objects
	for _, k := range Kinds { // those on demand are not always read again
		if slices.Contains(rs, k.Resource) {
			none = append(none, NewObjects(k))
		}
	}
	return Replaced(s, none)
}

// gaps returns the gaps as a snapshot has them: those of a kind that no report needs are
// held.
func (o *Objects) gaps() []blocks.Gap {
	if slices.Contains(OnDemand, o.Kind) {
		for i := range o.Gaps {
			o.Gaps[i].Tolerated = true
		}
	}
	return o.Gaps
}

// Replaced returns prev, which must be sorted, with the objects and gaps of the
// lists' kinds in the place of what it holds of these. It shares with prev what is
// taken over.
func Replaced(prev *blocks.Snapshot, lists []*Objects) *blocks.Snapshot {
	s := *prev
	s.Gaps = nil
	for _, l := range lists {
		sort.Stable(l)
		l.Fill(&s)
		s.Gaps = append(s.Gaps, l.gaps()...)
	}
	for _, g := range prev.Gaps {
		if !slices.ContainsFunc(lists, func(l *Objects) bool { return l.Kind.Resource == g.Resource }) {
			s.Gaps = append(s.Gaps, g)
		}
	}
	slices.SortStableFunc(s.Gaps, blocks.CompareGaps)
	return &s
}
