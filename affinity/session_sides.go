package affinity

import (
	"cmp"
	"net"
	"net/netip"
)

// This file determines how confd configures the two ends of a session.

// sides returns the possible configurations of x for its session with y, without the mesh. If
// several peerings have the same address, confd uses one of them: a global one if there is one,
// else one for some nodes, else the reverse of one of y's. Among equals the choice is random, so
// all are returned.
func (ss *sessions) sides(x, y *speaker) []side {
	if !x.local.meets(y.remote) && !y.local.meets(x.remote) {
		return nil
	}
	var tiers [3][]side
	for _, p := range ss.peerings {
		if x.local.has(p.index) && y.remote.has(p.index) {
			s := side{by: p, localAS: x.as, remoteAS: y.as, filters: p.Filters}
			peerID := y.RouteReflectorID
			if p.PeerSelector == "" {
				s.localAS, s.remoteAS, s.allow = cmp.Or(p.LocalAS, x.as), cmp.Or(p.ASNumber, y.as), p.AllowedLocalAS
				peerID = "" // confd does not look up the cluster ID of a peer given by address
			}
			s.client = s.internal() && x.RouteReflectorID != "" && x.RouteReflectorID != peerID
			tier := 1
			if p.global {
				tier = 0
			}
			tiers[tier] = append(tiers[tier], s)
		}
		if y.local.has(p.index) && x.remote.has(p.index) && !p.ManualReverse &&
			(p.PeerSelector != "" || x.as == cmp.Or(p.ASNumber, ss.r.s.BGP.ASNumber)) {
			s := side{by: p, localAS: x.as, remoteAS: y.as, filters: p.Filters}
			s.client = s.internal() && x.RouteReflectorID != "" && x.RouteReflectorID != y.RouteReflectorID
			tiers[2] = append(tiers[2], s)
		}
	}
	for _, t := range tiers {
		if len(t) > 0 {
			return t
		}
	}
	return nil
}

// routersOf returns, by router, a node's configurations for its sessions with outside
// routers.
func (ss *sessions) routersOf(x *speaker) []routerSides {
	var out []routerSides
	at := map[netip.Addr]int{}
	for _, global := range []bool{true, false} {
		for _, p := range ss.peerings {
			if p.global != global || !p.router.IsValid() || !x.local.has(p.index) {
				continue
			}
			s := side{by: p, localAS: cmp.Or(p.LocalAS, x.as), remoteAS: p.ASNumber, allow: p.AllowedLocalAS, filters: p.Filters}
			s.client = s.internal() && x.RouteReflectorID != ""
			i, seen := at[p.router]
			switch {
			case !seen:
				at[p.router] = len(out)
				out = append(out, routerSides{p.router, []side{s}})
			case out[i].sides[0].by.global == global:
				out[i].sides = append(out[i].sides, s)
			}
		}
	}
	return out
}

// meshes reports whether two nodes have a session of the node-to-node mesh. Route
// reflectors do not take part in it. Between nodes of different AS numbers, the session
// only comes up on a common subnet: the template does not set "multihop", and without it
// BIRD requires external neighbours to be directly connected.
func (ss *sessions) meshes(x, y *speaker) answer {
	switch {
	case !ss.r.s.BGP.Mesh || x.RouteReflectorID != "" || y.RouteReflectorID != "" || !ss.speaks(x) || !ss.speaks(y):
		return no
	case x.as == y.as:
		return yes
	}
	return sameSubnet(x.Node, y.Node, ss.family)
}

func (ss *sessions) hasSession(x *speaker) bool {
	if !ss.speaks(x) {
		return false
	}
	if ss.r.s.BGP.Mesh && x.RouteReflectorID == "" && ss.meshed > 1 || len(x.group.routers) > 0 {
		return true
	}
	for _, g := range ss.groups {
		for _, y := range g.members[:min(2, len(g.members))] {
			if y != x && len(ss.sides(x, y)) > 0 && len(ss.sides(y, x)) > 0 {
				return true
			}
		}
	}
	return false
}

// speaks reports whether a node has any BGP sessions of the family: without an address,
// confd configures none.
func (ss *sessions) speaks(sp *speaker) bool {
	return !ss.r.off[sp.Name] && (!ss.recorded || addressOf(sp.Node, ss.family).IsValid())
}

func (s side) internal() bool { return s.localAS == s.remoteAS }

// name returns the source of the session, for messages.
func (s side) name() string {
	if s.by == nil {
		return "the node-to-node mesh"
	}
	return "BGPPeer " + quote(s.by.Name)
}

func quote(s string) string { return `"` + s + `"` }

func parsePeerIP(s string) (netip.Addr, bool) {
	if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	}
	a, err := netip.ParseAddr(s)
	return a.Unmap(), err == nil
}
