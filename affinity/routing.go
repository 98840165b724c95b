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
