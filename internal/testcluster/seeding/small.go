package seeding

import (
	"context"
	"fmt"
	"slices"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// SmallStory's pools have two blocks of 16 addresses. The first node's pods take both.
const (
	SmallStoryNamespace = "shop"
	SmallStoryPoolIPv4  = "pods-v4"
	SmallStoryPoolIPv6  = "pods-v6"
	smallStoryCIDR4     = "10.64.75.0/27"
	smallStoryCIDR6     = "fd00:64:75::/123"
	smallStoryPods      = 17
)

// SmallStoryPod returns the name of a node's i-th pod.
func SmallStoryPod(node string, i int) string { return fmt.Sprintf("%s-%d", node, i) }

// SmallStory is the story with as few objects as possible, in both families and without
// BGP configuration. The 17 pods of one node took both blocks of the IPv4 pool and of the
// IPv6 pool. The other nodes found no block left; each has one pod with two borrowed
// addresses. SmallStory fails if Calico's IPAM does not reach that state.
func SmallStory(ctx context.Context, c *testcluster.Cluster, owner string, borrowers ...string) (err error) {
	defer wrap(&err, "playing the small story")
	s, err := begin(ctx, c)
	if err != nil {
		return err
	}
	if err := s.Pool(ctx, SmallStoryPoolIPv4, apiv3.IPPoolSpec{CIDR: smallStoryCIDR4, BlockSize: 28}); err != nil {
		return err
	}
	if err := s.Pool(ctx, SmallStoryPoolIPv6, apiv3.IPPoolSpec{CIDR: smallStoryCIDR6, BlockSize: 124}); err != nil {
		return err
	}
	if err := s.Namespace(ctx, SmallStoryNamespace, nil, nil); err != nil {
		return err
	}
	for _, node := range slices.Concat([]string{owner}, borrowers) {
		if err := s.Node(ctx, Node{Name: node}); err != nil {
			return err
		}
		count := 1
		if node == owner {
			count = smallStoryPods
		}
		var pods []Pod
		for i := range count {
			pods = append(pods, Pod{Namespace: SmallStoryNamespace, Name: SmallStoryPod(node, i), Node: node, DualStack: true})
		}
		if err := s.Pods(ctx, pods); err != nil {
			return err
		}
	}
	return checkSmallStory(ctx, c, owner, borrowers)
}

func checkSmallStory(ctx context.Context, c *testcluster.Cluster, owner string, borrowers []string) error {
	state, err := c.ReadIPAM(ctx, testcluster.CRDv1)
	if err != nil {
		return err
	}
	if n := len(state.Blocks[owner]); n != 4 || len(state.Blocks) != 1 {
		return fmt.Errorf("node %s has %d blocks, not 2 of each family, or others have some", owner, n)
	}
	if n := len(state.Borrowed); n != 2*len(borrowers) {
		return fmt.Errorf("%d addresses are borrowed, not 2 a node", n)
	}
	return nil
}
