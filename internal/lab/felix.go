package lab

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/calico-audit/calico-audit/blocks"
)

// vxlanDevices are Felix's names of its VXLAN devices, IPv4 first.
var vxlanDevices = [2]string{"vxlan.calico", "vxlan-v6.calico"}

// vxlanTypes are the tunnel types of vxlanDevices.
var vxlanTypes = [2]string{blocks.TypeVXLAN, blocks.TypeVXLANv6}

// vtep is a node's VXLAN tunnel endpoint of one family.
type vtep struct {
	mac          string
	tunnel, node netip.Addr
}

// felix creates the VXLAN devices and routes of all nodes, as Felix does for pools with
// VXLAN: dataplane/linux/vxlan_mgr.go and route_mgr.go, with the routes that
// calc/l3_route_resolver.go derives from blocks and allocations.
func (l *Lab) felix(ctx context.Context) error {
	for family := range vxlanDevices {
		vteps := map[string]vtep{}
		for i, name := range NodeNames {
			v := vtep{mac: fmt.Sprintf("66:ca:11:c0:0%d:0%d", family, i+1), node: l.Nodes[name].Interfaces[family].Addr.Addr()}
			for _, n := range l.Snapshot.Nodes {
				for _, t := range n.Tunnels {
					if n.Name == name && t.Type == vxlanTypes[family] {
						v.tunnel = t.Addr
					}
				}
			}
			if !v.tunnel.IsValid() {
				return fmt.Errorf("node %s has no %s address", name, vxlanTypes[family])
			}
			vteps[name] = v
		}
		for _, name := range NodeNames {
			if err := l.vxlan(ctx, name, family, vteps); err != nil {
				return fmt.Errorf("making %s of node %s: %w", vxlanDevices[family], name, err)
			}
		}
	}
	return nil
}

// vxlan creates one node's device of a family, its neighbours and its routes.
func (l *Lab) vxlan(ctx context.Context, node string, family int, vteps map[string]vtep) error {
	device, own := vxlanDevices[family], vteps[node]
	commands := []string{
		fmt.Sprintf("link add %s address %s type vxlan id 4096 dstport 4789 local %s dev eth0 nolearning", device, own.mac, own.node),
		fmt.Sprintf("link set %s up", device),
		fmt.Sprintf("addr add %s dev %s%s", single(own.tunnel), device, nodad(own.tunnel)),
	}
	for _, name := range NodeNames {
		if name != node {
			commands = append(commands, fmt.Sprintf("neigh add %s lladdr %s dev %s nud permanent", vteps[name].tunnel, vteps[name].mac, device))
		}
	}
	for i := range l.Snapshot.Blocks {
		b := &l.Snapshot.Blocks[i]
		if b.CIDR.Addr().Is6() == (family == 1) {
			commands = append(commands, vxlanRoutes(b, node, device, vteps)...)
		}
	}
	if err := l.Nodes[node].IP(ctx, commands...); err != nil {
		return err
	}
	for _, name := range NodeNames {
		if name == node {
			continue
		}
		v := vteps[name]
		if err := run(ctx, nil, "bridge", "-n", l.Nodes[node].name, "fdb", "append", v.mac, "dst", v.node.String(), "dev", device); err != nil {
			return err
		}
	}
	return nil
}

// vxlanRoutes returns a node's routes for a block: a route to the block's owner, or a
// blackhole on the owner itself, and routes to the nodes that borrow addresses.
func vxlanRoutes(b *blocks.Block, node, device string, vteps map[string]vtep) []string {
	via := func(dst netip.Prefix, user string) string {
		return fmt.Sprintf("route add %s via %s dev %s onlink proto 80", dst, vteps[user].tunnel, device)
	}
	var commands []string
	if b.Owner.Name == node {
		commands = append(commands, fmt.Sprintf("route add blackhole %s proto 80", b.CIDR))
	} else {
		commands = append(commands, via(b.CIDR, b.Owner.Name))
	}
	for ordinal := range b.Ordinals {
		a := b.At(ordinal)
		if a == nil || a.Node == "" || a.Node == b.Owner.Name || a.Node == node {
			continue
		}
		commands = append(commands, via(single(b.Address(ordinal)), a.Node))
	}
	return commands
}
