package repair

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Beside reports whether the filters of a request leave something out: what concerns
// none of the pools, of the nodes, of the addresses or of the blocks asked for. What
// concerns the whole cluster is never left out.
func (r *Request) Beside(st *state.State, t state.Subject, pools, nodes []string) bool {
	if t.Kind == state.KindCluster || t.Kind == state.KindConfig {
		return false
	}
	return !Meet(r.Pools, pools) || !Meet(r.Nodes, nodes) || !r.Aims(st, t)
}

// ConsentedBy returns the request with those of its consents that another one gives, too:
// a consent is given again in the command that finishes what was begun with it.
func (r Request) ConsentedBy(again *Request) Request {
	r.AllowNewer = r.AllowNewer && again.AllowNewer
	r.ObserveTwice = r.ObserveTwice || again.ObserveTwice // a check more, not a consent
	r.LastBlocks = r.LastBlocks && again.LastBlocks
	r.WithoutHostEvidence = r.WithoutHostEvidence && again.WithoutHostEvidence
	r.CordonFull = r.CordonFull && again.CordonFull
	r.EvictSingletons = r.EvictSingletons && again.EvictSingletons
	r.Terminated = slices.DeleteFunc(slices.Clone(r.Terminated), func(n string) bool { return !slices.Contains(again.Terminated, n) })
	return r
}

// Aims reports whether a target is, holds or lies in any of the addresses, and any of
// the blocks, that are asked for. A handle is at the addresses recorded under it and in
// the blocks that it counts; without a state that is not known, and it is at none.
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

// ReservationOf is a reservation of Whereabouts' as far as its namespace and name tell.
func ReservationOf(key string) *blocks.WhereaboutsReservation {
	namespace, name, _ := strings.Cut(key, "/")
	return &blocks.WhereaboutsReservation{Namespace: namespace, Meta: blocks.Meta{Name: name}}
}

// Meet reports whether any of the wanted is among those there are; nothing wanted
// means all.
func Meet(wanted, have []string) bool {
	return len(wanted) == 0 || slices.ContainsFunc(have, func(s string) bool { return slices.Contains(wanted, s) })
}

// PlaceOf returns what a subject is in the address space; the zero Prefix if it is nothing
// there.
func PlaceOf(s state.Subject) netip.Prefix {
	if a, err := netip.ParseAddr(s.IP); err == nil {
		return netip.PrefixFrom(a, a.BitLen())
	}
	c, _ := netip.ParsePrefix(s.CIDR)
	return c
}
