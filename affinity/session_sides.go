package affinity

import (
	"cmp"
	"net/netip"
)

// This file says how the two ends of a session are configured.

// side is how one end of a session is configured.
type side struct {
	// by is the peering that it comes from; nil for the mesh.
	by *peering
	// localAS and remoteAS are the AS numbers that the end shows and expects.
	localAS, remoteAS uint32
	// client is true where the end, a route reflector, takes the other for its
	// client.
	client bool
	// allow is how often the end's own AS may stand in the path of a route.
	allow   int
	filters []string
}

func (s side) internal() bool { return s.localAS == s.remoteAS }

// name is what a session comes from, for people.
func (s side) name() string {
	if s.by == nil {
		return "the node-to-node mesh"
	}
	return "BGPPeer " + quote(s.by.Name)
}

func quote(s string) string { return `"` + s + `"` }

// sides returns how a node is configured for sessions with another, the mesh
// left out. Of several peerings to one address confd takes one: a global one
// before one for some nodes, and either before one that is the reverse of the
// other node's. Among equals which one it takes is chance.
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
				peerID = "" // confd does not look it up for a peer given by address
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

// routersOf returns how a node is configured for its sessions with routers
// outside, by router.
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

// meshes reports whether two nodes have a session of the node-to-node mesh, from
// which route reflectors keep away. Between nodes of different AS numbers it
// comes up on a common subnet only: the template sets no "multihop", without
// which BIRD wants an outside neighbour to be directly connected.
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
