package affinity

import (
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// claims are the affinities by CIDR: what BIRD makes its blackholes and its
// announcements from.
type claims struct {
	byCIDR  map[netip.Prefix][]*blocks.Affinity
	lengths []int
}

func (r *Routing) claimsRead() *claims {
	r.claimsOnce.Do(func() {
		c := &r.claims
		c.byCIDR = map[netip.Prefix][]*blocks.Affinity{}
		for i := range r.s.Affinities {
			a := &r.s.Affinities[i]
			c.byCIDR[a.CIDR] = append(c.byCIDR[a.CIDR], a)
			if !slices.Contains(c.lengths, a.CIDR.Bits()) {
				c.lengths = append(c.lengths, a.CIDR.Bits())
			}
		}
	})
	return &r.claims
}

// keepers returns the nodes that have a confirmed affinity to a CIDR around an
// address. BIRD announces that CIDR for them and nothing within it (confd's
// bird_aggr template).
func (r *Routing) keepers(a netip.Addr) map[string]netip.Prefix {
	out := map[string]netip.Prefix{}
	c := r.claimsRead()
	for _, bits := range c.lengths {
		p, err := a.Prefix(bits)
		if err != nil || p.IsSingleIP() {
			continue
		}
		for _, aff := range c.byCIDR[p] {
			if aff.Effective() == blocks.Confirmed && aff.Owner.Node() != "" {
				out[aff.Owner.Node()] = p
			}
		}
	}
	return out
}

// unclaimed tells whether a node has no affinity to a block that BIRD would make
// a blackhole from, as far as affinities were read. Without any affinity they
// were left out of what was read.
func (r *Routing) unclaimed(node string, cidr netip.Prefix) bool {
	if _, missing := r.s.Missing(blocks.Affinities); missing || len(r.s.Affinities) == 0 {
		return false
	}
	for _, g := range r.s.Unreadable(blocks.Affinities) {
		if !g.Prefix.IsValid() || g.Prefix == cidr {
			return false
		}
	}
	for _, a := range r.claimsRead().byCIDR[cidr] {
		if a.Owner.Node() == node && a.Effective() != blocks.Pending {
			return false
		}
	}
	return true
}
