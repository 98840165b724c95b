package seeding

import (
	"context"
	"fmt"
	"net/netip"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	libapi "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
)

// Tunnel is a kind of tunnel device, which has its own address on a node.
type Tunnel struct {
	// attribute is the type in the allocation's attributes.
	attribute string
	// prefix and the node's name form the handle.
	prefix string
	ipv6   bool
	set    func(*libapi.Node, string)
}

// The tunnels of Calico. node/pkg/allocateip/allocateip.go allocates their addresses, and
// libcalico-go/lib/backend/k8s/resources/node.go stores them. IPIP exists only for IPv4.
var (
	IPIP = Tunnel{ipam.AttributeTypeIPIP, "ipip-tunnel-addr-", false, func(n *libapi.Node, ip string) {
		if n.Spec.BGP == nil {
			n.Spec.BGP = &libapi.NodeBGPSpec{}
		}
		n.Spec.BGP.IPv4IPIPTunnelAddr = ip
	}}
	VXLAN = Tunnel{ipam.AttributeTypeVXLAN, "vxlan-tunnel-addr-", false, func(n *libapi.Node, ip string) {
		n.Spec.IPv4VXLANTunnelAddr = ip
	}}
	VXLANv6 = Tunnel{ipam.AttributeTypeVXLANV6, "vxlan-v6-tunnel-addr-", true, func(n *libapi.Node, ip string) {
		n.Spec.IPv6VXLANTunnelAddr = ip
	}}
	WireGuard = Tunnel{ipam.AttributeTypeWireguard, "wireguard-tunnel-addr-", false, func(n *libapi.Node, ip string) {
		wireguard(n).InterfaceIPv4Address = ip
	}}
	WireGuardV6 = Tunnel{ipam.AttributeTypeWireguardV6, "wireguard-v6-tunnel-addr-", true, func(n *libapi.Node, ip string) {
		wireguard(n).InterfaceIPv6Address = ip
	}}
)

func wireguard(n *libapi.Node) *libapi.NodeWireguardSpec {
	if n.Spec.Wireguard == nil {
		n.Spec.Wireguard = &libapi.NodeWireguardSpec{}
	}
	return n.Spec.Wireguard
}

// Handle returns the ID of the IPAM handle of the tunnel's address on a node.
func (t Tunnel) Handle(node string) string { return t.prefix + node }

// Tunnel allocates a node's tunnel address from the pools with the given CIDRs and writes
// it to the Node, as calico/node does. The address is in one of the node's blocks or in a
// new one. Unlike calico/node, Tunnel does not select the pools. calico/node uses the
// enabled pools that select the node, allow tunnels and have the tunnel's encapsulation
// (any for WireGuard).
func (s *Seeder) Tunnel(ctx context.Context, t Tunnel, node string, pools ...netip.Prefix) (netip.Addr, error) {
	handle := t.Handle(node)
	args := ipam.AutoAssignArgs{
		HandleID:    &handle,
		Attrs:       map[string]string{ipam.AttributeNode: node, ipam.AttributeType: t.attribute},
		Hostname:    node,
		IntendedUse: apiv3.IPPoolAllowedUseTunnel,
	}
	var nets []cnet.IPNet
	for _, pool := range pools {
		nets = append(nets, calicoNet(pool))
	}
	if t.ipv6 {
		args.Num6, args.IPv6Pools = 1, nets
	} else {
		args.Num4, args.IPv4Pools = 1, nets
	}
	addrs, err := s.autoAssign(ctx, args)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("allocating %s: %w", handle, err)
	}
	object, err := s.Calico.Nodes().Get(ctx, node, options.GetOptions{})
	if err != nil {
		return addrs[0], fmt.Errorf("reading node %s: %w", node, err)
	}
	t.set(object, addrs[0].String())
	if _, err := s.Calico.Nodes().Update(ctx, object, options.SetOptions{}); err != nil {
		return addrs[0], fmt.Errorf("writing the tunnel address of node %s: %w", node, err)
	}
	return addrs[0], nil
}
