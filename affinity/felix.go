package affinity

import (
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// felix predicts for a pool whose routes Felix programs. The owner, as the block itself
// records it, has a blackhole for the block, and a route to each of its addresses that is
// allocated to another node (felix calc/l3_route_resolver.go, routesFromBlock;
// dataplane/linux/route_mgr.go).
func (r *Routing) felix(b Borrowed) Prediction {
	if r.s.Felix.RouteSource == "WorkloadIPs" {
		return Prediction{Outcome: Delivered, Reason: "Felix makes routes from each pod's address (routeSource: WorkloadIPs) and no blackholes from blocks"}
	}
	p := r.felixByIPAM(b)
	if g, missing := r.s.Missing(blocks.FelixConfigs); missing && p.Outcome == Dropped {
		return unknown("the FelixConfiguration's routeSource", "a read is missing: %s; unless routeSource is WorkloadIPs the traffic is dropped, because %s", g, p.Reason)
	}
	return p
}

func (r *Routing) felixByIPAM(b Borrowed) Prediction {
	if g, missing := r.s.Missing(blocks.Nodes); missing && (b.Tunnel || b.Attributes != nil && b.Attributes.Node != "") {
		return unknown("the right, or the file, to read nodes", "a read is missing: %s; whether Felix knows %s is therefore unknown", g, b.User)
	}
	if b.Tunnel {
		if p, bad := r.notWhole(b.User); bad {
			return p
		}
		// If the node itself records the address as its tunnel's, Felix makes a route, regardless
		// of the allocation.
		if n := r.nodes[b.User]; n != nil && slices.ContainsFunc(n.Tunnels, func(t blocks.Tunnel) bool { return t.Addr == b.Addr }) {
			return r.felixRoute(b, n)
		}
	}
	named := ""
	if b.Attributes != nil {
		named = b.Attributes.Node
	}
	if p, bad := r.notWhole(named); bad && named != "" {
		return p
	}
	switch n := r.nodes[named]; {
	case named == "":
		return dropped("the allocation does not record the node that uses the address, and without it Felix makes no route to the address, so the blackhole of the block wins on %s", b.Owner)
	case named == b.Owner:
		return dropped("the allocation names %s itself, the block's owner, as the node that uses the address, so Felix makes no separate route to it and the block's blackhole wins", b.Owner)
	case n == nil:
		return dropped("the allocation names %s as the node that uses the address, which is not a node of the cluster, so Felix makes no route to it and the block's blackhole wins", named)
	case named != b.User:
		return unknown("on which node the pod runs", "the allocation names %s as the node that uses the address: Felix routes it there, and not to %s", named, b.User)
	default:
		return r.felixRoute(b, n)
	}
}

// felixRoute predicts whether Felix on the owner can program a route to node n.
func (r *Routing) felixRoute(b Borrowed, n *blocks.Node) Prediction {
	what := "Felix programs this pool's routes"
	if encapsulated(b.Pool.VXLAN) {
		what = "the pool uses VXLAN: Felix programs its routes"
	}
	family := blocks.FamilyOf(b.Addr)
	owner := r.nodes[b.Owner]
	if p, bad := r.notWhole(b.Owner); bad {
		return p
	}
	delivered := Prediction{Outcome: Delivered, Reason: what + " and gives " + b.Owner + " one to the address, by way of " + n.Name}
	if !encapsulated(b.Pool.VXLAN) {
		if r.addressMissing(n, family) {
			return unknown("whether "+n.Name+" has an "+family.String()+" address (kubectl get node -o wide): Felix then takes that",
				"%s, and %s records no %s address for Calico", what, n.Name, family)
		}
		return delivered
	}
	same := b.Pool.VXLAN == blocks.EncapCrossSubnet && inSubnetOf(owner, n, family)
	for _, end := range []*blocks.Node{owner, n} {
		switch {
		case end == nil:
		case r.addressMissing(end, family):
			return dropped("%s records no %s address for Calico, so Felix cannot set up VXLAN between it and the other nodes, and on %s the block's blackhole wins", end.Name, family, b.Owner)
		case r.vtepMissing(end, family) && (!same || end == owner):
			return dropped("%s has no VXLAN tunnel address (%s), so Felix on %s has no route to it and the block's blackhole wins", end.Name, family, b.Owner)
		}
	}
	return delivered
}

func dropped(format string, args ...any) Prediction {
	p := unknown("", format, args...)
	p.Outcome = Dropped
	return p
}

// addressMissing reports whether a node records no address of a family although other nodes
// do. If no node does, the snapshot has no such records.
func (r *Routing) addressMissing(n *blocks.Node, f blocks.Family) bool {
	return !addressOf(n, f).IsValid() && r.sessions[f]().recorded
}

// vtepMissing is the same for VXLAN tunnel addresses.
func (r *Routing) vtepMissing(n *blocks.Node, f blocks.Family) bool {
	return !hasVTEP(n, f) && r.sessions[f]().vteps
}

func hasVTEP(n *blocks.Node, f blocks.Family) bool {
	return slices.ContainsFunc(n.Tunnels, func(t blocks.Tunnel) bool {
		return t.Type == blocks.TypeVXLAN && f == blocks.IPv4 || t.Type == blocks.TypeVXLANv6 && f == blocks.IPv6
	})
}

// addressOf returns a node's BGP address of a family; the zero Prefix if it records none.
func addressOf(n *blocks.Node, f blocks.Family) netip.Prefix {
	for _, a := range n.Addresses {
		if blocks.FamilyOf(a.Addr()) == f {
			return a
		}
	}
	return netip.Prefix{}
}

// inSubnetOf reports whether Felix on node here reaches node there without a tunnel in a
// CrossSubnet pool. It does if there's address lies in here's recorded subnet; there's own
// subnet does not matter (felix calc/l3_route_resolver.go, nodeInOurSubnet).
func inSubnetOf(here, there *blocks.Node, f blocks.Family) bool {
	if here == nil || there == nil {
		return false
	}
	own, other := addressOf(here, f), addressOf(there, f)
	return own.IsValid() && other.IsValid() && own.Contains(other.Addr())
}

// answer is yes, no or unknown (perhaps).
type answer int

const (
	perhaps answer = iota
	yes
	no
)

// sameSubnet reports whether two nodes' addresses lie in one subnet. It is unknown if an
// address is recorded without the length of its subnet.
func sameSubnet(a, b *blocks.Node, f blocks.Family) answer {
	if a == nil || b == nil {
		return perhaps
	}
	x, y := addressOf(a, f), addressOf(b, f)
	switch {
	case !x.IsValid() || !y.IsValid() || x.IsSingleIP() || y.IsSingleIP():
		return perhaps
	case x.Contains(y.Addr()) && y.Contains(x.Addr()):
		return yes
	case !x.Contains(y.Addr()) && !y.Contains(x.Addr()):
		return no
	}
	return perhaps
}
