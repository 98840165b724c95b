package affinity

import (
	"net"
	"net/netip"

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

// side is the configuration of one end of a session.
type side struct {
	// by is the BGPPeer that configures it; nil for the mesh.
	by *peering
	// localAS and remoteAS are the AS numbers that the end presents and expects.
	localAS, remoteAS uint32
	// client is true if this end, a route reflector, treats the other as its client.
	client bool
	// allow is how often the end's own AS may appear in the path of a route.
	allow   int
	filters []string
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
