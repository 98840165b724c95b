package affinity

import (
	"fmt"
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
