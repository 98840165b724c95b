package affinity

import (
	"cmp"
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

// bird predicts for a pool whose routes BIRD programs. The owner has a blackhole for each
// block that it has an affinity to. It has a route to the address only if it learns one by
// BGP.
func (r *Routing) bird(b Borrowed) Prediction {
	if p, missing := r.unread(blocks.BGPConfigs, blocks.BGPPeers, blocks.Nodes); missing {
		return p
	}
	if p, bad := r.notWhole(b.Owner, b.User); bad {
		return p
	}
	ss := r.sessions[blocks.FamilyOf(b.Addr)]()
	s := &search{sessions: ss, b: b, owner: ss.speakers[b.Owner], user: ss.speakers[b.User]}
	if s.owner == nil || s.user == nil {
		name := b.User
		if s.owner == nil {
			name = b.Owner
		}
		return unknown("whether "+name+" is a node that peers by BGP", "node %s was not read", name)
	}
	if !b.hypothetical {
		s.confirmedOwners = r.confirmedOwners(b.Addr)
	}
	var best *route
	if ss.speaks(s.owner) && ss.speaks(s.user) {
		best = s.run()
	}
	switch {
	case best != nil && best.cert < doubtful && best.peered && len(r.s.Unreadable(blocks.BGPPeers)) > 0:
		// The unread BGPPeer may configure the same session, with filters, and would then take
		// precedence.
		g := r.s.Unreadable(blocks.BGPPeers)[0]
		return unknown("what BGPPeer "+quote(g.Name)+" says", "a BGPPeer that could not be read may change the sessions (%s); without it, %s", g, s.arrives(best))
	case best != nil && best.cert < doubtful && !b.hypothetical && r.affinityMayExist(b.Addr):
		return unknown("which nodes have affinities to the block of "+b.Addr.String(), "an affinity that could not be read may block the route; without it, %s", s.arrives(best))
	case best != nil && best.cert < doubtful:
		return Prediction{Outcome: Delivered, Reason: s.arrives(best)}
	case best != nil:
		return unknown(cmp.Or(best.decidedBy, "birdcl show route for "+b.Addr.String()+" on "+b.Owner), "%s", best.why)
	case s.steps > maxSteps:
		return unknown("birdcl show route for "+b.Addr.String()+" on "+b.Owner, "this topology has too many paths to follow them all")
	}
	return r.confirmDrop(b, s.reason())
}

// confirmDrop turns a prediction of Dropped into Unknown if an unread object could change
// it.
func (r *Routing) confirmDrop(b Borrowed, reason string) Prediction {
	for _, g := range r.s.Unreadable(blocks.BGPPeers) {
		return unknown("what BGPPeer "+quote(g.Name)+" says", "a BGPPeer that could not be read may carry a route (%s); without it, traffic is dropped: %s", g, reason)
	}
	for _, g := range r.s.Unreadable(blocks.Nodes) {
		if _, bad := r.nodeFault(g.Name); bad {
			return unknown("what node "+g.Name+" records", "a node that could not be read completely may pass a route on (%s); without it, traffic is dropped: %s", g, reason)
		}
	}
	for _, g := range r.s.Unreadable(blocks.Pools) {
		return unknown("what pool "+quote(g.Name)+" says", "a pool that could not be read may change what is announced (%s); without it, traffic is dropped: %s", g, reason)
	}
	if !b.hypothetical && r.unclaimed(b.Owner, b.Block.CIDR) {
		if r.affinityMayExist(b.Addr) {
			return unknown("which nodes have affinities to block "+b.Block.CIDR.String(), "no affinity of %s to block %s was read, and without one BIRD adds no blackhole there", b.Owner, b.Block.CIDR)
		}
		return unknown(fmt.Sprintf("on %s: ip route get %s", b.Owner, b.Addr),
			"%s has no affinity to block %s, so BIRD adds no blackhole there, but no route to the address is learned either: where the other routes of that node lead is not known", b.Owner, b.Block.CIDR)
	}
	return dropped("%s", reason)
}

// arrives explains how a route reaches the owner.
func (s *search) arrives(r *route) string {
	owner, user := s.owner.Name, s.user.Name
	switch {
	case r.cert == assumed && s.owner.as != s.user.as:
		return fmt.Sprintf("%s (AS %d) accepts the route of %s (AS %d) through %s, as their AS numbers differ, provided that routers outside the cluster pass on routes to single addresses",
			owner, s.owner.as, user, s.user.as, through(r.way))
	case r.cert == assumed:
		return fmt.Sprintf("%s learns a route to the address through %s, provided that routers outside the cluster pass on routes to single addresses", owner, through(r.way))
	case len(r.way) > 0:
		return fmt.Sprintf("%s learns a route to the address of %s through %s", owner, user, through(r.way))
	case r.why == (side{}).name():
		return fmt.Sprintf("the BGP node-to-node mesh carries a route to the address from %s to %s", user, owner)
	}
	return fmt.Sprintf("%s gives %s and %s a session, and %s learns a route to the address over it", r.why, user, owner, owner)
}
