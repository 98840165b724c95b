package traffic

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// TakenForLocal returns the nodes of an IPv6 pool with VXLAN CrossSubnet that Felix takes for nodes of
// one subnet, with a sentence about them. Its releases before v3.28.3 and v3.29.1 compare the nodes' IPv4
// addresses, too, and take nodes without any for neighbours (projectcalico/calico#9403, #9416).
func TakenForLocal(st *state.State, p *state.Pool) (nodes blocks.Names, text string) {
	v := st.Cluster.CalicoVersion
	if p.Family() != blocks.IPv6 || p.VXLAN != blocks.EncapCrossSubnet || !p.ServesWorkloads() || len(st.Unreadable(blocks.Nodes)) > 0 ||
		v == "" || blocks.CalicoFrom(v, "3.28.3") && !blocks.CalicoFrom(v, "3.29.0") || blocks.CalicoFrom(v, "3.29.1") {
		return nil, ""
	}
	var subnets blocks.Names
	for _, n := range users(st, p) {
		for _, a := range n.Addresses {
			if blocks.FamilyOf(a.Addr()) == blocks.IPv4 || a.IsSingleIP() {
				return nil, ""
			}
			if subnet := a.Masked().String(); !slices.Contains(subnets, subnet) {
				subnets = append(subnets, subnet)
			}
		}
		nodes = append(nodes, n.Name)
	}
	if nodes = atLeastTwo(nodes); len(subnets) < 2 {
		return nil, ""
	}
	slices.Sort(subnets)
	return nodes, fmt.Sprintf("pool %s uses VXLAN between subnets only (CrossSubnet), and this Calico (%s) treats nodes without an IPv4 address as nodes of the same subnet: no route leads to the pool's pods in another subnet (%s)", p.Name, v, subnets)
}
