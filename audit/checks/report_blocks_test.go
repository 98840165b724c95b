package checks_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// mixed has a block in every state, and an address of every kind of use.
const mixed = `
version v3.31.0
pool pods 10.0.0.0/22
pool other 10.9.0.0/24
namespace shop
node n1 tunnel=vxlanTunnelAddress@10.0.0.1
node n2
block 10.0.0.0/26 n1 age=2h
block 10.0.0.64/26 gone age=2h
block 10.0.0.128/26 - age=2h
block 10.0.0.192/26 n2 age=2h deleted
block 10.0.1.0/25 n2 age=2h
block 10.0.1.64/26 n1 age=2h
block 10.9.0.0/26 n1 age=2h
block 172.16.0.0/26 virtual:load-balancer age=2h
affinity 10.0.0.0/26 n1 age=2h
reserve 10.0.0.60/30
reserve 10.0.3.0/26
alloc 10.0.0.1 node=n1 type=vxlanTunnelAddress handle=vxlan-tunnel-addr-n1 age=2h
use 10.0.0.2 shop/web n1
use 10.0.0.3 shop/api n2
alloc 10.0.0.4 pod=shop/gone node=n1 handle=k8s-pod-network.gone age=2h
alloc 10.0.0.5 pod=shop/left node=n1 handle=k8s-pod-network.left cooling age=2h
alloc 172.16.0.9 service=shop/front type=LoadBalancer handle=lb age=2h
use 10.9.0.7 shop/far n1
corrupt 10.0.0.0/26
`

func mixedReport(t *testing.T, text string) (*state.State, *audit.Result, *audit.Report) {
	t.Helper()
	s, err := statedsl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	st := state.New(s, state.Options{})
	res := audit.Run(st, checks.All)
	return st, res, audit.NewReport(st, res)
}

// TestAvailableOfBlock: an address is not available if a live pod uses it without a record. It is
// available if only a finished pod names it.
func TestAvailableOfBlock(t *testing.T) {
	for pods, want := range map[string]int{
		"":                          64,
		"pod shop/a n1 10.0.0.10\n": 63,
		"pod shop/a n1 10.0.0.10 phase=Succeeded\n":                               64,
		"pod shop/a n1 10.0.0.10\npod shop/b n1 10.0.0.10 phase=Failed\n":         63,
		"reserve 10.0.0.8/30\npod shop/a n1 10.0.0.10\npod shop/b n1 10.0.0.12\n": 59,
	} {
		if _, _, r := mixedReport(t, "pool pods 10.0.0.0/24\nnode n1\nblock 10.0.0.0/26 n1\naffinity 10.0.0.0/26 n1\n"+pods); r.Blocks[0].Available != want {
			t.Errorf("%d addresses are available, want %d\n%s", r.Blocks[0].Available, want, pods)
		}
	}
}

// TestIfEmptied: once its addresses are released, a block is releasable, unless its node has no other
// block to keep. Of several empty blocks, the node keeps the lowest.
func TestIfEmptied(t *testing.T) {
	const b = "pool pods 10.0.0.0/24 size=28\nnode n1\nblock 10.0.0.16/28 n1\naffinity 10.0.0.16/28 n1\nuse 10.0.0.17 shop/a n1\n"
	for others, want := range map[string]bool{
		"": false,
		"block 10.0.0.0/28 n1\naffinity 10.0.0.0/28 n1\n":                            true,
		"block 10.0.0.32/28 n1\naffinity 10.0.0.32/28 n1\n":                          false,
		"block 10.0.0.32/28 n1\naffinity 10.0.0.32/28 n1\nuse 10.0.0.33 shop/b n1\n": true,
		"block 10.0.0.0/28 n2\naffinity 10.0.0.0/28 n2\nnode n2\n":                   false,
		"block 10.0.0.0/28 n1\naffinity 10.0.0.0/28 n1\nlocked\n":                    false,
	} {
		st, _, _ := mixedReport(t, b+others)
		i := slices.IndexFunc(st.IPBlocks, func(x *state.Block) bool { return x.CIDR.String() == "10.0.0.16/28" })
		if r := st.IfEmptied(st.IPBlocks[i]); r.OK != want {
			t.Errorf("%v (%s), want %v\n%s", r.OK, r.Reason, want, others)
		}
	}
}

// TestLastEmptyBlock: a node with only full blocks in use can claim another block, so its last empty
// block is releasable. A block that the node's allocator does not find does not count, wherever it
// is listed.
func TestLastEmptyBlock(t *testing.T) {
	const b = "pool pods 10.0.0.0/24 size=28\nnode n1\nnode n2\nblock 10.0.0.32/28 n1 age=2h\naffinity 10.0.0.32/28 n1 age=2h\n" +
		"block 10.0.0.64/28 n2 age=2h\naffinity 10.0.0.64/28 n2 age=2h\n"
	const first, firstFull = "block 10.0.0.0/28 n1\naffinity 10.0.0.0/28 n1\n", "fill 10.0.0.0/28 16 n1\n"
	for others, want := range map[string]bool{
		"":                false,
		first + firstFull: true,
		"block 10.0.0.16/28 n1\nfill 10.0.0.16/28 16 n1\n":                                                                     false,
		first + firstFull + "block 10.0.0.16/28 n1\nfill 10.0.0.16/28 16 n1\n":                                                 true,
		"block 10.0.0.0/28 n1\n" + firstFull:                                                                                   false,
		first + firstFull + "block 10.0.0.48/28 n1\nfill 10.0.0.48/28 16 n1\n":                                                 true,
		"block 10.0.0.48/28 n1\naffinity 10.0.0.48/28 n1\nfill 10.0.0.48/28 16 n1\n":                                           true,
		first + "reserve 10.0.0.0/28\nuse 10.0.0.1 shop/a n1\n":                                                                false,
		first + firstFull + "affinity 10.0.0.16/28 n1\nblock 10.0.0.16/28 n1\nuse 10.0.0.17 shop/b n1\nreserve 10.0.0.16/28\n": true,
	} {
		_, _, r := mixedReport(t, b+others)
		i := slices.IndexFunc(r.Blocks, func(x audit.BlockReport) bool { return x.CIDR == "10.0.0.32/28" })
		if r.Blocks[i].Releasable != want {
			t.Errorf("releasable: %v, want %v\n%s", !want, want, others)
		}
	}
}

func TestReportBlocks(t *testing.T) {
	_, _, r := mixedReport(t, mixed)
	want := []audit.BlockReport{
		{CIDR: "10.0.0.0/26", Pool: "pods", Owner: "host:n1", InUse: 5, Cooling: 1, Available: 55, Lent: 1, LentTo: []string{"n2"},
			Conditions: []audit.Condition{audit.BlockCorrupt}},
		{CIDR: "10.0.0.64/26", Pool: "pods", Owner: "host:gone", Available: 64, Conditions: []audit.Condition{audit.BlockDeadNode}, Releasable: true},
		{CIDR: "10.0.0.128/26", Pool: "pods", Available: 64, Conditions: []audit.Condition{audit.BlockNoOwner}, Releasable: true},
		{CIDR: "10.0.0.192/26", Pool: "pods", Owner: "host:n2", Available: 64, Conditions: []audit.Condition{audit.BlockDeleted}},
		{CIDR: "10.0.1.0/25", Pool: "pods", Owner: "host:n2", Available: 128, Conditions: []audit.Condition{audit.BlockOverlap}},
		{CIDR: "10.0.1.64/26", Pool: "pods", Owner: "host:n1", Available: 64, Conditions: []audit.Condition{audit.BlockOverlap}},
		{CIDR: "10.9.0.0/26", Pool: "other", Owner: "host:n1", InUse: 1, Available: 63},
		{CIDR: "172.16.0.0/26", Owner: "virtual:load-balancer", InUse: 1, Available: 63},
	}
	got := slices.Clone(r.Blocks)
	for i := range got {
		if !got[i].Is(audit.BlockDeadNode) && !got[i].Is(audit.BlockNoOwner) {
			got[i].Releasable = false // depends on the verdict on empty blocks, which has its own tests
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"10.0.0.60/30", "10.0.3.0/26"}, r.Pools[1].Reservations); r.Pools[1].Name != "pods" || diff != "" {
		t.Errorf("reservations of %s (-want +got):\n%s", r.Pools[1].Name, diff)
	}
}

// TestReportBlocksWithoutNodes: if nodes were not read, the report calls no owner dead.
func TestReportBlocksWithoutNodes(t *testing.T) {
	_, _, r := mixedReport(t, mixed+"gap nodes forbidden\n")
	for _, b := range r.Blocks {
		if b.Is(audit.BlockDeadNode) {
			t.Errorf("%s: its owner %s is called dead, and nodes were not read", b.CIDR, b.Owner)
		}
	}
}

func TestUsage(t *testing.T) {
	sound := mixed[:len(mixed)-len("corrupt 10.0.0.0/26\n")]
	st, res, r := mixedReport(t, sound)
	raw, err := json.Marshal(audit.NewUsage(st, res))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &r.Usage); err != nil {
		t.Fatal(err)
	}
	lines := func() (out []string) {
		for i, b := range r.Blocks {
			for _, a := range r.Usage.Block(i) {
				out = append(out, fmt.Sprintf("%s+%d %d %s/%s on %s %s %03b", b.CIDR, a.Ordinal, a.Kind, a.Namespace, a.Name, a.Node, a.Handle, a.Marks))
			}
		}
		return out
	}
	want := []string{
		"10.0.0.0/26+1 2 /vxlanTunnelAddress on n1 vxlan-tunnel-addr-n1 000",
		"10.0.0.0/26+2 1 shop/web on n1 k8s-pod-network.shop/web 000",
		"10.0.0.0/26+3 1 shop/api on n2 k8s-pod-network.shop/api 001",
		"10.0.0.0/26+4 1 shop/gone on n1 k8s-pod-network.gone 010",
		"10.0.0.0/26+5 0 / on   100",
		"10.9.0.0/26+7 1 shop/far on n1 k8s-pod-network.shop/far 000",
		"172.16.0.0/26+9 3 /shop/front on  lb 000",
	}
	if diff := cmp.Diff(want, lines()); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}

	r.Filter([]string{"other"}, nil)
	if diff := cmp.Diff(want[5:6], lines()); len(r.Blocks) != 1 || diff != "" {
		t.Errorf("of one pool: %d blocks, usage (-want +got):\n%s", len(r.Blocks), diff)
	}
}
