package affinity

import (
	"fmt"
	"net/netip"
	"slices"
)

// maxSteps ends a search if routes have too many ways in a topology.
const maxSteps = 20_000

// run returns the most certain route that arrives at the owner; nil if there is none.
func (s *search) run() *route {
	s.seen = map[string][]*route{}
	s.add(&route{at: s.user, origin: ownRoute})
	for c := sure; c < certainties; c++ {
		for len(s.queues[c]) > 0 {
			if s.best != nil && s.best.cert <= c {
				return s.best
			}
			r := s.queues[c][0]
			s.queues[c] = s.queues[c][1:]
			if s.steps++; s.steps > maxSteps {
				return s.best
			}
			if r.at != nil {
				s.fromNode(r)
			} else {
				s.fromRouter(r)
			}
		}
	}
	return s.best
}

func (s *search) fromNode(r *route) {
	s.toNode(r, s.owner)
	if s.best != nil && s.best.cert == r.cert {
		return
	}
	s.transits(func(y *speaker) {
		if y != r.at {
			s.toNode(r, y)
		}
	})
	for _, to := range r.at.group.routers {
		s.toRouter(r, to.router, to.sides)
	}
}

// toNode passes a route on over each session between two nodes.
func (s *search) toNode(r *route, y *speaker) {
	x := r.at
	if m := s.meshes(x, y); m != no {
		mesh := side{localAS: x.as, remoteAS: y.as}
		back := side{localAS: y.as, remoteAS: x.as}
		if next := s.pass(r, mesh, y, back); next != nil {
			if m == perhaps {
				next.doubt(fmt.Sprintf("%s and %s are meshed and have different AS numbers (%d, %d): their session comes up on a common subnet only", x.Name, y.Name, x.as, y.as),
					"calicoctl node status on "+y.Name)
			}
			s.add(next)
		}
	} else if y == s.owner && s.r.s.BGP.Mesh && x.as != y.as {
		s.block(blockMesh, "%s and %s have different AS numbers (%d, %d) and no common subnet, so their session of the node-to-node mesh does not come up", x.Name, y.Name, x.as, y.as)
	}
	var passed []*route
	tried := 0
	for _, mine := range s.sides(x, y) {
		for _, theirs := range s.sides(y, x) {
			if mine.localAS != theirs.remoteAS || mine.remoteAS != theirs.localAS {
				s.blockTo(y, blockAS, "%s and %s do not agree on each other's AS number (%s), so their session does not come up", x.Name, y.Name, mine.name())
				continue
			}
			tried++
			if next := s.pass(r, mine, y, theirs); next != nil {
				passed = append(passed, next)
			}
		}
	}
	s.addAny(passed, tried)
}

// addAny adds the least certain of the routes that several configurations of one session
// let through, because it is unknown which one confd uses.
func (s *search) addAny(passed []*route, tried int) {
	if len(passed) == 0 {
		return
	}
	first := passed[0]
	for _, p := range passed {
		if p.cert > first.cert {
			first = p
		}
	}
	if len(passed) < tried {
		first.doubt("several BGPPeers configure one session, and which of them counts is not certain", "the BGPPeers, each session once")
	}
	s.add(first)
}

// The following functions follow a route through routers outside the cluster. Their configuration is
// unknown. They are assumed to exchange routes with each other, to forward routes to single
// addresses, and to leave AS paths unchanged. Only AS paths lead to definite verdicts,
// through BGP's loop protection.

// fromRouter passes a route on to the nodes that have sessions with its router or with other
// routers.
func (s *search) fromRouter(r *route) {
	s.routerToNode(r, s.owner)
	if s.best != nil && s.best.cert == r.cert {
		return
	}
	s.transits(func(y *speaker) { s.routerToNode(r, y) })
}

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
