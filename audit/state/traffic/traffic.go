// Package traffic finds settings of pools that decide whether traffic reaches their pods.
package traffic

import (
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// WithoutRoutes returns the nodes that have blocks of an unencapsulated pool in use while the probes of
// every calico-node, one on each of them, show that BIRD runs nowhere. Felix programs routes to other nodes only for
// encapsulated pools, unless the FelixConfiguration says otherwise (projectcalico/calico#6310).
func WithoutRoutes(st *state.State, p *state.Pool) (nodes []string) {
	if !p.ServesWorkloads() || p.Addrs.InUse.IsZero() {
		return nil
	}
	ipip := p.IPIP != "" && p.IPIP != blocks.EncapNever && p.Family() == blocks.IPv4
	if ipip || len(st.BGPPeers) > 0 || len(st.Unreadable(blocks.BGPPeers))+len(st.Unreadable(blocks.Pods)) > 0 || !st.Routing.ByBIRD(p.Pool) {
		return nil
	}
	if g := st.FirstMissing([]blocks.Resource{blocks.BGPPeers, blocks.FelixConfigs, blocks.Pods}); g != nil {
		return nil
	}
	agents := map[string]bool{} // by node, whether BIRD is off
	for _, w := range st.Workloads {
		if w.HostNetwork && w.OfDaemonSet() && strings.HasPrefix(w.Controller.Name, "calico-node") {
			if agents[w.Node] = w.FelixOnly; !w.FelixOnly {
				return nil
			}
		}
	}
	for _, b := range p.Blocks {
		switch node := b.Owner.Node(); {
		case b.Used == 0 || slices.Contains(nodes, node):
		case !agents[node]: // its calico-node may run BIRD
			return nil
		default:
			nodes = append(nodes, node)
		}
	}
	if slices.Sort(nodes); len(nodes) < 2 {
		return nil
	}
	return nodes
}

// DroppedByCloud returns the nodes on Azure that have blocks of an IPIP pool in use: its network drops
// IP-in-IP packets. WireGuard, if the nodes have keys, takes the tunnel's place.
func DroppedByCloud(st *state.State, p *state.Pool) (nodes []string) {
	for _, b := range p.Blocks {
		h := st.NodeState(b.Owner.Node())
		if h == nil || h.Node == nil || !h.Node.OnAzure() || len(h.Node.Wireguard) > 0 || b.Used == 0 || slices.Contains(nodes, h.Name) {
			continue
		}
		nodes = append(nodes, h.Name)
	}
	if slices.Sort(nodes); p.IPIP != blocks.EncapAlways || p.Family() != blocks.IPv4 || !p.Allows(blocks.UseWorkload) || len(nodes) < 2 {
		return nil
	}
	return nodes
}

// InSubnet explains what a cloud needs for traffic that a pool does not encapsulate; "" if its network
// does not check it, or if all traffic between nodes is encapsulated.
func InSubnet(st *state.State, p *state.Pool) string {
	nodes := st.SelectedBy(p)
	if len(nodes) < 2 || !p.Allows(blocks.UseWorkload) || st.OtherIPAM().Cluster || p.VXLAN == blocks.EncapAlways || p.IPIP == blocks.EncapAlways || slices.ContainsFunc(nodes, func(h *state.NodeState) bool { return !h.Node.OnAWS() }) {
		return ""
	}
	return "arrives only if the source/destination check of the EC2 instances is off (awsSrcDstCheck: Disable of the FelixConfiguration lets Felix turn it off)"
}

// HostSubnets returns the number of nodes that a CrossSubnet pool selects, if the recorded address of
// each is a subnet of its own: calico-node was given an address without the length of its subnet
// (projectcalico/calico#2375). It returns 0 if any has a subnet.
func HostSubnets(st *state.State, p *state.Pool) (n int) {
	if p.VXLAN != blocks.EncapCrossSubnet && (p.IPIP != blocks.EncapCrossSubnet || p.Family() != blocks.IPv4) || len(st.Unreadable(blocks.Nodes)) > 0 {
		return 0
	}
	for _, h := range st.SelectedBy(p) {
		for _, a := range h.Node.Addresses {
			switch {
			case blocks.FamilyOf(a.Addr()) != p.Family():
			case !a.IsSingleIP():
				return 0
			default:
				n++
			}
		}
	}
	if n < 2 {
		return 0
	}
	return n
}
