package seeding

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// Healthy creates a cluster without problems: four nodes with 12 to 18 pods and an IPIP
// tunnel address each, one block per node, and a pool with plenty of free blocks.
func Healthy(ctx context.Context, c *testcluster.Cluster) (err error) {
	defer wrap(&err, "playing the healthy cluster")
	s, err := begin(ctx, c)
	if err != nil {
		return err
	}
	pool := netip.MustParsePrefix("10.80.0.0/20")
	err = s.Pool(ctx, "default-ipv4-ippool", apiv3.IPPoolSpec{
		CIDR: pool.String(), BlockSize: 26, NATOutgoing: true, IPIPMode: apiv3.IPIPModeAlways,
	})
	if err != nil {
		return err
	}
	if err := s.Namespace(ctx, "shop", nil, nil); err != nil {
		return err
	}
	nodes := []string{"worker-1", "worker-2", "worker-3", "worker-4"}
	for i, name := range nodes {
		if err := s.populate(ctx, Node{Name: name, AllocatablePods: 64}, 12+2*i); err != nil {
			return err
		}
		if _, err := s.Tunnel(ctx, IPIP, name, pool); err != nil {
			return err
		}
	}
	if err := checkOneBlockEach(ctx, c, nodes, 1); err != nil {
		return err
	}
	return makeOlder(ctx, c, 26*time.Hour)
}

// checkOneBlockEach returns an error unless every node has the given number of blocks and
// no address is borrowed.
func checkOneBlockEach(ctx context.Context, c *testcluster.Cluster, nodes []string, blocks int) error {
	state, err := c.ReadIPAM(ctx, testcluster.CRDv1)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if n := len(state.Blocks[node]); n != blocks {
			return fmt.Errorf("node %s has %d blocks, not %d", node, n, blocks)
		}
	}
	if len(state.Borrowed) > 0 {
		return fmt.Errorf("addresses are borrowed: %v", state.Borrowed)
	}
	return nil
}
