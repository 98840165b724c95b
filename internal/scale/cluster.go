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

// podPool is the CIDR of the pods' addresses. No pod may use sparePool, which is for planted blocks
// and addresses.
const podPool, sparePool = "10.0.0.0/9", "10.128.0.0/9"

// age is the age of every object when it is read, beyond any grace period.
const age = 24 * time.Hour

// A cluster is a test cluster to measure.
type cluster struct {
	*testcluster.Cluster
	seeder *seeding.Seeder
	bulk   seeding.Bulk
	dir    string // for files; removed with the cluster
	took   time.Duration
	damage expected // nil before it is planted
}

// newCluster returns a healthy cluster that is a day old. Its API server answers from the
// watch cache, as it does by default.
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
	// Created last, so that no pod gets an address from it.
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

// warm waits until the API server's watch caches are filled. Until then it answers 429 to
// lists without pages. The probe asks for a name that does not exist, because listing all
// objects meanwhile took the API server 19 GB on a busy machine.
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

// cpu returns the processor time of etcd and the API server.
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

// note logs progress to stderr.
func note(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}
