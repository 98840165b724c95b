package decode

import (
	"slices"
	"sort"

	"github.com/calico-audit/calico-audit/blocks"
)

// NewSnapshot returns a snapshot of lists of different kinds, with Calico's defaults for
// missing configuration.
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

// Without returns a copy of s without the objects and gaps of the given resources. While these are
// read again, the garbage collector can free the old ones together with s.
func Without(s *blocks.Snapshot, rs []blocks.Resource) *blocks.Snapshot {
	var none []*Objects
	for _, k := range Kinds { // on-demand kinds are not always read again
		if slices.Contains(rs, k.Resource) {
			none = append(none, NewObjects(k))
		}
	}
	return Replaced(s, none)
}

// gaps returns the gaps for a snapshot. Those of on-demand kinds are tolerated.
func (o *Objects) gaps() []blocks.Gap {
	if slices.Contains(OnDemand, o.Kind) {
		for i := range o.Gaps {
			o.Gaps[i].Tolerated = true
		}
	}
	return o.Gaps
}

// Replaced returns prev, which must be sorted, with the objects and gaps of the lists'
// kinds replaced. It shares the rest with prev.
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
