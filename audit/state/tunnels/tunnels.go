// Package tunnels evaluates the tunnels of encapsulated pools.
package tunnels

import (
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/agents"
	"github.com/calico-audit/calico-audit/blocks"
)

// LacksWireguard returns the families in which a node lacks an address for its WireGuard device: it
// publishes a key, and a pool has an address for it (node/pkg/allocateip, determineEnabledPoolCIDRs).
// took holds the types of tunnel address that any node has. If no node has one, WireGuard encrypts the
// hosts' traffic only and needs none.
func LacksWireguard(st *state.State, n *blocks.Node, took map[string]bool) (out blocks.Names) {
	for _, kind := range []string{blocks.TypeWireguard, blocks.TypeWireguardV6} {
		if took[kind] && n.LacksTunnel(kind) && st.PastGrace(n.Created) && !st.UnreadableNode(n.Name) &&
			slices.ContainsFunc(st.Pools, func(p *state.Pool) bool { return p.HandsOut() && p.GivesTunnel(kind) && p.SelectsNode(n) }) {
			out = append(out, blocks.TunnelFamily(kind).String())
		}
	}
	return out
}

// Encapsulation returns the encapsulation of a pool; empty for none. IPv6 has no IPIP.
func Encapsulation(p *state.Pool) string {
	switch {
	case p.VXLAN.Encapsulated():
		return "VXLAN"
	case p.IPIP.Encapsulated() && p.Family() == blocks.IPv4:
		return "IPIP"
	}
	return ""
}

// Name names a pool in a message.
func Name(p *state.Pool) string {
	if p.Disabled {
		return "disabled pool " + p.Name + ", which is in use,"
	}
	return "pool " + p.Name
}

// Without returns the nodes that have no tunnel address of a pool's encapsulation, and that no pool
// gives one (node/pkg/allocateip, determineEnabledPoolCIDRs). The pool, for workloads, must select
// the node, or the node must use blocks of it; for a disabled pool, only the latter counts. Without
// omits nodes that cannot be read, and Windows nodes. idle are the nodes that use blocks of the
// pool and have no VXLAN address although a pool gives one and other nodes have theirs: Felix
// programs no routes to them.
func Without(st *state.State, p *state.Pool) (names, idle blocks.Names) {
	encap := Encapsulation(p)
	if encap == "" || !p.ServesWorkloads() && (!p.Disabled || !p.Allows(blocks.UseWorkload)) {
		return nil, nil
	}
	tunnel := map[string]string{"VXLAN" + blocks.IPv4.String(): blocks.TypeVXLAN, "VXLAN" + blocks.IPv6.String(): blocks.TypeVXLANv6, "IPIP" + blocks.IPv4.String(): blocks.TypeIPIP}[encap+p.Family().String()]
	var give []*state.Pool
	for _, q := range st.Pools {
		if q.HandsOut() && q.GivesTunnel(tunnel) {
			give = append(give, q)
		}
	}
	var nodes []*state.NodeState
	if !p.Disabled {
		nodes = st.SelectedBy(p)
	}
	for _, b := range p.Blocks {
		if h := st.NodeState(b.Owner.Node()); h != nil && h.Node != nil && b.Used > 0 && (p.Disabled || !p.SelectsNode(h.Node)) {
			nodes = append(nodes, h) // its pods ask for the pool, which ignores the selector, or were created before the selector changed
		}
	}
	others := false
	for _, h := range nodes {
		switch {
		case slices.ContainsFunc(h.Node.Tunnels, func(t blocks.Tunnel) bool { return t.Type == tunnel }):
			others = true
		case !h.Node.LacksTunnel(tunnel) || st.UnreadableNode(h.Name) || slices.Contains(names, h.Name):
		case !slices.ContainsFunc(give, func(q *state.Pool) bool { return q.SelectsNode(h.Node) }):
			names = append(names, h.Name)
		case encap == "VXLAN" && len(h.Node.Addresses) > 0 && st.PastGrace(h.Node.Created) && !slices.Contains(idle, h.Name) &&
			slices.ContainsFunc(h.Blocks, func(b *state.Block) bool { return b.Pool == p && b.Used > 0 }):
			idle = append(idle, h.Name)
		}
	}
	if !others || p.Disabled {
		idle = nil
	}
	return names, idle
}

// Off reports whether Felix sets up no tunnel for a pool, although a node has an address for one.
// unset is true if no one turned it off: before v3.23, Felix ignored the pools by default, and
// calico-node set the field when it created the first pool. (projectcalico/calico#5576; felix/calc,
// EncapsulationCalculator: the FelixConfiguration overrides the pools.) variable is the environment
// variable of calico-node that turned it off; it overrides the FelixConfiguration.
func Off(st *state.State, p *state.Pool) (field, variable string, off, unset bool) {
	if len(st.Nodes) < 2 || !st.Felix.Present || !p.ServesWorkloads() || p.Addrs.InUse.IsZero() || p.Family() != blocks.IPv4 {
		return "", "", false, false
	}
	set, name := st.Felix.VXLANEnabled, blocks.FelixVXLAN
	switch Encapsulation(p) {
	case "VXLAN":
		field = "vxlanEnabled"
	case "IPIP":
		field, set, name = "ipipEnabled", st.Felix.IPIPEnabled, blocks.FelixIPIP
	default:
		return "", "", false, false
	}
	if on, known := agents.Switch(st, name); !known {
		return "", "", false, false
	} else if on != nil {
		set, variable = on, name
	}
	unset = field == "vxlanEnabled" && set == nil && st.Cluster.CalicoVersion != "" && !blocks.CalicoAtLeast(st.Cluster.CalicoVersion, 3, 23)
	return field, variable, unset || set != nil && !*set, unset
}

// Overwritten returns the given nodes that have a VXLAN tunnel address in a block. Something has
// removed the address from the Node, such as "calicoctl apply" (kubernetes-sigs/kubespray#11096).
func Overwritten(st *state.State, nodes blocks.Names) (out blocks.Names) {
	st.EachAllocation(func(r state.AllocationRef, _ string) {
		kind, node := r.Attributes().TunnelOf()
		if (kind == blocks.TypeVXLAN || kind == blocks.TypeVXLANv6) && slices.Contains(nodes, node) && !slices.Contains(out, node) {
			out = append(out, node)
		}
	})
	slices.Sort(out)
	return out
}
