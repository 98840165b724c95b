// Package traffic finds settings of pools that decide whether traffic reaches their pods.
package traffic

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/agents"
	"github.com/calico-audit/calico-audit/audit/state/tunnels"
	"github.com/calico-audit/calico-audit/blocks"
)

// WithoutRoutes returns the nodes that use blocks of an unencapsulated pool, with a sentence about
// them, if each of them runs a calico-node and no probe of any calico-node asks BIRD. Felix programs
// routes to other nodes only for encapsulated pools, unless the FelixConfiguration says otherwise
// (projectcalico/calico#6310).
func WithoutRoutes(st *state.State, p *state.Pool) (nodes blocks.Names, text string) {
	if !p.ServesWorkloads() || p.Addrs.InUse.IsZero() {
		return nil, ""
	}
	if p.IPIP.Encapsulated() && p.Family() == blocks.IPv4 || len(st.BGPPeers) > 0 || len(st.Unreadable(blocks.BGPPeers))+len(st.Unreadable(blocks.Pods)) > 0 || !st.Routing.ByBIRD(p.Pool) {
		return nil, ""
	}
	if g := st.FirstMissing([]blocks.Resource{blocks.BGPPeers, blocks.FelixConfigs, blocks.Pods}); g != nil {
		return nil, ""
	}
	probes := state.Derived(st, findProbes)
	for _, b := range p.Blocks {
		switch node := b.Owner.Node(); {
		case b.Used == 0 || encrypted(st, b):
		case !probes.felixOnly[node] || probes.bird: // its calico-node may run BIRD
			return nil, ""
		default:
			nodes = append(nodes, node)
		}
	}
	if len(st.Unreadable(blocks.Blocks)) > 0 && slices.ContainsFunc(st.Nodes, func(n blocks.Node) bool { return !probes.felixOnly[n.Name] }) {
		return nil, "" // such a node may own a block that cannot be read
	}
	if nodes = atLeastTwo(nodes); nodes == nil {
		return nil, ""
	}
	return nodes, fmt.Sprintf("pool %s has no encapsulation, and no calico-node runs BIRD: on %s, no route leads to the pool's pods on other nodes", p.Name, nodes)
}

// LostRoutes returns the routes that BGP does not carry between nodes that use blocks of a pool whose
// routes BIRD programs, with a sentence about them; nil if it carries all of them, or may.
func LostRoutes(st *state.State, p *state.Pool) (*affinity.BlockRoutes, string) {
	if !p.ServesWorkloads() {
		return nil, ""
	}
	lost := st.Routing.LostBlockRoutes(p.Pool, users(st, p))
	return lost, lostText(st, p, lost)
}

// LostWhileOff is [LostRoutes] without the BGP sessions of nodes that are not Ready and run no
// Ready calico-node (projectcalico/calico#9259). Their machines may run all the same.
func LostWhileOff(st *state.State, p *state.Pool) (*affinity.BlockRoutes, string) {
	x := state.Derived(st, findOff)
	if !p.ServesWorkloads() || len(x.names) == 0 || len(st.Unreadable(blocks.Pods)) > 0 {
		return nil, ""
	}
	lost := x.LostBlockRoutes(p.Pool, users(st, p))
	if lost == nil {
		return nil, ""
	}
	return lost, fmt.Sprintf("while nodes are not Ready (%s), %s", x.names, lostText(st, p, lost))
}

// off are nodes whose BGP sessions may have ended. names holds the route reflectors among them, or
// all of them if none is a reflector.
type off struct {
	*affinity.Routing
	names blocks.Names
}

func findOff(st *state.State) *off {
	running := agents.Of(st)
	var all, reflectors []string
	for i := range st.Nodes {
		n := &st.Nodes[i]
		if w := running[n.Name]; !n.NotReady || w != nil && w.Ready {
			continue
		}
		if all = append(all, n.Name); n.RouteReflectorID != "" {
			reflectors = append(reflectors, n.Name)
		}
	}
	x := &off{Routing: st.Routing.While(all), names: reflectors}
	if len(reflectors) == 0 {
		x.names = all
	}
	return x
}

func lostText(st *state.State, p *state.Pool, lost *affinity.BlockRoutes) string {
	switch {
	case lost == nil:
		return ""
	case len(lost.Alone) > 0 && len(st.BGPPeers) == 0:
		return fmt.Sprintf("pool %s gets its routes from BIRD, which has no BGP session, because the node-to-node mesh is off and no BGPPeer exists: on %s, no route leads to the pool's pods on other nodes", p.Name, lost.Alone)
	case len(lost.Alone) > 0:
		return fmt.Sprintf("pool %s gets its routes from BIRD, which has no BGP session on %s: no route leads to the pool's pods there, nor from there to pods on other nodes", p.Name, lost.Alone)
	}
	between := fmt.Sprintf("from %s to %s", lost.From, lost.To)
	if slices.Equal(lost.From, lost.To) {
		between = "between " + lost.From.String()
		if len(lost.From) > 2 {
			between = "between any two of " + lost.From.String()
		}
	} else if lost.Both {
		between = fmt.Sprintf("between (%s) and (%s)", lost.From, lost.To)
	}
	return fmt.Sprintf("pool %s gets its routes from BIRD, but no chain of BGP sessions carries them %s: %s", p.Name, between, lost.Reason)
}

// KeptFromBGP returns the nodes that use blocks of a pool whose routes BIRD programs and no node
// announces, with a sentence about them (confd's bird_ipam template, reject_disabled_pools).
// BGPFilters come before that rule, and clouds have routes to single addresses.
func KeptFromBGP(st *state.State, p *state.Pool) (nodes blocks.Names, text string) {
	if !p.DisableBGPExport || !p.ServesWorkloads() || p.BlockSize == p.CIDR.Addr().BitLen() || !st.Routing.ByBIRD(p.Pool) ||
		len(st.Unreadable(blocks.BGPPeers)) > 0 || st.FirstMissing([]blocks.Resource{blocks.BGPPeers}) != nil ||
		slices.ContainsFunc(st.BGPPeers, func(q blocks.BGPPeer) bool { return len(q.Filters) > 0 }) {
		return nil, ""
	}
	for _, n := range users(st, p) {
		nodes = append(nodes, n.Name)
	}
	if nodes = atLeastTwo(nodes); nodes == nil {
		return nil, ""
	}
	return nodes, fmt.Sprintf("pool %s gets its routes from BIRD, and no node announces them, because disableBGPExport is set: on %s, no route leads to the pool's pods on other nodes", p.Name, nodes)
}

// users returns the nodes that use blocks of a pool and that other nodes reach without WireGuard,
// once for each block.
func users(st *state.State, p *state.Pool) (nodes []*blocks.Node) {
	for _, b := range p.Blocks {
		if h := st.NodeState(b.Owner.Node()); h != nil && h.Node != nil && b.Used > 0 && !encrypted(st, b) {
			nodes = append(nodes, h.Node)
		}
	}
	return nodes
}

// encrypted reports whether Felix sends traffic to a block's node through WireGuard, which needs no
// other route.
func encrypted(st *state.State, b *state.Block) bool {
	h, key := st.NodeState(b.Owner.Node()), blocks.TypeWireguard
	if b.Family() == blocks.IPv6 {
		key = blocks.TypeWireguardV6
	}
	return h != nil && h.Node != nil && slices.Contains(h.Node.Wireguard, key)
}

// atLeastTwo sorts and deduplicates the nodes. It returns nil for a single node, which needs no
// route.
func atLeastTwo(nodes blocks.Names) blocks.Names {
	slices.Sort(nodes)
	if nodes = slices.Compact(nodes); len(nodes) < 2 {
		return nil
	}
	return nodes
}

// DroppedByCloud returns the nodes on Azure with blocks of an IPIP pool in use, with a sentence:
// Azure's network drops IP-in-IP packets. Nodes with WireGuard keys do not count, because WireGuard
// replaces the tunnel.
func DroppedByCloud(st *state.State, p *state.Pool) (nodes blocks.Names, text string) {
	if p.IPIP != blocks.EncapAlways || p.Family() != blocks.IPv4 || !p.Allows(blocks.UseWorkload) {
		return nil, ""
	}
	for _, b := range p.Blocks {
		if h := st.NodeState(b.Owner.Node()); h != nil && h.Node != nil && h.Node.OnAzure() && !encrypted(st, b) && b.Used > 0 {
			nodes = append(nodes, h.Name)
		}
	}
	if nodes = atLeastTwo(nodes); nodes == nil {
		return nil, ""
	}
	return nodes, fmt.Sprintf("pool %s is encapsulated by IPIP, which Azure's network drops: pods on %s do not reach the pool's pods on other nodes", p.Name, nodes)
}

// BetweenSubnets explains what traffic between nodes of different subnets requires, if a pool does
// not encapsulate it; "" if no node is in another subnet, or if BGP peers or WireGuard may carry
// it.
func BetweenSubnets(st *state.State, p *state.Pool) string {
	if !p.ServesWorkloads() || st.OtherIPAM().Cluster || len(st.BGPPeers) > 0 || st.FirstMissing([]blocks.Resource{blocks.BGPPeers}) != nil || tunnels.Encapsulation(p) != "" {
		return ""
	}
	var subnets blocks.Names
	for _, h := range st.SelectedBy(p) {
		for _, a := range h.Node.Addresses {
			switch subnet := a.Masked().String(); {
			case blocks.FamilyOf(a.Addr()) != p.Family():
			case len(h.Node.Wireguard) > 0 || a.IsSingleIP():
				return ""
			case !slices.Contains(subnets, subnet):
				subnets = append(subnets, subnet)
			}
		}
	}
	if len(subnets) < 2 {
		return ""
	}
	slices.Sort(subnets)
	without := "CrossSubnet (vxlanMode or ipipMode)"
	if p.Family() == blocks.IPv6 {
		if without = "vxlanMode: CrossSubnet"; !blocks.CalicoAtLeast(st.Cluster.CalicoVersion, 3, 23) {
			without += " (for IPv6 since Calico v3.23)"
		}
	}
	return fmt.Sprintf("nodes are in %d subnets (%s), and there are no BGP peers: traffic between them arrives only if the routers between have routes to the nodes' blocks; %s needs none", len(subnets), subnets, without)
}

// InSubnet explains the cloud setting that a pool's unencapsulated traffic requires; "" if the cloud
// checks no source addresses, or if the pool encapsulates all traffic between nodes.
func InSubnet(st *state.State, p *state.Pool) string {
	nodes := st.SelectedBy(p)
	if len(nodes) < 2 || !p.Allows(blocks.UseWorkload) || st.OtherIPAM().Cluster || p.VXLAN == blocks.EncapAlways || p.IPIP == blocks.EncapAlways || slices.ContainsFunc(nodes, func(h *state.NodeState) bool { return !h.Node.OnAWS() }) {
		return ""
	}
	return "arrives only if the source/destination check of the EC2 instances is off (awsSrcDstCheck: Disable of the FelixConfiguration lets Felix turn it off)"
}

// probes describes the probes of calico-node's pods. felixOnly has the nodes with such a pod, true
// if its probes ask only Felix. bird is true if the probes of any pod ask BIRD. Canal's pods are
// left out: there flannel makes the routes.
type probes struct {
	felixOnly map[string]bool
	bird      bool
}

func findProbes(st *state.State) *probes {
	x := &probes{felixOnly: map[string]bool{}}
	for node, w := range agents.Of(st) {
		if !w.Canal() {
			x.felixOnly[node], x.bird = w.FelixOnly, x.bird || !w.FelixOnly
		}
	}
	return x
}

// HostSubnets returns the nodes that a CrossSubnet pool selects and that record an address with a
// subnet of a single address, and whether all of its nodes do: calico-node was given an address
// without the length of its subnet (projectcalico/calico#2375, #1584).
func HostSubnets(st *state.State, p *state.Pool) (nodes blocks.Names, all bool) {
	all = true
	if p.VXLAN != blocks.EncapCrossSubnet && (p.IPIP != blocks.EncapCrossSubnet || p.Family() != blocks.IPv4) || len(st.Unreadable(blocks.Nodes)) > 0 {
		return nil, false
	}
	for _, h := range st.SelectedBy(p) {
		for _, a := range h.Node.Addresses {
			switch {
			case blocks.FamilyOf(a.Addr()) != p.Family():
			case !a.IsSingleIP():
				all = false
			default:
				nodes = append(nodes, h.Name)
			}
		}
	}
	return nodes, all && len(nodes) > 1
}
