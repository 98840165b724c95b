package affinity

import (
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// BlockRoutes describes the routes to blocks that some nodes of a pool do not learn by BGP.
type BlockRoutes struct {
	// Alone are the nodes without a BGP session.
	Alone blocks.Names
	// From are nodes whose routes reach none of the nodes To. If Both, those of To do not reach From
	// either. Reason explains why, as a clause.
	From, To blocks.Names
	Both     bool
	Reason   string
	// Reflectors is true if route reflectors or sessions between them are the cause.
	Reflectors bool
	// Nodes are all nodes whose routes do not reach every other node, or that lack the route of
	// another node.
	Nodes blocks.Names
}

// maxPasses limits how often [Routing.LostBlockRoutes] passes a route on, and maxDifferent the number of
// different nodes. Fifty racks with two peered reflectors each need a tenth of them.
const (
	maxPasses    = 200_000
	maxDifferent = 2_000
)

// LostBlockRoutes returns the routes to blocks of a pool that BGP does not carry between the given
// nodes. Each node has a block. The result is nil if BGP carries all routes, or may: a router outside
// the cluster, a pod that peers, and a session with a BGPFilter count as carrying them.
func (r *Routing) LostBlockRoutes(p *blocks.Pool, nodes []*blocks.Node) *BlockRoutes {
	if !r.blockRoutesKnown(p) {
		return nil
	}
	ss := r.sessions[p.Family()]()
	users, seen := map[*group][]*speaker{}, map[*speaker]bool{}
	var order, alone []*group
	for _, n := range nodes {
		sp := ss.speakers[n.Name]
		if sp == nil || sp.group == nil {
			continue // without an address for BGP: node/no-calico-address
		}
		if users[sp.group] == nil {
			order = append(order, sp.group)
		}
		if !seen[sp] {
			seen[sp], users[sp.group] = true, append(users[sp.group], sp)
		}
	}
	if len(ss.peerings) > 0 && !ss.recorded || len(ss.groups) > maxDifferent {
		return nil // the nodes' annotations are missing, or no two nodes are alike
	}
	lost, passes := map[*group]map[*group]bool{}, 0
	for _, g := range order {
		if !ss.hasSession(g.members[0]) {
			alone = append(alone, g)
		} else if reached := ss.reach(p, users[g][0], order, &passes); reached != nil {
			lost[g] = map[*group]bool{}
			for _, to := range order {
				if !reached[to] && (to != g || len(users[g]) > 1) {
					lost[g][to] = true
				}
			}
		}
	}
	if passes > maxPasses {
		return nil
	}
	return ss.describe(p, order, alone, users, lost)
}

// blockRoutesKnown reports whether the kinds that decide about a pool's routes were read completely, and
// no object changes routes in a way that is not followed.
func (r *Routing) blockRoutesKnown(p *blocks.Pool) bool {
	if _, missing := r.unread(blocks.Nodes, blocks.FelixConfigs, blocks.BGPConfigs, blocks.BGPPeers); missing {
		return false
	}
	for _, g := range slices.Concat(r.s.Unreadable(blocks.FelixConfigs), r.s.Unreadable(blocks.BGPConfigs), r.s.Unreadable(blocks.BGPPeers), r.s.Unreadable(blocks.Nodes)) {
		if _, bad := r.nodeFault(g.Name); bad || g.Resource != blocks.Nodes {
			return false
		}
	}
	labelled := slices.ContainsFunc(r.s.Nodes, func(n blocks.Node) bool { return len(n.Labels) > 0 })
	return r.ByBIRD(p) && (!r.s.BGP.Mesh || len(r.s.BGPPeers) > 0) &&
		!slices.ContainsFunc(r.s.BGPPeers, func(q blocks.BGPPeer) bool {
			return q.AllowedLocalAS > 0 || q.PeerIP == "" && q.PeerSelector == "" || (q.NodeSelector != "" || q.PeerSelector != "") && !labelled
		})
}

// reach returns the groups that the routes to a node's blocks reach, whatever the certainty; nil if they
// reach all of the given ones, or a router outside the cluster, which may pass them on to any node.
func (ss *sessions) reach(p *blocks.Pool, from *speaker, all []*group, passes *int) map[*group]bool {
	s := ss.blockSearch(p, from)
	s.reached, s.seen = map[*group]bool{}, map[string][]*route{}
	renumbers := slices.ContainsFunc(ss.peerings, func(q *peering) bool { return q.LocalAS != 0 })
	s.add(&route{at: from, origin: ownRoute})
	for c := sure; c < certainties; {
		if len(s.queues[c]) == 0 {
			c++
			continue
		}
		r := s.queues[c][0]
		s.queues[c] = s.queues[c][1:]
		for _, g := range ss.groups {
			for _, y := range g.members[:min(2, len(g.members))] {
				if y == from || y == r.at {
					continue
				}
				if forwards := ss.forwards(y); !forwards && !s.reached[g] || forwards && (renumbers || r.at.as != y.as || !s.holdsBetter(y, r)) {
					s.toNode(r, y)
					*passes++
				}
				break
			}
		}
		for _, to := range r.at.group.routers {
			s.toRouter(r, to.router, to.sides)
		}
		missed := slices.ContainsFunc(all, func(g *group) bool { return !s.reached[g] && (g != from.group || len(g.members) > 1) })
		if s.outside || !missed || *passes > maxPasses {
			return nil
		}
		c = sure
	}
	return s.reached
}

// holdsBetter reports whether a node already has a client's route that it passes on to every peer
// that would get a route learnt from a peer of its AS.
func (s *search) holdsBetter(y *speaker, than *route) bool {
	return slices.ContainsFunc(s.clients[y], func(r *route) bool {
		return r.cert <= than.cert && slices.Equal(r.path, than.path) && within(r.clusters, than.clusters)
	})
}

// blockSearch returns a search for the ways of the routes to a node's blocks.
func (ss *sessions) blockSearch(p *blocks.Pool, from *speaker) *search {
	return &search{sessions: ss, user: from, whole: true, clients: map[*speaker][]*route{}, b: Borrowed{Addr: p.CIDR.Addr(), Pool: p, User: from.Name, hypothetical: true}}
}

// describe names the nodes: those without a session, and the largest sets of nodes between which the
// first lost route is one of many.
func (ss *sessions) describe(p *blocks.Pool, order, alone []*group, users map[*group][]*speaker, lost map[*group]map[*group]bool) *BlockRoutes {
	out := &BlockRoutes{}
	// apart reports whether no route of one set reaches the other. A node needs none to itself.
	apart := func(from, to []*group) bool {
		return !slices.ContainsFunc(from, func(g *group) bool {
			return slices.ContainsFunc(to, func(h *group) bool { return !lost[g][h] && (g != h || len(users[g]) > 1) })
		})
	}
	involved, isAlone := map[*group]bool{}, map[*group]bool{}
	for _, g := range alone {
		isAlone[g] = true
		out.Reflectors = out.Reflectors || g.members[0].RouteReflectorID != "" // which the mesh does not help
		out.Alone = append(out.Alone, names(users[g])...)
	}
	if len(order) == len(alone) && len(out.Alone) == 1 {
		return nil // a single node needs no route
	}
	var from, to []*group
	var first *speaker // that lacks the route
	for _, g := range order {
		if isAlone[g] {
			involved[g] = true
			continue
		}
		for _, h := range order {
			if lost[g][h] && !isAlone[h] {
				involved[g], involved[h] = true, true
				if from == nil || from[0] == g {
					if from == nil {
						first = users[h][0]
						if h == g {
							first = users[h][1]
						}
					}
					from, to = []*group{g}, append(to, h)
				}
			}
		}
	}
	if len(alone) == 0 && from == nil {
		return nil
	}
	if from != nil {
		for _, g := range order {
			if g != from[0] && apart([]*group{g}, to) {
				from = append(from, g)
			}
		}
		if out.Both = apart(to, from); out.Both && apart(slices.Concat(from, to), slices.Concat(from, to)) {
			from = slices.Concat(from, slices.DeleteFunc(to, func(g *group) bool { return slices.Contains(from, g) }))
			to = from
		}
		for _, g := range from {
			out.From = append(out.From, names(users[g])...)
		}
		for _, g := range to {
			out.To = append(out.To, names(users[g])...)
		}
		s := ss.blockSearch(p, users[from[0]][0])
		s.owner = first
		s.run()
		out.Reason = s.why()
		if len(alone) == 0 {
			out.Reflectors = len(s.obstacles) == 0 || s.obstacles[0].kind == blockReflect
		}
	}
	for _, g := range order {
		if involved[g] {
			out.Nodes = append(out.Nodes, names(users[g])...)
		}
	}
	for _, n := range []*blocks.Names{&out.Alone, &out.From, &out.To, &out.Nodes} {
		slices.Sort(*n)
	}
	return out
}

func names(speakers []*speaker) (all []string) {
	for _, sp := range speakers {
		all = append(all, sp.Name)
	}
	return all
}
