package blocks

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"
	"sort"
)

// A Record is one object of a snapshot.
type Record interface {
	Key() Key
	Metadata() *Meta
}

// placed records are identified by CIDR and owner, not by name.
type placed interface{ place() (netip.Prefix, Owner) }

func (b *Block) place() (netip.Prefix, Owner)    { return b.CIDR, Owner{} } //nolint:unparam // others have one
func (a *Affinity) place() (netip.Prefix, Owner) { return a.CIDR, a.Owner }

// OrderedByKey reports whether the canonical order of r's kind is by key.
func OrderedByKey(r Record) bool {
	_, is := r.(placed)
	return !is
}

// Compare is the canonical order of records of one kind: blocks and affinities by CIDR and
// owner first, then all kinds by namespace, name and UID.
func Compare(a, b Record) int {
	if x, ok := a.(placed); ok {
		p, o := x.place()
		q, r := b.(placed).place()
		if c := ComparePrefixes(p, q); c != 0 {
			return c
		}
		if c := cmp.Or(cmp.Compare(o.Kind, r.Kind), cmp.Compare(o.Name, r.Name)); c != 0 {
			return c
		}
	}
	if c := a.Key().Compare(b.Key()); c != 0 {
		return c
	}
	return cmp.Compare(a.Metadata().UID(), b.Metadata().UID())
}

// Sort puts every slice in canonical order, so that results do not depend on the order of
// reading.
func (s *Snapshot) Sort() {
	for v, i := reflect.ValueOf(s).Elem(), 0; i < v.NumField(); i++ {
		if list := v.Field(i); list.Kind() == reflect.Slice && list.Type() != reflect.TypeOf(s.Gaps) {
			sortRecords(list)
		}
	}
	slices.SortStableFunc(s.Gaps, CompareGaps)
	s.Hosts.sort()
}

// sortRecords sorts a list of records or of pointers to them. It checks first, because most
// lists arrive sorted and a watch sorts after each change.
func sortRecords(list reflect.Value) {
	at := func(i int) Record {
		o := list.Index(i)
		if o.Kind() != reflect.Pointer {
			o = o.Addr()
		}
		return o.Interface().(Record)
	}
	less := func(i, j int) bool { return Compare(at(i), at(j)) < 0 }
	if all := list.Interface(); !sort.SliceIsSorted(all, less) {
		sort.SliceStable(all, less)
	}
}

// ComparePrefixes orders CIDRs: IPv4 before IPv6, then by address, then larger CIDRs
// (shorter prefixes) first.
func ComparePrefixes(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}
