package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// podPool is where the pods' addresses are, and sparePool where the damage has what
// no pod may use.
const podPool, sparePool = "10.0.0.0/9", "10.128.0.0/9"

// age is how long everything has existed when it is looked at: beyond any grace.
const age = 24 * time.Hour

// A cluster is what everything is measured on.
type cluster struct {
	*testcluster.Cluster
	seeder *seeding.Seeder
	bulk   seeding.Bulk
	dir    string // for files; goes with the cluster
	took   time.Duration
	damage expected // nil before it is planted
}

// newCluster makes a healthy cluster that is a day old, with an API server that
// answers from its cache, as by default.
func newCluster(ctx context.Context, nodes, pods int) (_ *cluster, err error) {
	began := time.Now()
	tc, err := testcluster.New(ctx, testcluster.Options{})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			tc.Close()
		}
	}()
	s, err := seeding.New(tc)
	if err != nil {
		return nil, err
	}
	c := &cluster{Cluster: tc, seeder: s, dir: filepath.Dir(tc.KubeconfigPath()), bulk: seeding.Bulk{
		Nodes: nodes, PodsPerNode: pods, Namespaces: 10, Prefix: "bulk", Age: age,
	}}
	if err := s.Init(ctx); err != nil {
		return nil, err
	}
	if err := s.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true}); err != nil {
		return nil, err
	}
	if err := s.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: podPool, BlockSize: blockSize}); err != nil {
		return nil, err
	}
	if err := s.Bulk(ctx, c.bulk); err != nil {
		return nil, err
	}
	// Only now, so that no pod has an address of it.
	if err := s.Pool(ctx, "spare", apiv3.IPPoolSpec{CIDR: sparePool, BlockSize: blockSize}); err != nil {
		return nil, err
	}
	if err := tc.SetWatchCache(ctx, true); err != nil {
		return nil, err
	}
	if err := c.warm(ctx); err != nil {
		return nil, err
	}
	c.took = time.Since(began)
	return c, nil
}

// warm waits until the API server's caches hold everything; until then it answers 429 to
// lists that are not read in pages. It is asked for what does not exist: lists of it all
// are what it has to do beside, and took it 19 GB on a busy machine.
func (c *cluster) warm(ctx context.Context) error {
	for began := time.Now(); ; time.Sleep(500 * time.Millisecond) {
		_, _, err := floor(ctx, c.Config, "?fieldSelector=metadata.name%3Dnone")
		if err == nil || ctx.Err() != nil || time.Since(began) > 5*time.Minute {
			return err
		}
	}
}

const blockSize = 26

func (c *cluster) file(name string) string { return filepath.Join(c.dir, name) }

func (c *cluster) node(n int) string { return c.bulk.NodeAt(n).Name }

// blocksByNode returns the one block of each node.
func (c *cluster) blocksByNode(ctx context.Context) (map[string]netip.Prefix, error) {
	state, err := c.ReadIPAM(ctx, testcluster.CRDv1)
	if err != nil {
		return nil, err
	}
	out := map[string]netip.Prefix{}
	for node, cidrs := range state.Blocks {
		if len(cidrs) != 1 {
			return nil, fmt.Errorf("node %s has %d blocks, not one: too many pods for a block each", node, len(cidrs))
		}
		out[node] = cidrs[0]
	}
	return out, nil
}

// cpu is the processor time that etcd and the API server have used.
func (c *cluster) cpu() (time.Duration, error) {
	var sum time.Duration
	for _, pid := range c.PIDs() {
		_, _, used, err := memory(pid)
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// note says on stderr what is going on.
func note(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}
