package checks_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// play is one state on a real API server, made with Calico's own IPAM client.
type play struct {
	t   *testing.T
	ctx context.Context
	c   *testcluster.Cluster
	s   *seeding.Seeder
}

func (p *play) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// pool creates the pool "pods", with blocks of eight addresses unless change sets another size.
func (p *play) pool(cidr string, change func(*apiv3.IPPoolSpec)) {
	p.t.Helper()
	spec := apiv3.IPPoolSpec{CIDR: cidr, BlockSize: 29, IPIPMode: apiv3.IPIPModeNever, VXLANMode: apiv3.VXLANModeNever}
	if change != nil {
		change(&spec)
	}
	p.must(p.s.Pool(p.ctx, "pods", spec))
}

func (p *play) node(name string) {
	p.t.Helper()
	p.must(p.s.Node(p.ctx, seeding.Node{Name: name}))
}

func (p *play) pod(node, name string) ([]netip.Addr, error) {
	return p.s.Pod(p.ctx, seeding.Pod{Namespace: "default", Name: node + "-" + name, Node: node})
}

func (p *play) mustPods(node string, n int) {
	p.t.Helper()
	for i := range n {
		if _, err := p.pod(node, fmt.Sprint(i)); err != nil {
			p.t.Fatalf("pod %d of %s: %v", i, node, err)
		}
	}
}

func (p *play) config(strict, auto bool, limit int) {
	p.t.Helper()
	p.must(p.s.SetIPAMConfig(p.ctx, ipam.IPAMConfig{StrictAffinity: strict, AutoAllocateBlocks: auto, MaxBlocksPerHost: limit}))
}

func (p *play) read() *state.State {
	p.t.Helper()
	k, err := cluster.NewKubernetes(p.c.Config, cluster.KubernetesOptions{})
	p.must(err)
	snap, err := k.Read(p.ctx)
	p.must(err)
	for _, g := range snap.Gaps {
		p.t.Errorf("gap: %s", g)
	}
	return state.New(snap, state.Options{})
}

func (p *play) need(node string) *state.NodeBlockStatus {
	p.t.Helper()
	h := p.read().NodeState(node)
	if h == nil || len(h.BlockStatus) != 1 {
		p.t.Fatalf("node %s is not evaluated for one family: %+v", node, h)
	}
	return h.BlockStatus[0]
}

// TestCausesAgreeWithCalico creates nodes without a block for every cause that the audit knows,
// then asks Calico's own allocator for an address there. Its behaviour must match the cause.
func TestCausesAgreeWithCalico(t *testing.T) {
	type outcome string
	const (
		claimsBlock outcome = "claims a block"
		borrows     outcome = "borrows"
		fails       outcome = "gets none"
	)
	cases := []struct {
		name  string
		setUp func(*play)
		cause state.Cause
		want  outcome
	}{
		{"blocks are left", func(p *play) {
			p.pool("10.0.0.0/28", nil)
			p.mustPods("old", 1)
		}, state.CauseNone, claimsBlock},
		{"out of blocks", func(p *play) {
			p.pool("10.0.0.0/28", nil)
			p.mustPods("old", 9)
		}, state.CauseNoBlocks, borrows},
		{"out of blocks, strict affinity", func(p *play) {
			p.config(true, true, 0)
			p.pool("10.0.0.0/28", nil)
			p.mustPods("old", 9)
		}, state.CauseStrict, fails},
		{"strict affinity turned on for existing blocks", func(p *play) {
			p.pool("10.0.0.0/28", nil)
			p.mustPods("old", 9)
			p.config(true, true, 0)
		}, state.CauseStrict, fails},
		{"out of blocks and addresses", func(p *play) {
			p.pool("10.0.0.0/28", nil)
			p.mustPods("old", 16)
		}, state.CauseFull, fails},
		{"the rest is reserved", func(p *play) {
			p.pool("10.0.0.0/28", nil)
			p.mustPods("old", 8)
			p.must(p.s.Reservation(p.ctx, "rest", netip.MustParsePrefix("10.0.0.0/28")))
		}, state.CauseReserved, fails},
		{"no pool selects the node", func(p *play) {
			p.pool("10.0.0.0/28", func(s *apiv3.IPPoolSpec) { s.NodeSelector = "rack == 'a'" })
			p.must(p.s.LabelNode(p.ctx, "old", map[string]string{"rack": "a"}))
			p.mustPods("old", 1)
		}, state.CauseNoPool, fails},
		{"the pool is used by request only", func(p *play) {
			p.pool("10.0.0.0/28", nil)
			p.mustPods("old", 1)
			p.must(p.s.EditPool(p.ctx, "pods", func(spec map[string]any) { spec["assignmentMode"] = "Manual" }))
		}, state.CauseNoPool, fails},
		{"the pool does not allow workloads", func(p *play) {
			p.pool("10.0.0.0/28", nil)
			p.mustPods("old", 1)
			p.must(p.s.EditPool(p.ctx, "pods", func(spec map[string]any) { spec["allowedUses"] = []any{"Tunnel"} }))
		}, state.CauseNoPool, fails},
		{"automatic blocks are off", func(p *play) {
			p.pool("10.0.0.0/28", nil)
			p.mustPods("old", 1)
			p.config(true, false, 0)
		}, state.CauseNoAuto, fails},
		{"a selector cannot be parsed", func(p *play) {
			p.pool("10.0.0.0/28", nil)
			p.mustPods("old", 1)
			p.must(p.s.RawPool(p.ctx, "typo", map[string]any{"cidr": "10.9.0.0/28", "blockSize": int64(29), "nodeSelector": "rack is a"}))
		}, state.CauseSelector, fails},
		{"a foreign block size leaves a slot that Calico takes", func(p *play) {
			p.pool("10.0.0.0/29", func(s *apiv3.IPPoolSpec) { s.BlockSize = 30 })
			p.mustPods("old", 5)
			p.must(p.s.EditPool(p.ctx, "pods", func(spec map[string]any) { spec["blockSize"] = int64(29) }))
		}, state.CauseNone, claimsBlock},
	}
	c := testcluster.Shared(t, testcluster.Options{})
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			p := newPlay(t, c)
			p.node("old")
			p.node("new")
			x.setUp(p)

			n := p.need("new")
			if !n.NoBlock() || n.Cause != x.cause {
				t.Errorf("before: no block %t, cause %q (%s); want cause %q", n.NoBlock(), n.Cause, n.Detail, x.cause)
			}
			addrs, err := p.pod("new", "probe")
			got := fails
			if err == nil {
				got = borrows
				if state, e := c.ReadIPAM(p.ctx, testcluster.CRDv1); e != nil {
					t.Fatal(e)
				} else if _, borrowed := state.Borrowed[addrs[0]]; !borrowed {
					got = claimsBlock
				}
			} else if !errors.Is(err, seeding.ErrNoAddress) {
				t.Fatal(err)
			}
			if got != x.want {
				t.Errorf("Calico's allocator: the pod %s (%v, %v); want: it %s", got, addrs, err, x.want)
			}
			checkAfter(p, string(got), n.Cause)
		})
	}
}

func newPlay(t *testing.T, c *testcluster.Cluster) *play {
	t.Helper()
	p := &play{t: t, ctx: t.Context(), c: c}
	p.must(c.Reset(p.ctx))
	s, err := seeding.New(c)
	p.must(err)
	p.s = s
	p.must(s.Init(p.ctx))
	p.config(false, true, 0)
	return p
}

// checkAfter reads the state again. The audit must now report what the allocator did on the node.
func checkAfter(p *play, did string, cause state.Cause) {
	p.t.Helper()
	st := p.read()
	var found *audit.Finding
	for _, f := range audit.Run(st, checks.All).Findings {
		if f.Check == "node/no-block" && f.Subject.Name == "new" {
			found = &f
		}
	}
	switch {
	case did == "claims a block" && found != nil:
		p.t.Errorf("after it claimed a block: %s", found.Message)
	case did != "claims a block" && found == nil:
		p.t.Errorf("it %s, and node/no-block does not say so", did)
	case found != nil && found.Severity != map[string]state.Severity{"borrows": state.Error, "gets none": state.Critical}[did]:
		p.t.Errorf("it %s (%s), and node/no-block is %s: %s", did, cause, found.Severity, found.Message)
	}
}

// TestBlockLimitAgreesWithCalico: a node at its limit gets no address once its blocks are full,
// and cannot borrow.
func TestBlockLimitAgreesWithCalico(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	p := newPlay(t, c)
	p.node("old")
	p.node("new")
	p.config(true, true, 1)
	p.pool("10.0.0.0/26", nil)
	p.mustPods("new", 1)
	p.mustPods("old", 7)
	if got := limitFinding(p); got == nil || got.Severity != state.Warning {
		t.Errorf("one address left in the only block allowed: %+v", got)
	}
	p.mustPods("old", 0)
	if _, err := p.pod("old", "last"); err != nil {
		t.Fatal(err)
	}
	if got := limitFinding(p); got == nil || got.Severity != state.Error {
		t.Errorf("the only block allowed is full: %+v", got)
	}
	if addrs, err := p.pod("old", "over"); !errors.Is(err, seeding.ErrNoAddress) {
		t.Errorf("Calico's allocator gave %v beyond the limit: %v", addrs, err)
	}
}

func limitFinding(p *play) *audit.Finding {
	for _, f := range audit.Run(p.read(), checks.All).Findings {
		if f.Check == "node/block-limit" && f.Subject.Name == "old" {
			return &f
		}
	}
	return nil
}

// TestAllocatableAsCalicoAllocates fills a pool with blocks, one node each, until Calico's
// allocator claims no more. The result must match the audit's count of allocatable blocks. The pool
// also has a block of another size, and reservations of a whole block and of a few addresses.
func TestAllocatableAsCalicoAllocates(t *testing.T) {
	c := testcluster.Shared(t, testcluster.Options{})
	for _, family := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
		t.Run(family.String(), func(t *testing.T) {
			p := newPlay(t, c)
			cidr, size, whole, part := "10.0.0.0/26", 29, "10.0.0.16/29", "10.0.0.40/31"
			if family == blocks.IPv6 {
				cidr, size, whole, part = "fd00::/122", 125, "fd00::10/125", "fd00::28/127"
			}
			p.pool(cidr, func(s *apiv3.IPPoolSpec) { s.BlockSize = size + 1 })
			p.node("first")
			_, err := p.claim("first", family)
			p.must(err)
			p.must(p.s.EditPool(p.ctx, "pods", func(spec map[string]any) { spec["blockSize"] = int64(size) }))
			p.must(p.s.Reservation(p.ctx, "some", netip.MustParsePrefix(whole), netip.MustParsePrefix(part)))

			before := p.read().Pools[0]
			want, _ := before.Slots.Allocatable.Int()
			if before.Slots.Capacity.String() != "8" || want < 6 {
				t.Fatalf("the state is not the one meant: %+v", before.Slots)
			}
			claimed := 0
			for i := range 20 {
				node := fmt.Sprintf("n%02d", i)
				p.node(node)
				if _, err := p.claim(node, family); err != nil && !errors.Is(err, seeding.ErrNoAddress) {
					t.Fatal(err)
				}
				state, err := c.ReadIPAM(p.ctx, testcluster.CRDv1)
				p.must(err)
				claimed += len(state.Blocks[node])
			}
			if claimed != want {
				t.Errorf("the audit called %d blocks allocatable, and Calico's allocator claimed %d", want, claimed)
			}
			if after := p.read().Pools[0]; !after.Slots.Allocatable.IsZero() {
				t.Errorf("afterwards %s blocks are called allocatable", after.Slots.Allocatable)
			}
		})
	}
}

func (p *play) claim(node string, f blocks.Family) ([]netip.Addr, error) {
	return p.s.Pod(p.ctx, seeding.Pod{Namespace: "default", Name: node, Node: node, IPv6Only: f == blocks.IPv6})
}
