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

// sessions holds the BGP sessions of one family, as confd configures them in BIRD (confd
// pkg/backends/calico/client.go, updatePeersV1, and the bird templates).
//
// Sessions are not listed, because a mesh of 5,000 nodes has too many. Nodes that all rules
// treat alike form a group, and results for one member apply to all. Sessions between two
// nodes are computed on demand.
type sessions struct {
	r      *Routing
	family blocks.Family
	// recorded reports whether any node records an address of the family. If not, all nodes
	// are assumed to have one.
	recorded bool
	// vteps reports whether any node has a VXLAN tunnel address of the family.
	vteps bool
	// mixed reports whether nodes have different AS numbers.
	mixed bool
	// meshed is the number of nodes in the node-to-node mesh.
	meshed   int
	peerings []*peering
	speakers map[string]*speaker
	groups   []*group
	rules    rules
}

// peering is a BGPPeer with sessions of the family.
type peering struct {
	*blocks.BGPPeer
	index int
	// global peerings apply to every node, and take precedence over those for some nodes.
	global bool
	// router is the outside router that it names; invalid if it names nodes.
	router netip.Addr
}

// speaker is a node with its BGP properties.
type speaker struct {
	*blocks.Node
	as uint32
	// local and remote are the peerings with the node at either end: as a node that the
	// peering applies to, or as the peer.
	local, remote bits
	group         *group
}

// group holds nodes that are alike.
type group struct {
	members []*speaker
	// routers are the members' sessions with outside routers.
	routers []routerSides
}

// routerSides holds a node's configurations for sessions with one router.
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

// findPeerings skips the peers that confd skips: those with an invalid address, and those
// that are pods of the node.
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

// matchPeerings determines the nodes at both ends of each peering. An invalid selector
// selects no nodes (confd node_labels.go).
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

// speaks reports whether a node has any BGP sessions of the family: without an address,
// confd configures none.
func (ss *sessions) speaks(sp *speaker) bool {
	return !ss.r.off[sp.Name] && (!ss.recorded || addressOf(sp.Node, ss.family).IsValid())
}
