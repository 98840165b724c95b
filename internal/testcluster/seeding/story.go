package seeding

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"golang.org/x/sync/errgroup"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// Numbers of the story. An old node's pods need one block of 64 addresses and
// a bit of a second, so that two old nodes take all four blocks of the pool.
const (
	storyPool     = "pods-v4"
	storyCIDR     = "10.64.75.0/24"
	storyOldPods  = 70
	storyNewPods  = 2
	storyLifetime = 3 * time.Hour
)

var (
	storyOld = []string{"old-1", "old-2"}
	storyNew = []string{"new-1", "new-2"}
)

// Story brings about the state of Wikimedia's incident T296303: a pool of four
// blocks; two old nodes, whose 70 pods each took two blocks; and two nodes that
// joined when no block was left, and whose two pods each borrow addresses of the
// old nodes' blocks. Routes go through a top-of-rack router of another AS, as they
// did there. It fails if Calico's IPAM does not arrive at that state.
//
// The state is three hours old, but for the nodes' heartbeats.
func Story(ctx context.Context, c *testcluster.Cluster) (err error) {
	defer wrap(&err, "playing the story")
	s, err := storyBefore(ctx, c)
	if err != nil {
		return err
	}
	for _, node := range storyNew {
		if err := s.populate(ctx, Node{Name: node}, storyNewPods); err != nil {
			return err
		}
	}
	state, err := c.ReadIPAM(ctx, testcluster.CRDv1)
	if err != nil {
		return err
	}
	if err := checkStory(state); err != nil {
		return err
	}
	return makeOlder(ctx, c, storyLifetime)
}

// StoryBefore is the story an hour before the new nodes join: two old nodes hold all four
// blocks of the pool, each half empty, and nothing is wrong yet.
func StoryBefore(ctx context.Context, c *testcluster.Cluster) error {
	if _, err := storyBefore(ctx, c); err != nil {
		return fmt.Errorf("playing what came before the story: %w", err)
	}
	return makeOlder(ctx, c, storyLifetime)
}

// storyBefore brings about what there was when the new nodes joined.
func storyBefore(ctx context.Context, c *testcluster.Cluster) (*Seeder, error) {
	s, err := begin(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := s.TopOfRack(ctx, 64602, netip.MustParseAddr("172.16.0.1"), 14907); err != nil {
		return nil, err
	}
	err = s.Pool(ctx, storyPool, apiv3.IPPoolSpec{
		CIDR: storyCIDR, BlockSize: 26, NATOutgoing: true,
		IPIPMode: apiv3.IPIPModeNever, VXLANMode: apiv3.VXLANModeNever,
	})
	if err != nil {
		return nil, err
	}
	if err := s.Namespace(ctx, "shop", map[string]string{"team": "storefront"}, nil); err != nil {
		return nil, err
	}
	for _, node := range storyOld {
		if err := s.populate(ctx, Node{Name: node}, storyOldPods); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// checkStory is an error unless the state is the story's.
func checkStory(state *testcluster.IPAMState) error {
	for _, node := range storyOld {
		if n := len(state.Blocks[node]); n != 2 {
			return fmt.Errorf("node %s has %d blocks, not 2", node, n)
		}
	}
	for _, node := range storyNew {
		if n := len(state.Blocks[node]) + len(state.Affinities[node]); n != 0 {
			return fmt.Errorf("node %s has a block or an affinity", node)
		}
	}
	if n := len(state.Borrowed); n != len(storyNew)*storyNewPods {
		return fmt.Errorf("%d addresses are borrowed, not %d", n, len(storyNew)*storyNewPods)
	}
	return nil
}

// makeOlder makes a state older, and the nodes alive.
func makeOlder(ctx context.Context, c *testcluster.Cluster, by time.Duration) error {
	if err := c.Backdate(ctx, by); err != nil {
		return err
	}
	return c.Heartbeat(ctx)
}

// StoryDrained is the story an hour after most pods were moved off the old
// nodes: each of them keeps six pods in one block, and its other block is empty,
// held only because no one released it. The new nodes' pods still borrow.
//
// It is the full block that is emptied, because the new nodes' pods have their
// addresses in the other one of old-1.
func StoryDrained(ctx context.Context, c *testcluster.Cluster) error {
	if err := Story(ctx, c); err != nil {
		return err
	}
	return drainStory(ctx, c)
}

func drainStory(ctx context.Context, c *testcluster.Cluster) (err error) {
	defer wrap(&err, "draining the story's old nodes")
	s, err := New(c)
	if err != nil {
		return err
	}
	const blockSize = 64
	draining, drainCtx := errgroup.WithContext(ctx)
	for _, node := range storyOld {
		draining.Go(func() error {
			for i := range blockSize {
				pod := workload(node, i)
				if err := s.DeletePod(drainCtx, pod.Namespace, pod.Name, true); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := draining.Wait(); err != nil {
		return err
	}
	state, err := c.ReadIPAM(ctx, testcluster.CRDv1)
	if err != nil {
		return err
	}
	if n := len(state.Empty); n != len(storyOld) {
		return fmt.Errorf("%d blocks are empty, not %d", n, len(storyOld))
	}
	if n := len(state.Borrowed); n != len(storyNew)*storyNewPods {
		return fmt.Errorf("%d addresses are borrowed, not %d", n, len(storyNew)*storyNewPods)
	}
	return makeOlder(ctx, c, time.Hour)
}

// Native is the story stored in the group projectcalico.org/v3 alone, as by a
// Calico v3.32 or later that was migrated to it. The CRDs of
// crd.projectcalico.org/v1 are gone then.
func Native(ctx context.Context, c *testcluster.Cluster) error {
	if err := c.InstallCRDs(ctx, testcluster.CRDv1); err != nil {
		return fmt.Errorf("making the native story: %w", err)
	}
	if err := Story(ctx, c); err != nil {
		return err
	}
	return testcluster.MoveToNative(ctx, c)
}
