package repair

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// uncordon lets pods come again to the nodes that were cordoned above.
func (m *manuals) uncordon() {
	var items []Manual
	when := "when a block is there for it"
	if len(m.plan.Steps) > 0 {
		when = "when this plan is applied and a block is there for it"
	}
	for _, name := range m.cordoned {
		items = append(items, Manual{
			Target: state.NodeSubject(name), Action: "uncordon it, " + when,
			Because: "its next pod then claims a block of its own: it has to come before the pods that borrow are restarted",
			Command: "kubectl uncordon " + state.Arg(name),
		})
	}
	m.group(items...)
}

// restart lists the pods that borrow: they go on until they are started again.
func (m *manuals) restart() {
	var items []Manual
	for _, b := range m.st.Borrows {
		if b.Workload == nil || b.Tunnel || b.VM || b.Workload.VM != "" || m.restarted[b.Addr] || !m.concerns(poolNames(b.Block.Pool), []string{b.User, b.Owner}) {
			continue
		}
		because := fmt.Sprintf("it uses %s of block %s, which belongs to %s; started anew it takes an address of a block of its own node", b.Addr, b.Block.CIDR, b.Owner)
		if m.lacks(b.User) {
			because += ", once room was made for " + b.User
		}
		items = append(items, restartPod(b.Workload, state.IPSubject(b.Addr, b.User), because))
	}
	m.group(items...)
}

// lacks reports whether a node gets no block when the plan is applied.
func (m *manuals) lacks(node string) bool {
	return slices.ContainsFunc(m.short, func(s shortfall) bool { return slices.Contains(s.nodes, node) })
}

// tunnelAnnotations are those of a Node that hold its tunnels' addresses
// (libcalico-go lib/backend/k8s/resources/node.go).
var tunnelAnnotations = map[string]string{
	blocks.TypeIPIP:        "projectcalico.org/IPv4IPIPTunnelAddr",
	blocks.TypeVXLAN:       "projectcalico.org/IPv4VXLANTunnelAddr",
	blocks.TypeVXLANv6:     "projectcalico.org/IPv6VXLANTunnelAddr",
	blocks.TypeWireguard:   "projectcalico.org/IPv4WireguardInterfaceAddr",
	blocks.TypeWireguardV6: "projectcalico.org/IPv6WireguardInterfaceAddr",
}

// tunnels lists the nodes whose own tunnel address is borrowed. Restarting
// calico-node alone does not change it: it keeps an address that is still recorded
// for the node (node/pkg/allocateip, ensureHostTunnelAddress).
func (m *manuals) tunnels() {
	var items []Manual
	for _, b := range m.st.Borrows {
		annotation := tunnelAnnotations[b.Attributes.Type]
		if !b.Tunnel || annotation == "" || !m.concerns(poolNames(b.Block.Pool), []string{b.User, b.Owner}) {
			continue
		}
		items = append(items, Manual{
			Target: state.IPSubject(b.Addr, b.User),
			Action: fmt.Sprintf("give the tunnel of %s another address: take the old one off the node, and restart its calico-node pod if no new one appears within a minute", b.User),
			Because: fmt.Sprintf("its tunnel uses %s of block %s, which belongs to %s; calico-node keeps the address as long as the node names it, and once the node has a block of its own takes one of that",
				b.Addr, b.Block.CIDR, b.Owner),
			Risk:    "traffic through the node's tunnel stops until every node has learned the new address",
			Command: fmt.Sprintf("kubectl annotate node %s %s-", state.Arg(b.User), annotation),
		})
	}
	m.group(items...)
}

// holders lists what is held by what still runs on a node: only people can end it.
func (m *manuals) holders() {
	var items []Manual
	for _, r := range m.plan.Refused {
		if r.Code == RefusedHostView && (r.Kind == ReleaseIP || r.Kind == ReleaseBlock) {
			items = append(items, Manual{
				Target: r.Target, Action: "find out what runs in that namespace, and end it if it is a left-over; then plan again", Because: r.Reason,
				Risk: "it may be a container that serves still: its pod object is gone, its traffic is not",
			})
		}
	}
	m.group(items...)
}
