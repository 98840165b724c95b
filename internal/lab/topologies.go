package lab

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/api/pkg/lib/numorstring"

	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// pools are the CIDRs of the small story's pools, IPv4 first.
var pools = [2]netip.Prefix{netip.MustParsePrefix("10.64.75.0/27"), netip.MustParsePrefix("fd00:64:75::/123")}

// AS numbers of the topologies: of nodes without their own, and of the router.
const (
	nodesAS  = 64602
	routerAS = 14907
)

// Topologies lists the measured topologies in the order of the table. VXLAN is last
// because its tunnel addresses stay in the datastore.
var Topologies = slices.Concat(routerTopologies, nodeTopologies, []Topology{vxlanTopology})

// vxlanTopology has nodes that Felix connects.
var vxlanTopology = Topology{
	Name:      "VXLAN, and eBGP to the router, all nodes in one AS",
	VXLAN:     true,
	Configure: tunnels,
	Router:    &Router{AS: routerAS, NodeAS: nodesAS},
}

// ownAS gives each node its own AS.
var ownAS = map[string]uint32{Owner: 64611, Borrower: 64612, Third: 64613}

// routerTopologies have nodes that learn routes through the router.
var routerTopologies = []Topology{
	{
		Name:      "eBGP to the router, all nodes in one AS",
		Configure: rack(routerAS, nil),
		Router:    &Router{AS: routerAS, NodeAS: nodesAS},
	},
	{
		Name:      "eBGP to the router, one AS, nodes accept their own AS (`numAllowedLocalASNumbers`)",
		Configure: rack(routerAS, func(p *apiv3.BGPPeerSpec) { one := int32(1); p.NumAllowedLocalASNumbers = &one }),
		Router:    &Router{AS: routerAS, NodeAS: nodesAS},
	},
	{
		Name:      "eBGP to the router, one AS, which the router takes out of the path (as-override)",
		Beyond:    "the router changes the path",
		Configure: rack(routerAS, nil),
		Router:    &Router{AS: routerAS, NodeAS: nodesAS, HidesAS: true},
	},
	{
		Name:      "eBGP to the router, one AS, the router announces the pools only",
		Configure: rack(routerAS, nil),
		Router:    &Router{AS: routerAS, NodeAS: nodesAS, Aggregates: true},
	},
	{
		Name:      "eBGP to the router, each node in its own AS",
		AS:        ownAS,
		Configure: rack(routerAS, nil),
		Router:    &Router{AS: routerAS, NodeAS: nodesAS},
	},
	{
		Name:      "eBGP to the router, each node in its own AS, the router announces the pools only",
		AS:        ownAS,
		Beyond:    "the router keeps single addresses to itself",
		Configure: rack(routerAS, nil),
		Router:    &Router{AS: routerAS, NodeAS: nodesAS, Aggregates: true},
	},
	{
		Name:      "eBGP to the router, each node in its own AS, all as one AS towards the router (`localASNumber`)",
		AS:        ownAS,
		Configure: rack(routerAS, func(p *apiv3.BGPPeerSpec) { as := numorstring.ASNumber(nodesAS); p.LocalASNumber = &as }),
		Router:    &Router{AS: routerAS, NodeAS: nodesAS, AlwaysNodeAS: true},
	},
	{
		Name: "eBGP to the router, all nodes in one AS, and the node-to-node mesh",
		Configure: func(ctx context.Context, s *seeding.Seeder) error {
			return errors.Join(rack(routerAS, nil)(ctx, s), mesh(ctx, s))
		},
		Router: &Router{AS: routerAS, NodeAS: nodesAS},
	},
	{
		Name:      "iBGP to the router, which reflects routes",
		Configure: rack(nodesAS, nil),
		Router:    &Router{AS: nodesAS, NodeAS: nodesAS, Reflects: true},
	},
	{
		Name:      "iBGP to the router, which does not reflect routes",
		Configure: rack(nodesAS, nil),
		Router:    &Router{AS: nodesAS, NodeAS: nodesAS},
	},
}

// rack makes all nodes peer with the router, which is in the given AS.
func rack(as uint32, change func(*apiv3.BGPPeerSpec)) func(context.Context, *seeding.Seeder) error {
	return func(ctx context.Context, s *seeding.Seeder) error {
		failed := []error{s.BGPConfig(ctx, false, nodesAS)}
		for name, addr := range map[string]netip.Addr{"rack-v4": RouterIPv4, "rack-v6": RouterIPv6} {
			spec := apiv3.BGPPeerSpec{PeerIP: addr.String(), ASNumber: numorstring.ASNumber(as)}
			if change != nil {
				change(&spec)
			}
			failed = append(failed, s.BGPPeer(ctx, name, spec))
		}
		return errors.Join(failed...)
	}
}

// tunnels makes all nodes peer with the router, and assigns the addresses of their VXLAN
// devices.
func tunnels(ctx context.Context, s *seeding.Seeder) error {
	failed := []error{rack(routerAS, nil)(ctx, s)}
	for _, node := range NodeNames {
		_, err4 := s.Tunnel(ctx, seeding.VXLAN, node, pools[0])
		_, err6 := s.Tunnel(ctx, seeding.VXLANv6, node, pools[1])
		failed = append(failed, err4, err6)
	}
	return errors.Join(failed...)
}
