package affinity

import (
	"fmt"
	"net/netip"
	"slices"
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

// doubt makes a route doubtful. Only the first reason is kept.
func (r *route) doubt(why, decidedBy string) {
	if r.cert < doubtful {
		r.cert, r.why, r.decidedBy = doubtful, why, decidedBy
	}
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

func nodeText(x *speaker) string {
	if x.RouteReflectorID != "" {
		return "route reflector " + x.Name
	}
	return x.Name
}

func through(way []string) string { return strings.Join(way, ", then ") }

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

// obstacle prevents a route from reaching the owner.
type obstacle struct {
	kind kindOfBlock
	text string
}

// kindOfBlock is the kind of an obstacle; the most informative come first.
type kindOfBlock int

// within reports whether all cluster IDs of one route are among those of another.
func within(a, b []string) bool {
	return !slices.ContainsFunc(a, func(id string) bool { return !slices.Contains(b, id) })
}

const (
	blockExport kindOfBlock = iota
	blockFilter
	blockLoop
	blockAS
	blockMesh
	blockReflect
)
