package affinity

import (
	"fmt"
	"net/netip"
	"slices"
)

// This file follows a route through routers outside the cluster. Their configuration is
// unknown. They are assumed to exchange routes with each other, to forward routes to single
// addresses, and to leave AS paths unchanged. Only AS paths lead to definite verdicts,
// through BGP's loop protection.

func (s *search) toRouter(r *route, router netip.Addr, sides []side) {
	if s.whole {
		s.outside = s.outside || slices.ContainsFunc(sides, func(mine side) bool { return s.export(r, mine, router.String(), false) != nil })
		return
	}
	var passed []*route
	for _, mine := range sides {
		next := s.export(r, mine, router.String(), false)
		if next == nil || !mine.internal() && slices.Contains(r.path, mine.remoteAS) {
			continue
		}
		next.router, next.routerAS, next.routerBy, next.cert = router, mine.remoteAS, mine, max(next.cert, assumed)
		next.origin = fromOutside
		if mine.internal() {
			next.origin = fromInside
		}
		if r.at != s.user {
			next.way = append(slices.Clone(r.way), nodeText(r.at))
		}
		if mine.remoteAS == 0 {
			next.doubt(fmt.Sprintf("%s gives no AS number for %s", mine.name(), router), "the AS number of "+router.String())
		}
		passed = append(passed, next)
	}
	s.addAny(passed, len(sides))
}

// fromRouter passes a route on to the nodes that have sessions with its router or with other
// routers.
func (s *search) fromRouter(r *route) {
	s.routerToNode(r, s.owner)
	if s.best != nil && s.best.cert == r.cert {
		return
	}
	s.transits(func(y *speaker) { s.routerToNode(r, y) })
}

func (s *search) routerToNode(r *route, y *speaker) {
	for _, from := range y.group.routers {
		var passed []*route
		for _, theirs := range from.sides {
			if next := s.fromRouterOver(r, from.router, y, theirs); next != nil {
				passed = append(passed, next)
			}
		}
		s.addAny(passed, len(from.sides))
	}
}

func (s *search) fromRouterOver(r *route, router netip.Addr, y *speaker, theirs side) *route {
	if y != s.owner && theirs.remoteAS != 0 && occurs(r.path, theirs.localAS) > theirs.allow {
		return nil // the common case if the nodes share an AS
	}
	same := router == r.router
	next := &route{
		at: y, origin: fromOutside, path: slices.Clone(r.path), cert: r.cert,
		way: append(slices.Clone(r.way), routerText(r, router, theirs)), why: r.why, decidedBy: r.decidedBy, peered: true,
		routerBy: theirs, routerAS: theirs.remoteAS,
	}
	if !same && r.routerAS != theirs.remoteAS {
		next.path = append(next.path, r.routerAS)
	}
	if theirs.internal() {
		next.origin = fromInside
		if theirs.client {
			next.origin = fromClient
		}
	} else {
		next.path = append(next.path, theirs.remoteAS)
	}
	if theirs.remoteAS == 0 {
		next.doubt(fmt.Sprintf("%s gives no AS number for %s", theirs.name(), router), "the AS number of "+router.String())
		return next
	}
	if next = s.imports(next, y, theirs); next == nil {
		return nil
	}
	switch {
	case theirs.allow > 0 && slices.Contains(next.path, theirs.localAS):
		next.doubt(fmt.Sprintf("%s accepts its own AS %d in the path of routes from %s (numAllowedLocalASNumbers: %d, %s): it depends on whether that router sends the route back to the AS it came from", y.Name, theirs.localAS, router, theirs.allow, theirs.name()),
			fmt.Sprintf("whether %s passes on routes to single addresses to nodes of the AS that announced them", router))
	case r.origin == fromOutside && (!theirs.internal() || same), r.origin == fromInside && same && !theirs.internal():
	case same:
		next.doubt(fmt.Sprintf("%s (AS %d, %s) is an outside router of the nodes' own AS, an outside route reflector at best: whether it passes on routes to single addresses depends on its own configuration", router, theirs.remoteAS, theirs.name()),
			fmt.Sprintf("whether %s is a route reflector for these nodes and passes on routes to single addresses", router))
	default:
		next.doubt(fmt.Sprintf("the route would have to go from router %s (AS %d) to %s (AS %d), within their own network", r.router, r.routerAS, router, theirs.remoteAS),
			fmt.Sprintf("whether %s learns routes to single addresses from %s and passes them on", router, r.router))
	}
	return next
}

func routerText(r *route, router netip.Addr, theirs side) string {
	if router == r.router {
		return fmt.Sprintf("router %s (AS %d, %s)", router, theirs.remoteAS, theirs.name())
	}
	return fmt.Sprintf("routers %s (AS %d, %s) and %s (AS %d, %s)", r.router, r.routerAS, r.routerBy.name(), router, theirs.remoteAS, theirs.name())
}
