package affinity

import (
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

func (b *byPrefix[V]) add(p netip.Prefix, v V) {
	if b.values == nil {
		b.values = map[netip.Prefix][]V{}
	}
	b.values[p] = append(b.values[p], v)
	i, known := slices.BinarySearchFunc(b.lengths, p.Bits(), func(have, bits int) int { return bits - have })
	if !known {
		b.lengths = slices.Insert(b.lengths, i, p.Bits())
	}
}

// around returns the prefixes that contain an address, longest first.
func (b *byPrefix[V]) around(a netip.Addr) []netip.Prefix {
	var out []netip.Prefix
	for _, bits := range b.lengths {
		if p, err := a.Prefix(bits); err == nil && b.values[p] != nil {
			out = append(out, p)
		}
	}
	return out
}

// confirmedOwners returns the nodes with a confirmed affinity to a CIDR around an address.
// Their BIRD announces that CIDR and nothing within it (confd's bird_aggr template).
func (r *Routing) confirmedOwners(a netip.Addr) map[string]netip.Prefix {
	out := map[string]netip.Prefix{}
	for _, p := range r.affinities().around(a) {
		if p.IsSingleIP() {
			continue
		}
		for _, aff := range r.affinities().values[p] {
			if aff.Effective() == blocks.Confirmed && aff.Owner.Node() != "" {
				out[aff.Owner.Node()] = p
			}
		}
	}
	return out
}

// unclaimed reports whether a node lacks the affinity that makes BIRD install a blackhole
// for a block, as far as affinities were read. It returns false if files hold an empty list of them,
// which is probably wrong.
func (r *Routing) unclaimed(node string, cidr netip.Prefix) bool {
	if _, missing := r.s.Missing(blocks.Affinities); len(r.s.Affinities) == 0 && !missing && !r.s.Cluster.Live {
		return false
	}
	return !slices.ContainsFunc(r.affinities().values[cidr], func(a *blocks.Affinity) bool {
		return a.Owner.Node() == node && a.Effective() != blocks.Pending
	})
}

// affinityMayExist reports whether an affinity to the block of an address may be unread.
func (r *Routing) affinityMayExist(a netip.Addr) bool {
	if _, missing := r.s.Missing(blocks.Affinities); missing {
		return true
	}
	return slices.ContainsFunc(r.s.Unreadable(blocks.Affinities), func(g blocks.Gap) bool { return !g.Prefix.IsValid() || g.Prefix.Contains(a) })
}
