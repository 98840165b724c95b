package affinity

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// This file passes a route over one session: export at one end, import at the other.

// pass passes a route from one node to another over a session; nil if it is rejected.
func (s *search) pass(r *route, mine side, y *speaker, theirs side) *route {
	next := s.export(r, mine, y.Name, y == s.owner)
	if next == nil {
		return nil
	}
	next.at = y
	switch {
	case !mine.internal():
		next.origin = fromOutside
	case theirs.client:
		next.origin = fromClient
	default:
		next.origin = fromInside
	}
	if r.at != s.user {
		next.way = append(slices.Clone(r.way), nodeText(r.at))
	}
	if next.why == "" && next.cert == sure && len(next.way) == 0 {
		next.why = mine.name()
	}
	return s.imports(next, y, theirs)
}

// export returns the route that a node announces to a peer; nil if it does not announce it.
func (s *search) export(r *route, mine side, to string, final bool) *route {
	x := r.at
	next := &route{origin: r.origin, path: r.path, clusters: r.clusters, cert: r.cert,
		way: r.way, why: r.why, decidedBy: r.decidedBy, peered: r.peered || mine.by != nil}
	block := func(k kindOfBlock, format string, args ...any) {
		if final || x == s.user {
			s.block(k, format, args...)
		}
	}
	if inside := r.origin == fromClient || r.origin == fromInside; inside && mine.internal() {
		// Only route reflectors pass routes of their own AS on within it, from and to their
		// clients (RFC 4456; BIRD's bgp_import_control).
		switch {
		case x.RouteReflectorID == "":
			block(blockReflect, "%s, which has sessions with both, has no route reflector cluster ID, so it passes on no route of its AS", x.Name)
			return nil
		case r.origin != fromClient && !mine.client, slices.Contains(r.clusters, x.RouteReflectorID):
			block(blockReflect, "%s does not pass on what other reflectors of its cluster (%s) send", x.Name, x.RouteReflectorID)
			return nil
		}
		next.clusters = append(slices.Clone(r.clusters), x.RouteReflectorID)
	}
	switch o := s.rules.evaluate(mine.filters, s.b.Addr, true, r.origin != ownRoute); {
	case s.whole:
		next.doubtFilters(mine)
	case o.accept && !o.reject && !o.none:
	default:
		announced, reason := s.announces(r, mine.internal())
		passes, stays := o.accept || o.none && announced, o.reject || o.none && !announced
		switch {
		case passes && stays:
			next.doubt(fmt.Sprintf("whether BGPFilter %q lets the address pass from %s to %s is not certain: %s", o.filter, x.Name, to, o.doubt), "the effect of BGPFilter "+quote(o.filter)+" there: birdcl show route on "+s.owner.Name)
		case !passes && o.reject:
			block(blockFilter, "BGPFilter %q, on the session of %s with %s (%s), blocks the address", o.filter, x.Name, to, mine.name())
			return nil
		case !passes:
			block(blockExport, "%s", reason)
			return nil
		}
	}
	if !mine.internal() {
		next.path, next.clusters = append(slices.Clone(r.path), mine.localAS), nil
	}
	return next
}

// announces reports whether a node announces the route to the address if no BGPFilter
// decides (confd's bird_ipam template, calico_export_to_bgp_peers). If not, it also returns
// the reason.
func (s *search) announces(r *route, internal bool) (bool, string) {
	x, a := r.at, s.b.Addr
	inPool := false
	for i := range s.r.s.Pools {
		p := &s.r.s.Pools[i]
		if !p.CIDR.Contains(a) {
			continue
		}
		if p.DisableBGPExport {
			return false, fmt.Sprintf("the routes of pool %s are kept from BGP (disableBGPExport)", p.Name)
		}
		inPool = true
	}
	if internal && r.origin == ownRoute && s.b.Tunnel && s.b.Attributes != nil {
		switch s.b.Attributes.Extras().Type {
		case blocks.TypeVXLAN, blocks.TypeVXLANv6, blocks.TypeWireguard, blocks.TypeWireguardV6:
			return false, fmt.Sprintf("%s does not announce addresses of its VXLAN and WireGuard devices to peers of its own AS", x.Name)
		}
	}
	if p, keeps := s.confirmedOwners[x.Name]; keeps {
		return false, fmt.Sprintf("%s has an affinity to %s, too, and so announces that block and no address within it", x.Name, p)
	}
	return inPool, fmt.Sprintf("%s lies in no pool, and nodes announce only addresses of pools", a)
}

// imports returns the route that a node accepts from a peer; nil if it rejects the route.
func (s *search) imports(next *route, y *speaker, theirs side) *route {
	if occurs(next.path, theirs.localAS) > theirs.allow {
		if y == s.owner {
			s.blockLoop(theirs)
		}
		return nil
	}
	if s.whole {
		next.doubtFilters(theirs)
		return next
	}
	o := s.rules.evaluate(theirs.filters, s.b.Addr, false, true)
	switch {
	case o.reject && !o.accept && !o.none:
		s.blockTo(y, blockFilter, "BGPFilter %q, on the sessions of %s by %s, rejects the address", o.filter, y.Name, theirs.name())
		return nil
	case o.reject:
		next.doubt(fmt.Sprintf("whether BGPFilter %q lets the address in at %s is not certain: %s", o.filter, y.Name, o.doubt), "the effect of BGPFilter "+quote(o.filter)+" there: birdcl show route on "+s.owner.Name)
	}
	return next
}

// doubtFilters makes the route to a whole block doubtful if the session has filters: they are evaluated
// for single addresses only.
func (r *route) doubtFilters(of side) {
	if len(of.filters) > 0 {
		r.doubt("BGPFilters of "+of.name()+" may block it", "the effect of its BGPFilters")
	}
}

func occurs(path []uint32, as uint32) int {
	n := 0
	for _, p := range path {
		if p == as {
			n++
		}
	}
	return n
}

// transits calls do for one node of each group that could forward a route.
func (s *search) transits(do func(*speaker)) {
	for _, g := range s.groups {
		for _, sp := range g.members {
			if _, keeps := s.confirmedOwners[sp.Name]; sp != s.owner && sp != s.user && !keeps {
				if s.forwards(sp) {
					do(sp)
				}
				break
			}
		}
	}
}
