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

// Numbers of the story. The pods of an old node need one block of 64 addresses and a few
// addresses of a second, so two old nodes use all four blocks of the pool.
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

// Story creates the state of Wikimedia's incident T296303. The pool has four blocks. Two
// old nodes with 70 pods each hold two blocks each. Two more nodes joined when no block
// was left, and their two pods each borrow addresses from the old nodes' blocks. As in
// the incident, routes go through a top-of-rack router in another AS. Story fails if
// Calico's IPAM does not reach that state.
//
// The state is three hours old; the nodes' heartbeats are current.
func Story(ctx context.Context, c *testcluster.Cluster) (err error) {
	defer wrap(&err, "playing the story")
	s, err := begin(ctx, c)
	if err != nil {
		return err
	}
	if err := s.story(ctx); err != nil {
		return err
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

// StoryBefore is the story an hour before the new nodes join. Two old nodes hold all four
// blocks of the pool, each half empty, without a problem yet.
func StoryBefore(ctx context.Context, c *testcluster.Cluster) error {
	s, err := begin(ctx, c)
	if err == nil {
		err = s.storyBefore(ctx)
	}
	if err != nil {
		return fmt.Errorf("playing what came before the story: %w", err)
	}
	return makeOlder(ctx, c, storyLifetime)
}

// story creates the state after the new nodes joined.
func (s *Seeder) story(ctx context.Context) error {
	if err := s.storyBefore(ctx); err != nil {
		return err
	}
	for _, node := range storyNew {
		if err := s.populate(ctx, Node{Name: node}, storyNewPods); err != nil {
			return err
		}
	}
	return nil
}

// storyBefore creates the state at the time when the new nodes join.
func (s *Seeder) storyBefore(ctx context.Context) error {
	if err := s.TopOfRack(ctx, 64602, netip.MustParseAddr("172.16.0.1"), 14907); err != nil {
		return err
	}
	err := s.Pool(ctx, storyPool, apiv3.IPPoolSpec{
		CIDR: storyCIDR, BlockSize: 26, NATOutgoing: true,
		IPIPMode: apiv3.IPIPModeNever, VXLANMode: apiv3.VXLANModeNever,
	})
	if err != nil {
		return err
	}
	if err := s.Namespace(ctx, "shop", map[string]string{"team": "storefront"}, nil); err != nil {
		return err
	}
	for _, node := range storyOld {
		if err := s.populate(ctx, Node{Name: node}, storyOldPods); err != nil {
			return err
		}
	}
	return nil
}

// checkStory returns an error unless the state is the story's.
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

// makeOlder makes a state older, and renews the nodes' heartbeats.
func makeOlder(ctx context.Context, c *testcluster.Cluster, by time.Duration) error {
	if err := c.Backdate(ctx, by); err != nil {
		return err
	}
	return c.Heartbeat(ctx)
}

// StoryDrained is the story an hour after most pods left the old nodes. Each old node
// keeps six pods in one block; its other block is empty and was never released. The new
// nodes' pods still borrow.
//
// The empty block of old-1 is the one that was full, because the new nodes' pods borrow
// from its other block.
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

// Native is the story stored only in projectcalico.org/v3, as by a Calico v3.32 or later
// after a migration. The CRDs of crd.projectcalico.org/v1 no longer exist.
func Native(ctx context.Context, c *testcluster.Cluster) error {
	if err := c.InstallCRDs(ctx, testcluster.CRDv1); err != nil {
		return fmt.Errorf("making the native story: %w", err)
	}
	if err := Story(ctx, c); err != nil {
		return err
	}
	return testcluster.MoveToNative(ctx, c)
}
