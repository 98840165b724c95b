package repair

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Beside reports whether the filters of a request exclude a target: it concerns none of
// the requested pools, nodes, addresses or blocks. Targets that concern the whole cluster
// are never excluded.
func (r *Request) Beside(st *state.State, t state.Subject, pools, nodes []string) bool {
	if t.Kind == state.KindCluster || t.Kind == state.KindConfig {
		return false
	}
	return !Meet(r.Pools, pools) || !Meet(r.Nodes, nodes) || !r.Aims(st, t)
}

// ConsentedBy returns the request with only those consents that another request also
// gives. The command that finishes a started plan must repeat its consents.
func (r Request) ConsentedBy(again *Request) Request {
	r.AllowNewer = r.AllowNewer && again.AllowNewer
	r.ObserveTwice = r.ObserveTwice || again.ObserveTwice // an additional check, not a consent
	r.LastBlocks = r.LastBlocks && again.LastBlocks
	r.WithoutHostEvidence = r.WithoutHostEvidence && again.WithoutHostEvidence
	r.CordonFull = r.CordonFull && again.CordonFull
	r.EvictSingletons = r.EvictSingletons && again.EvictSingletons
	r.Terminated = slices.DeleteFunc(slices.Clone(r.Terminated), func(n string) bool { return !slices.Contains(again.Terminated, n) })
	return r
}

// Aims reports whether a target is, contains or lies in one of the requested addresses and one of
// the requested blocks. A handle is where its recorded addresses are, and in the blocks that it
// counts; without a state, neither is known.
func (r *Request) Aims(st *state.State, t state.Subject) bool {
	if len(r.IPs)+len(r.Blocks) == 0 {
		return true
	}
	places := []netip.Prefix{PlaceOf(t)}
	if t.Kind == state.KindHandle && st != nil {
		for _, ref := range st.HandleRefs(t.Name) {
			places = append(places, netip.PrefixFrom(ref.Addr(), ref.Addr().BitLen()), ref.Block.CIDR)
		}
		if h := st.Handle(t.Name); h != nil {
			for _, c := range h.Blocks {
				places = append(places, c.CIDR)
			}
		}
	}
	if t.Kind == state.KindWhereaboutsReservation {
		for _, a := range ReservationOf(t.Name).Addresses() {
			places = append(places, state.IPPrefix(a))
		}
	}
	at := func(is func(netip.Prefix) bool) bool { return slices.ContainsFunc(places, is) }
	aimed := len(r.IPs) == 0
	for _, a := range r.IPs {
		aimed = aimed || at(func(p netip.Prefix) bool {
			return p.IsValid() && p.Contains(a) && (t.Kind != state.KindHandle || p.IsSingleIP())
		})
	}
	in := len(r.Blocks) == 0
	for _, b := range r.Blocks {
		in = in || at(func(p netip.Prefix) bool { return p == b || p.IsSingleIP() && b.Contains(p.Addr()) })
	}
	return aimed && in
}

// ReservationOf returns a Whereabouts reservation with only the namespace and name of a
// key.
func ReservationOf(key string) *blocks.WhereaboutsReservation {
	namespace, name, _ := strings.Cut(key, "/")
	return &blocks.WhereaboutsReservation{Namespace: namespace, Meta: blocks.Meta{Name: name}}
}

// Meet reports whether any wanted name is in have. If wanted is empty, it returns true.
func Meet(wanted, have []string) bool {
	return len(wanted) == 0 || slices.ContainsFunc(have, func(s string) bool { return slices.Contains(wanted, s) })
}

// PlaceOf returns the address or CIDR of a subject as a prefix, or the zero Prefix.
func PlaceOf(s state.Subject) netip.Prefix {
	if a, err := netip.ParseAddr(s.IP); err == nil {
		return netip.PrefixFrom(a, a.BitLen())
	}
	c, _ := netip.ParsePrefix(s.CIDR)
	return c
}
