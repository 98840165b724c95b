package affinity

import (
	"fmt"
	"net/netip"
	"strings"
)

// certainty is how certain it is that a route reaches a node or router.
type certainty int

const (
	sure certainty = iota
	// assumed: if an outside router behaves as routers usually do.
	assumed
	// doubtful: depends on an unknown fact.
	doubtful
	certainties
)

// origin is the kind of session, if any, that a route came from.
type origin int

const (
	ownRoute   origin = iota // from its own workload
	fromClient               // from a peer of its own AS that is its route reflector client
	fromInside               // from another peer of its own AS
	fromOutside
)

// route is the route to the address, as it arrived at a node or router.
type route struct {
	// at is the node and router the outside router where it arrived; one of them is set.
	at     *speaker
	router netip.Addr
	// routerAS and routerBy are the router's AS and the session of arrival.
	routerAS uint32
	routerBy side

	origin   origin
	path     []uint32 // AS numbers, with repetitions
	clusters []string // cluster IDs of the reflectors on the way
	cert     certainty
	// peered is true if a BGPPeer, not only the mesh, carried it.
	peered bool
	// way names the intermediate hops. why and decidedBy explain the certainty.
	way            []string
	why, decidedBy string
}

// search finds a way for one address's route from its user to the block's owner.
type search struct {
	*sessions
	b               Borrowed
	owner, user     *speaker
	confirmedOwners map[string]netip.Prefix
	// whole is true for the route to a whole block of the user, which has no other owner. reached holds
	// the groups that it reached, clients the routes of clients by reflector. outside is true if the
	// route left the cluster.
	whole     bool
	reached   map[*group]bool
	clients   map[*speaker][]*route
	outside   bool
	queues    [certainties][]*route
	seen      map[string][]*route
	best      *route
	steps     int
	obstacles []obstacle
}

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

func (s *search) add(r *route) {
	if r.at != nil && s.reached != nil && r.at != s.user {
		s.reached[r.at.group] = true
		if !s.forwards(r.at) {
			return
		}
	}
	if r.at != nil && r.at == s.owner {
		if s.best == nil || r.cert < s.best.cert {
			s.best = r
		}
		return
	}
	at := r.router.String()
	if r.at != nil {
		at = r.at.Name
	}
	key := fmt.Sprint(at, r.origin, r.path, r.routerAS)
	for _, old := range s.seen[key] {
		if old.cert <= r.cert && within(old.clusters, r.clusters) {
			return // the old route can go every way that this one can
		}
	}
	s.seen[key] = append(s.seen[key], r)
	if s.reached != nil && r.origin == fromClient {
		s.clients[r.at] = append(s.clients[r.at], r)
	}
	s.queues[r.cert] = append(s.queues[r.cert], r)
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

// forwards reports whether a node may pass on routes that it learnt.
func (ss *sessions) forwards(x *speaker) bool {
	return ss.mixed || x.RouteReflectorID != "" || x.remote.any() || ss.hasOutside(x)
}

func (ss *sessions) hasOutside(x *speaker) bool {
	for _, to := range x.group.routers {
		for _, mine := range to.sides {
			if !mine.internal() {
				return true
			}
		}
	}
	return false
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

// doubt makes a route doubtful. Only the first reason is kept.
func (r *route) doubt(why, decidedBy string) {
	if r.cert < doubtful {
		r.cert, r.why, r.decidedBy = doubtful, why, decidedBy
	}
}

func nodeText(x *speaker) string {
	if x.RouteReflectorID != "" {
		return "route reflector " + x.Name
	}
	return x.Name
}

func through(way []string) string { return strings.Join(way, ", then ") }
