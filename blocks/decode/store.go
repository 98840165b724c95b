package decode

import (
	"reflect"
	"slices"
	"sort"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// ObjectStore holds the objects of one kind for a watch: records in canonical order, and
// the few changes since. Records are shared with snapshots and never changed in place.
// There is no index: a thousand changes cost one list of pointers at the next snapshot. For
// the kinds with the most objects, memory holds each record only once, regardless of the
// snapshots.
type ObjectStore struct {
	storedRecords
	kind *Kind
	gaps map[blocks.Key][]blocks.Gap
}

// NewStore returns an empty store for objects of a kind.
func NewStore(k *Kind) *ObjectStore {
	return &ObjectStore{storedRecords: k.store(), kind: k, gaps: map[blocks.Key][]blocks.Gap{}}
}

// Replace replaces all objects.
func (s *ObjectStore) Replace(all *Objects) {
	s.replaceAll(all.records)
	s.gaps = map[blocks.Key][]blocks.Gap{}
	for _, g := range all.Gaps {
		key := s.keyOf(g)
		s.gaps[key] = append(s.gaps[key], g)
	}
}

// Put stores the new state of an object, the last record of now, or deletes it if now is
// empty. It reports whether that is a change. Every write of a Calico object is a change,
// because repairs and confirmations compare its resourceVersion and last write. Most writes
// of pods, nodes and other kinds, such as heartbeats, do not alter the record. Put then
// keeps the old record with its resourceVersion and last write: an exporter uses neither,
// and evictions and cordons read the object again first.
func (s *ObjectStore) Put(key blocks.Key, now *Objects) bool {
	if (s.kind.Core || s.kind.Named) && slices.Equal(s.gaps[key], now.Gaps) && s.has(key, now.records) {
		return false
	}
	s.put(key, now.records)
	if delete(s.gaps, key); len(now.Gaps) > 0 {
		s.gaps[key] = now.Gaps
	}
	return true
}

// Fill adds all records and gaps to a snapshot.
func (s *ObjectStore) Fill(to *blocks.Snapshot) {
	s.storedRecords.Fill(to)
	for _, gaps := range s.gaps {
		to.Gaps = append(to.Gaps, gaps...)
	}
}

// keyOf returns the key of the object that a gap concerns.
func (s *ObjectStore) keyOf(g blocks.Gap) blocks.Key {
	switch {
	case g.Name == "":
		return blocks.Key{Name: blocks.DefaultName} // the only object that counts
	case s.kind.Namespaced:
		namespace, name, _ := strings.Cut(g.Name, "/")
		return blocks.Key{Namespace: namespace, Name: name}
	}
	return blocks.Key{Name: g.Name}
}

type store[T any, P record[T]] struct {
	base list[T, P]
	// values holds the records as one slice, for kinds that snapshots hold this way; nil
	// until the first snapshot.
	values  []T
	changed map[blocks.Key]*T // nil: deleted
}

func (c *store[T, P]) replaceAll(with records) {
	sort.Stable(with)
	c.base.all, c.values, c.changed = with.(*list[T, P]).all, nil, nil
}

// has requires records in key order.
func (c *store[T, P]) has(key blocks.Key, now records) bool {
	old, changed := c.changed[key]
	if at, found := c.find(key); !changed && found {
		old = c.base.all[at]
	}
	record := last[T, P](now)
	if old == nil || record == nil {
		return old == nil && record == nil
	}
	again := *record
	m, was := P(&again).Metadata(), P(old).Metadata()
	if !m.SameUID(was.Pin) {
		return false
	}
	m.Pin, m.Written, m.ByUs = was.Pin, was.Written, was.ByUs
	return reflect.DeepEqual(old, &again)
}

// last returns the last record; nil if there are none.
func last[T any, P record[T]](of records) *T {
	all := of.(*list[T, P]).all
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

func (c *store[T, P]) put(key blocks.Key, now records) {
	if c.changed == nil {
		c.changed = map[blocks.Key]*T{}
	}
	c.changed[key] = last[T, P](now)
	if len(c.changed) > max(1000, len(c.base.all)/4) {
		c.merge()
	}
}

func (c *store[T, P]) Fill(s *blocks.Snapshot) {
	c.merge()
	if c.base.in == nil {
		c.base.Fill(s)
		if others := c.base.others; others != nil {
			if c.values == nil {
				c.values = *others(s)
			}
			*others(s) = c.values // the same list until a change
		}
		return
	}
	if c.values == nil {
		c.values = c.base.values()
		for i := range c.values {
			c.base.all[i] = &c.values[i] // so that each exists once
		}
	}
	*c.base.in(s) = c.values
}

func (c *store[T, P]) Len() int { return len(c.base.all) + len(c.changed) }

// merge builds a new list from the old records and the changes. It copies unchanged runs as
// a whole.
func (c *store[T, P]) merge() {
	if len(c.changed) == 0 {
		return
	}
	old := c.base.all
	deleted := c.places()
	fresh := make([]*T, 0, len(c.changed))
	for _, o := range c.changed {
		if o != nil {
			fresh = append(fresh, o)
		}
	}
	slices.SortFunc(fresh, func(a, b *T) int { return blocks.Compare(P(a), P(b)) })
	all := make([]*T, 0, len(old)-len(deleted)+len(fresh))
	done := 0
	takeTo := func(end int) { // without deleted records
		for ; len(deleted) > 0 && deleted[0] < end; deleted = deleted[1:] {
			all, done = append(all, old[done:deleted[0]]...), deleted[0]+1
		}
		all, done = append(all, old[done:end]...), end
	}
	for _, o := range fresh {
		takeTo(done + sort.Search(len(old)-done, func(i int) bool { return blocks.Compare(P(o), P(old[done+i])) < 0 }))
		all = append(all, o)
	}
	takeTo(len(old))
	c.base.all, c.values, c.changed = all, nil, nil
}

// places returns the sorted positions of the old records that have changed.
func (c *store[T, P]) places() (out []int) {
	if blocks.OrderedByKey(P(new(T))) {
		for key := range c.changed {
			if at, found := c.find(key); found {
				out = append(out, at)
			}
		}
		slices.Sort(out)
		return out
	}
	for i, o := range c.base.all {
		if _, again := c.changed[P(o).Key()]; again {
			out = append(out, i)
		}
	}
	return out
}

// find requires records in key order.
func (c *store[T, P]) find(key blocks.Key) (at int, found bool) {
	return slices.BinarySearchFunc(c.base.all, key, func(o *T, key blocks.Key) int { return P(o).Key().Compare(key) })
}
