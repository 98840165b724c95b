package affinity

import (
	"cmp"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/projectcalico/calico/libcalico-go/lib/selector"

	"github.com/calico-audit/calico-audit/blocks"
)

// sessions is who exchanges routes of one family with whom, as confd configures
// BIRD (confd pkg/backends/calico/client.go, updatePeersV1, and the bird
// templates).
//
// Sessions are never listed: of 5,000 nodes in a mesh they are too many. Nodes
// that every rule treats alike form a group, and what holds for one holds for
// all; whether two nodes have a session is worked out when it is asked.
type sessions struct {
	r      *Routing
	family blocks.Family
	// recorded reports whether any node records an address of the family. Where none
	// does, all are taken to have one.
	recorded bool
	// vteps reports whether any node has a VXLAN tunnel address of the family.
	vteps bool
	// mixed reports whether nodes have different AS numbers.
	mixed bool
	// meshed is how many nodes take part in the node-to-node mesh.
	meshed   int
	peerings []*peering
	speakers map[string]*speaker
	groups   []*group
	rules    rules
}

// peering is a BGPPeer that makes sessions in the family.
type peering struct {
	*blocks.BGPPeer
	index int
	// global peerings are for every node, and win over those for some.
	global bool
	// router is the outside router that it names; not valid if it names nodes.
	router netip.Addr
}

// speaker is a node as BGP sees it.
type speaker struct {
	*blocks.Node
	as uint32
	// local and remote are the peerings that the node is on either end of: as one
	// that the peering is for, or as the peer that it names.
	local, remote bits
	group         *group
}

// group is nodes that are alike.
type group struct {
	members []*speaker
	// routers are their sessions with routers outside.
	routers []routerSides
}

// routerSides is how a node is configured for sessions with one router.
type routerSides struct {
	router netip.Addr
	sides  []side
}

func newSessions(r *Routing, f blocks.Family) *sessions {
	ss := &sessions{r: r, family: f, speakers: make(map[string]*speaker, len(r.s.Nodes)), rules: newRules(r.s)}
	all := make([]*speaker, len(r.s.Nodes))
	for i := range r.s.Nodes {
		n := &r.s.Nodes[i]
		sp := &speaker{Node: n, as: cmp.Or(n.ASNumber, r.s.BGP.ASNumber)}
		all[i], ss.speakers[n.Name] = sp, sp
		ss.recorded = ss.recorded || addressOf(n, f).IsValid()
		ss.vteps = ss.vteps || hasVTEP(n, f)
		ss.mixed = ss.mixed || sp.as != all[0].as
	}
	ss.findPeerings()
	for _, sp := range all {
		sp.local, sp.remote = newBits(len(ss.peerings)), newBits(len(ss.peerings))
	}
	ss.matchPeerings(all)
	ss.findGroups(all)
	return ss
}

// findPeerings leaves out what confd leaves out: peers whose address cannot be
// read, and those that are pods of the node.
func (ss *sessions) findPeerings() {
	for i := range ss.r.s.BGPPeers {
		p := &peering{BGPPeer: &ss.r.s.BGPPeers[i], index: len(ss.peerings)}
		p.global = p.Node == "" && p.NodeSelector == ""
		if p.LocalWorkloads {
			continue
		}
		if p.PeerSelector == "" {
			ip, ok := parsePeerIP(p.PeerIP)
			if !ok && p.PeerIP != "" || ok && blocks.FamilyOf(ip) != ss.family {
				continue
			}
			p.router = ip
		}
		ss.peerings = append(ss.peerings, p)
	}
}

func parsePeerIP(s string) (netip.Addr, bool) {
	if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	}
	a, err := netip.ParseAddr(s)
	return a.Unmap(), err == nil
}

// matchPeerings finds out which nodes each peering concerns. A selector that
// cannot be parsed selects none (confd node_labels.go).
func (ss *sessions) matchPeerings(all []*speaker) {
	at := map[netip.Addr][]*speaker{}
	for _, sp := range all {
		if a := addressOf(sp.Node, ss.family); a.IsValid() {
			at[a.Addr()] = append(at[a.Addr()], sp)
		}
	}
	known := map[string][]*speaker{}
	selected := func(text string) []*speaker {
		of, ok := known[text]
		if !ok {
			if sel, err := selector.Parse(text); err == nil {
				of = slices.DeleteFunc(slices.Clone(all), func(sp *speaker) bool { return !sel.Evaluate(sp.Labels) })
			}
			known[text] = of
		}
		return of
	}
	for _, p := range ss.peerings {
		local := all
		if p.NodeSelector != "" {
			local = selected(p.NodeSelector)
		} else if p.Node != "" {
			local = nil
			if sp := ss.speakers[p.Node]; sp != nil {
				local = []*speaker{sp}
			}
		}
		remote := at[p.router]
		if p.PeerSelector != "" {
			remote = selected(p.PeerSelector)
		} else if len(remote) > 0 {
			p.router = netip.Addr{}
		}
		for _, sp := range local {
			sp.local.set(p.index)
		}
		for _, sp := range remote {
			sp.remote.set(p.index)
		}
	}
}

func (ss *sessions) findGroups(all []*speaker) {
	byKey := map[string]*group{}
	for _, sp := range all {
		if !ss.speaks(sp) {
			continue
		}
		if sp.RouteReflectorID == "" {
			ss.meshed++
		}
		var key strings.Builder
		_ = binary.Write(&key, binary.BigEndian, sp.as)
		_ = binary.Write(&key, binary.BigEndian, sp.local)
		_ = binary.Write(&key, binary.BigEndian, sp.remote)
		key.WriteString(sp.RouteReflectorID)
		if ss.mixed && ss.r.s.BGP.Mesh {
			key.WriteString("|" + addressOf(sp.Node, ss.family).Masked().String())
		}
		g := byKey[key.String()]
		if g == nil {
			g = &group{routers: ss.routersOf(sp)}
			byKey[key.String()] = g
			ss.groups = append(ss.groups, g)
		}
		g.members = append(g.members, sp)
		sp.group = g
	}
}

// speaks reports whether a node speaks BGP in the family at all: without an
// address confd configures no session.
func (ss *sessions) speaks(sp *speaker) bool {
	return !ss.recorded || addressOf(sp.Node, ss.family).IsValid()
}
