package affinity

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/calico-audit/calico-audit/blocks"
)

// Routing predicts how routes spread among the nodes of a snapshot. Create one per
// snapshot; expensive parts are computed on first use. It is safe for concurrent use.
type Routing struct {
	s     *blocks.Snapshot
	nodes map[string]*blocks.Node

	// affinities are by CIDR. BIRD makes its blackholes and announcements from them.
	affinities func() *byPrefix[*blocks.Affinity]
	sessions   map[blocks.Family]func() *sessions
	// off are nodes without sessions ([Routing.While]).
	off map[string]bool
}

// NewRouting returns a Routing for a snapshot.
func NewRouting(s *blocks.Snapshot) *Routing {
	r := &Routing{s: s, nodes: make(map[string]*blocks.Node, len(s.Nodes))}
	for i := range s.Nodes {
		r.nodes[s.Nodes[i].Name] = &s.Nodes[i]
	}
	r.affinities = sync.OnceValue(func() *byPrefix[*blocks.Affinity] {
		all := &byPrefix[*blocks.Affinity]{}
		for i := range s.Affinities {
			all.add(s.Affinities[i].CIDR, &s.Affinities[i])
		}
		return all
	})
	r.sessions = map[blocks.Family]func() *sessions{
		blocks.IPv4: sync.OnceValue(func() *sessions { return newSessions(r, blocks.IPv4) }),
		blocks.IPv6: sync.OnceValue(func() *sessions { return newSessions(r, blocks.IPv6) }),
	}
	return r
}

// While returns the routing while the given nodes are off: they have no BGP sessions.
func (r *Routing) While(off []string) *Routing {
	out := NewRouting(r.s)
	out.off = make(map[string]bool, len(off))
	for _, name := range off {
		out.off[name] = true
	}
	return out
}

// Borrowed is an address of one node's block that another node uses.
type Borrowed struct {
	Addr  netip.Addr
	Block *blocks.Block
	// Pool is the pool of the block; nil if there is none.
	Pool *blocks.Pool
	// Owner is the node that owns the block, User the node that uses the address.
	Owner, User string
	// Attributes describe the allocation.
	Attributes *blocks.Attributes
	// Tunnel is true for the address of a tunnel device.
	Tunnel bool

	// hypothetical is true if no one has borrowed the address.
	hypothetical bool
}

func unknown(decidedBy, format string, args ...any) Prediction {
	return Prediction{Outcome: Unknown, DecidedBy: decidedBy, Reason: fmt.Sprintf(format, args...)}
}

// unread returns an unknown prediction if a whole kind of object was not read.
func (r *Routing) unread(kinds ...blocks.Resource) (Prediction, bool) {
	for _, k := range kinds {
		if g, missing := r.s.Missing(k); missing {
			return unknown("the right, or the file, to read "+string(k), "a read is missing: %s", g), true
		}
	}
	return Prediction{}, false
}

// noNode reports whether no node has the name. It returns false if nodes may be unread.
func (r *Routing) noNode(name string) bool {
	if _, missing := r.s.Missing(blocks.Nodes); missing || r.nodes[name] != nil {
		return false
	}
	for _, g := range r.s.Unreadable(blocks.Nodes) {
		if g.Name == name || strings.HasPrefix(g.Name, "(") {
			return false
		}
	}
	return true
}

// nodeFault returns the gap, if any, that hides a node's addresses, AS number, labels or
// cluster ID.
func (r *Routing) nodeFault(name string) (blocks.Gap, bool) {
	for _, g := range r.s.Unreadable(blocks.Nodes) {
		if g.Name == name && (r.nodes[name] == nil || g.Field == "" || strings.HasPrefix(g.Field, "metadata")) {
			return g, true
		}
	}
	return blocks.Gap{}, false
}

// notWhole returns an unknown prediction if one of the nodes could not be read completely.
func (r *Routing) notWhole(names ...string) (Prediction, bool) {
	for _, name := range names {
		if g, bad := r.nodeFault(name); bad {
			return unknown("what node "+name+" records", "node %s could not be read completely: %s", name, g), true
		}
	}
	return Prediction{}, false
}

// wireguard reports whether WireGuard may carry the address: both nodes have a WireGuard
// device address, and the allocation names the using node.
func (r *Routing) wireguard(b Borrowed) bool {
	f := blocks.FamilyOf(b.Addr)
	return b.Attributes != nil && b.Attributes.Node == b.User && hasWireguard(r.nodes[b.Owner], f) && hasWireguard(r.nodes[b.User], f)
}

func hasWireguard(n *blocks.Node, f blocks.Family) bool {
	return n != nil && slices.ContainsFunc(n.Tunnels, func(t blocks.Tunnel) bool {
		return (t.Type == blocks.TypeWireguard || t.Type == blocks.TypeWireguardV6) && blocks.FamilyOf(t.Addr) == f
	})
}

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

// byPrefix holds values by prefix, for lookups by address.
type byPrefix[V any] struct {
	values  map[netip.Prefix][]V
	lengths []int // longest first
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

// rules holds the BGPFilters by name.
type rules struct {
	byName map[string]*blocks.BGPFilter
	// gap describes an incomplete read of all filters; unreadable are undecodable filters.
	gap        string
	unreadable map[string]string
}
