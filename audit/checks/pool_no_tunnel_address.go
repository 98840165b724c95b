package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var poolNoTunnelAddress = audit.Check{
	ID:         "pool/no-tunnel-address",
	Title:      "nodes of an encapsulated pool have no tunnel address, because no enabled pool allows tunnels for them, or calico-node took none",
	Severities: []state.Severity{state.Error},
	Why: "calico-node takes a node's tunnel address from the enabled pools of the same encapsulation that allow tunnels and select " +
		"the node. Without the address, Felix programs no VXLAN routes to the node, and over IPIP the node's own traffic to other " +
		"nodes' pods has a source address that they may not answer. Over WireGuard, the node's own traffic to other nodes' pods lacks a source address that they accept.",
	Confirm: "kubectl get ippools -o custom-columns=NAME:.metadata.name,USES:.spec.allowedUses,VXLAN:.spec.vxlanMode,IPIP:.spec.ipipMode; " +
		"kubectl get nodes -o yaml shows no projectcalico.org/IPv4VXLANTunnelAddr (IPv6VXLANTunnelAddr, IPv4IPIPTunnelAddr, IPv4WireguardInterfaceAddr, IPv6WireguardInterfaceAddr).",
	Remedies: []remedies.Remedy{
		remedies.ByHand("let a pool of the same encapsulation that allows tunnels select the nodes: add Tunnel to allowedUses, or a small pool with allowedUses: [Tunnel]",
			"calico-node gives each node a tunnel address at once", "one address of the pool per node"),
		remedies.RestartAgents(nil),
	},
	Never:    "Never write a tunnel address into a Node by hand: no block would record it.",
	Requires: state.OtherIPAMReads,
	Run: func(st *state.State, f *audit.Findings) {
		if other := st.OtherIPAM(); other.Cluster {
			return
		} else if other.Unknown != "" {
			f.Inconclusive("not evaluated: %s", other.Unknown)
			return
		}
		took := map[string]bool{} // types of tunnels
		for i := range st.Nodes {
			for _, t := range st.Nodes[i].Tunnels {
				took[t.Type] = true
			}
		}
		for i := range st.Nodes {
			n := &st.Nodes[i]
			if lacks := lacksWireguard(st, n, took); len(lacks) > 0 {
				f.Add(audit.Finding{
					Severity: state.Error, Subject: state.NodeSubject(n.Name), Nodes: []string{n.Name}, Absence: true,
					Message:  fmt.Sprintf("node %s has a WireGuard key, and calico-node took no %s address for its WireGuard device, although other nodes have theirs", n.Name, strings.Join(lacks, " or ")),
					Remedies: []remedies.Remedy{remedies.RestartAgents([]string{n.Name})},
				})
			}
		}
		for _, p := range st.Pools {
			without, idle := withoutTunnel(st, p)
			if len(without) == 0 {
				if len(idle) > 0 {
					f.Add(audit.Finding{
						Severity: state.Error, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p), Nodes: idle, Absence: true,
						Message:  fmt.Sprintf("pool %s uses VXLAN, and calico-node took no tunnel address on %s, although other nodes have theirs", p.Name, phrase.Some(idle)),
						Evidence: state.Evidences("nodes without a tunnel address", fmt.Sprint(len(idle))),
						Remedies: []remedies.Remedy{remedies.RestartAgents(idle)},
					})
				}
				continue
			}
			if len(st.Unreadable(blocks.Pools)) > 0 {
				f.SkipPartial("not evaluated for pool %s: a pool that cannot be read may give tunnel addresses", p.Name)
				continue
			}
			f.Add(audit.Finding{
				Severity: state.Error, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p), Nodes: without, Absence: true,
				Message:  fmt.Sprintf("pool %s uses %s, and no enabled pool gives a tunnel address to %s", p.Name, encapsulation(p), phrase.Some(without)),
				Evidence: state.Evidences("allowedUses", phrase.Uses(p.Uses), "nodes without a tunnel address", fmt.Sprint(len(without))),
				Remedies: f.Check.Remedies,
			})
		}
	},
}

// lacksWireguard returns the families in which a node should have an address for its WireGuard device
// and has none: it publishes a key, and a pool has an address for it (node/pkg/allocateip,
// determineEnabledPoolCIDRs). If no node has one, WireGuard needs none: it encrypts the hosts' traffic.
func lacksWireguard(st *state.State, n *blocks.Node, took map[string]bool) (out []string) {
	for kind, family := range map[string]blocks.Family{blocks.TypeWireguard: blocks.IPv4, blocks.TypeWireguardV6: blocks.IPv6} {
		has := slices.ContainsFunc(n.Tunnels, func(t blocks.Tunnel) bool { return t.Type == kind })
		if took[kind] && slices.Contains(n.Wireguard, kind) && !has && st.PastGrace(n.Created) && !st.UnreadableNode(n.Name) &&
			slices.ContainsFunc(st.Pools, func(p *state.Pool) bool {
				return p.HandsOut() && p.Allows(blocks.UseTunnel) && p.Family() == family && p.SelectsNode(n)
			}) {
			out = append(out, family.String())
		}
	}
	slices.Sort(out)
	return out
}

// encapsulation returns the encapsulation of a pool; empty for none. IPv6 has no IPIP.
func encapsulation(p *state.Pool) string {
	on := func(e blocks.Encap) bool { return e == blocks.EncapAlways || e == blocks.EncapCrossSubnet }
	switch {
	case on(p.VXLAN):
		return "VXLAN"
	case on(p.IPIP) && p.Family() == blocks.IPv4:
		return "IPIP"
	}
	return ""
}

// withoutTunnel returns the nodes that an encapsulated pool for workloads selects, or that have
// blocks of it in use, that have no tunnel address of its encapsulation, and that no pool gives one
// (node/pkg/allocateip, determineEnabledPoolCIDRs). It omits nodes that cannot be read, and Windows
// nodes. idle are the nodes with blocks of the pool in use that have no VXLAN address although a
// pool gives one and other nodes have theirs: Felix programs no routes to them.
func withoutTunnel(st *state.State, p *state.Pool) (names, idle []string) {
	encap := encapsulation(p)
	if encap == "" || !p.ServesWorkloads() {
		return nil, nil
	}
	tunnel := map[string]string{"VXLAN" + blocks.IPv4.String(): blocks.TypeVXLAN, "VXLAN" + blocks.IPv6.String(): blocks.TypeVXLANv6, "IPIP" + blocks.IPv4.String(): blocks.TypeIPIP}[encap+p.Family().String()]
	var give []*state.Pool
	for _, q := range st.Pools {
		if q.HandsOut() && q.Allows(blocks.UseTunnel) && encapsulation(q) == encap && q.Family() == p.Family() {
			give = append(give, q)
		}
	}
	nodes := slices.Collect(st.SelectedBy(p))
	for _, b := range p.Blocks {
		if h := st.NodeState(b.Owner.Node()); h != nil && h.Node != nil && b.Used > 0 && !p.SelectsNode(h.Node) {
			nodes = append(nodes, h) // its pods ask for the pool, which ignores the selector
		}
	}
	others := false
	for _, h := range nodes {
		switch {
		case slices.ContainsFunc(h.Node.Tunnels, func(t blocks.Tunnel) bool { return t.Type == tunnel }):
			others = true
		case h.Node.Windows || st.UnreadableNode(h.Name) || slices.Contains(names, h.Name):
		case !slices.ContainsFunc(give, func(q *state.Pool) bool { return q.SelectsNode(h.Node) }):
			names = append(names, h.Name)
		case encap == "VXLAN" && len(h.Node.Addresses) > 0 && st.PastGrace(h.Node.Created) && !slices.Contains(idle, h.Name) &&
			slices.ContainsFunc(h.Blocks, func(b *state.Block) bool { return b.Pool == p && b.Used > 0 }):
			idle = append(idle, h.Name)
		}
	}
	if !others {
		idle = nil
	}
	return names, idle
}
