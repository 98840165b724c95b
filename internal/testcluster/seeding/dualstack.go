package seeding

import (
	"context"
	"net/netip"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// DualStack creates a healthy dual-stack cluster. It has three nodes with 14 pods each,
// and pods and VXLAN tunnels have an address of each family. It also has a pool for
// LoadBalancer services with two services, and reservations in both pools.
func DualStack(ctx context.Context, c *testcluster.Cluster) (err error) {
	defer wrap(&err, "playing the dual-stack cluster")
	s, err := begin(ctx, c)
	if err != nil {
		return err
	}
	v4, v6 := netip.MustParsePrefix("10.65.0.0/22"), netip.MustParsePrefix("fd00:10:65::/116")
	if err := s.dualStackPools(ctx, v4, v6); err != nil {
		return err
	}
	if err := s.Namespace(ctx, "shop", nil, nil); err != nil {
		return err
	}
	nodes := []string{"dual-1", "dual-2", "dual-3"}
	for i, name := range nodes {
		addr := netip.AddrFrom16([16]byte{0xfd, 0, 0, 0x10, 0, 1, 15: byte(i + 1)})
		if err := s.dualStackNode(ctx, Node{Name: name, IPv6: netip.PrefixFrom(addr, 64)}); err != nil {
			return err
		}
		if _, err := s.Tunnel(ctx, VXLAN, name, v4); err != nil {
			return err
		}
		if _, err := s.Tunnel(ctx, VXLANv6, name, v6); err != nil {
			return err
		}
	}
	for _, service := range []string{"storefront", "admin"} {
		if _, err := s.LoadBalancer(ctx, "shop", service); err != nil {
			return err
		}
	}
	if err := checkOneBlockEach(ctx, c, nodes, 2); err != nil {
		return err
	}
	return makeOlder(ctx, c, 26*time.Hour)
}

func (s *Seeder) dualStackPools(ctx context.Context, v4, v6 netip.Prefix) error {
	err := s.Pool(ctx, "pods-v4", apiv3.IPPoolSpec{
		CIDR: v4.String(), BlockSize: 26, NATOutgoing: true, VXLANMode: apiv3.VXLANModeAlways,
	})
	if err != nil {
		return err
	}
	err = s.Pool(ctx, "pods-v6", apiv3.IPPoolSpec{
		CIDR: v6.String(), BlockSize: 122, NATOutgoing: true, VXLANMode: apiv3.VXLANModeAlways,
	})
	if err != nil {
		return err
	}
	err = s.Pool(ctx, "services", apiv3.IPPoolSpec{
		CIDR: "192.0.2.0/26", BlockSize: 28,
		AllowedUses: []apiv3.IPPoolAllowedUse{apiv3.IPPoolAllowedUseLoadBalancer},
	})
	if err != nil {
		return err
	}
	return s.Reservation(ctx, "gateways",
		netip.MustParsePrefix("10.65.0.0/30"), netip.MustParsePrefix("fd00:10:65::/126"))
}

func (s *Seeder) dualStackNode(ctx context.Context, node Node) error {
	if err := s.Node(ctx, node); err != nil {
		return err
	}
	var pods []Pod
	for i := range 14 {
		pod := workload(node.Name, i)
		pod.DualStack = true
		pods = append(pods, pod)
	}
	return s.Pods(ctx, pods)
}
