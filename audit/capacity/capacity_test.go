package capacity_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit/capacity"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

func parse(t testing.TB, text string) *state.State {
	t.Helper()
	snapshot, err := statedsl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return state.New(snapshot, state.Options{})
}

func ask(t testing.TB, st *state.State, q capacity.Scenario) *capacity.Answer {
	t.Helper()
	answer, err := capacity.Ask(t.Context(), st, q)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// owned is a block with its affinity and its first used addresses allocated.
func owned(cidr, node string, used int) string {
	text := fmt.Sprintf("block %s %s age=1h\naffinity %s %s age=1h\n", cidr, node, cidr, node)
	if used > 0 {
		text += fmt.Sprintf("fill %s %d %s\n", cidr, used, node)
	}
	return text
}

// worlds are states with one pool and one address for each pod.
var worlds = map[string]string{
	"two nodes hold everything": "pool pods 10.0.0.0/24 size=26\nnode n1\nnode n2\n" +
		owned("10.0.0.0/26", "n1", 64) + owned("10.0.0.64/26", "n1", 6) + owned("10.0.0.128/26", "n2", 64) + owned("10.0.0.192/26", "n2", 9),
	"uneven":            "pool pods 10.0.0.0/24 size=27\nnode n1\nnode n2\nnode n3\n" + owned("10.0.0.0/27", "n1", 30) + owned("10.0.0.32/27", "n2", 3) + owned("10.0.0.64/27", "n3", 1),
	"strict":            "config strict max=2\npool pods 10.0.0.0/24 size=28\nnode n1\nnode n2\n" + owned("10.0.0.0/28", "n1", 10) + owned("10.0.0.16/28", "n2", 4),
	"strict and full":   "config strict\npool pods 10.0.0.0/26 size=28\nnode n1\nnode n2\n" + owned("10.0.0.0/28", "n1", 10) + owned("10.0.0.16/28", "n2", 4),
	"reserved":          "pool pods 10.0.0.0/25 size=28\nreserve 10.0.0.32/27\nreserve 10.0.0.64/30\nreserve 10.0.0.3/32\nnode n1\nnode n2\n" + owned("10.0.0.0/28", "n1", 2) + owned("10.0.0.16/28", "n2", 4),
	"all is reserved":   "pool pods 10.0.0.0/27 size=28\nreserve 10.0.0.16/28\nnode n1\n" + owned("10.0.0.0/28", "n1", 2),
	"IPv6, very large":  "config strict max=3\npool pods fd00::/48 size=124\nnode n1\nnode n2\n" + owned("fd00::/124", "n1", 10) + owned("fd00::10/124", "n2", 4),
	"an empty block":    "version v3.32.1\npool pods 10.0.0.0/26 size=28\nnode n1\nnode n2\n" + owned("10.0.0.0/28", "n1", 10) + owned("10.0.0.16/28", "n2", 4) + owned("10.0.0.32/28", "n2", 0) + owned("10.0.0.48/28", "n1", 3),
	"a block of none":   "pool pods 10.0.0.0/30 size=30\nnode n1\nblock 10.0.0.0/30 -\n",
	"another's address": "pool pods 10.0.0.0/27 size=28\nnode n1\nnode n2\n" + owned("10.0.0.0/28", "n1", 10) + owned("10.0.0.16/28", "n1", 4) + "use 10.0.0.30 shop/lent n2\n",
}

// TestLenders: a node that borrows names each lender once.
func TestLenders(t *testing.T) {
	st := parse(t, "pool pods 10.0.0.0/29 size=30\nnode n1\nnode n2\n"+owned("10.0.0.0/30", "n1", 1)+owned("10.0.0.4/30", "n2", 2))
	o := ask(t, st, capacity.Scenario{AddNodes: 1, PodsPerNode: 5}).Outcome
	if len(o.Nodes) != 1 || o.Borrowed != 5 || !slices.Equal(slices.Sorted(slices.Values(o.Nodes[0].From)), []string{"n1", "n2"}) {
		t.Errorf("%d borrowed, nodes %+v; want 5 from n1 and n2", o.Borrowed, o.Nodes)
	}
}

// TestHeadroomOfPods: exactly as many pods can start as the headroom states. The next one borrows
// or is refused, on the node that the headroom names.
func TestHeadroomOfPods(t *testing.T) {
	for name, text := range worlds {
		t.Run(name, func(t *testing.T) {
			st := parse(t, text)
			h := ask(t, st, capacity.Scenario{}).Today[0]
			n, ok := h.Pods.Int()
			if !ok || h.First == "" {
				t.Fatalf("the headroom is %+v", h)
			}
			if n > 0 {
				if o := ask(t, st, capacity.Scenario{Pods: n}).Outcome; o.Borrowed+o.Refused > 0 || o.Started != n || o.Fits != served(t, st) {
					t.Errorf("%d pods should fit: %+v", n, o)
				}
			}
			o := ask(t, st, capacity.Scenario{Pods: n + 1}).Outcome
			first := o.FirstBorrow
			if h.Refused {
				first = o.FirstRefusal
			}
			if o.Borrowed+o.Refused != 1 || first == nil || first.Node != h.First || first.Limit != h.PodsLimit || (o.Refused == 1) != h.Refused {
				t.Errorf("pod %d should end it: the headroom is %+v, and what comes of it %+v, %+v", n+1, h, o, first)
			}
		})
	}
}

// served reports whether the demand of a state is met.
func served(t *testing.T, st *state.State) bool {
	t.Helper()
	d := ask(t, st, capacity.Scenario{}).Demand
	return d.PodsLeft+len(d.NodesLeft) == 0
}

// TestHeadroomOfNodes: exactly as many nodes get a block of their own as the headroom states.
func TestHeadroomOfNodes(t *testing.T) {
	for name, text := range worlds {
		t.Run(name, func(t *testing.T) {
			st := parse(t, text)
			h := ask(t, st, capacity.Scenario{}).Today[0]
			n, ok := h.Nodes.Int()
			if !ok {
				if want := "75557863725914323419134"; h.Nodes.String() != want {
					t.Errorf("%s nodes can join, not all of the pool's blocks but two, %s", h.Nodes, want)
				}
				return
			}
			if n > 0 {
				if o := ask(t, st, capacity.Scenario{AddNodes: n}).Outcome; !o.Fits || len(o.WithoutBlock) > 0 {
					t.Errorf("%d nodes should fit: %+v", n, o)
				}
			}
			if o := ask(t, st, capacity.Scenario{AddNodes: n + 1}).Outcome; o.Fits || !slices.Equal(o.WithoutBlock, []string{fmt.Sprintf("new-%d", n+1)}) {
				t.Errorf("node %d should get no block: %+v", n+1, o)
			}
		})
	}
}

// TestSmallestBlocks: blocks of one address are proposed, too.
func TestSmallestBlocks(t *testing.T) {
	st := parse(t, "pool pods 10.0.0.0/30 size=30\nnode n1\n"+owned("10.0.0.0/30", "n1", 1))
	for nodes, want := range map[int]string{1: "31", 3: "32"} {
		got := ""
		for _, c := range ask(t, st, capacity.Scenario{AddNodes: nodes}).Outcome.Changes {
			if c.Kind == "block-size" && got == "" {
				_, got, _ = strings.Cut(c.Title, "blocks of /")
			}
		}
		if !strings.HasPrefix(got, want+":") {
			t.Errorf("for %d nodes: %q", nodes, got)
		}
	}
}

// TestChanges: each proposed change makes the scenario fit, and no smaller change of its
// kind does.
func TestChanges(t *testing.T) {
	st := parse(t, worlds["two nodes hold everything"])
	q := capacity.Scenario{AddNodes: 2}
	o := ask(t, st, q).Outcome
	var kinds []string
	for _, c := range o.Changes {
		kinds = append(kinds, c.Kind+" "+c.Left.String())
	}
	if want := []string{"prefix 0", "pools 2", "block-size 0", "block-size 4"}; !slices.Equal(kinds, want) {
		t.Fatalf("the changes are %v, not %v: %+v", kinds, want, o.Changes)
	}
	fits := func(change func(*capacity.Scenario)) bool {
		with := q
		change(&with)
		return ask(t, st, with).Outcome.Fits
	}
	pool := func(cidr string) func(*capacity.Scenario) {
		return func(q *capacity.Scenario) {
			q.AddPools = []capacity.NewPool{{CIDR: netip.MustParsePrefix(cidr), BlockSize: 26}}
		}
	}
	size := func(bits int) func(*capacity.Scenario) {
		return func(q *capacity.Scenario) { q.BlockSizes = []capacity.BlockSize{{Bits: bits}} }
	}
	for _, c := range []struct {
		what   string
		change func(*capacity.Scenario)
		want   bool
	}{
		{"a /26", pool("10.1.0.0/26"), false}, {"a /25", pool("10.1.0.0/25"), true}, {"a /24", pool("10.1.0.0/24"), true},
		{"blocks of /27", size(27), true}, {"blocks of /28", size(28), true}, {"nothing", func(*capacity.Scenario) {}, false},
	} {
		if fits(c.change) != c.want {
			t.Errorf("%s: it should fit: %v", c.what, c.want)
		}
	}
}

// TestReservedClaim: Calico skips a fully reserved block (findOrClaimBlock). A node therefore keeps
// its affinity to such a block of another node, and the affinity counts against its limit.
func TestReservedClaim(t *testing.T) {
	text := "config max=2\npool pods 10.0.0.0/26 size=28\nnode n1\nnode n2\n" + owned("10.0.0.0/28", "n1", 16) + owned("10.0.0.16/28", "n2", 0) + "affinity 10.0.0.16/28 n1 age=1h\n"
	for more, assigned := range map[string]int{"reserve 10.0.0.16/28\n": 0, "": 2} {
		a, got := capacity.NewAllocator(parse(t, text+more)), 0
		for range 3 {
			if a.Assign(capacity.Request{Node: "n1", Family: blocks.IPv4, Use: blocks.UseWorkload}).Addr.IsValid() {
				got++
			}
		}
		if got != assigned {
			t.Errorf("%q: %d addresses are assigned, not %d", more, got, assigned)
		}
	}
}

// TestReclaim: Calico v3.32 takes over another node's empty block, even its last one, if it
// was claimed at least a minute ago. Older releases and young blocks do not.
func TestReclaim(t *testing.T) {
	text := "pool pods 10.0.0.0/27 size=28\nnode n1\nnode n2\n" + owned("10.0.0.0/28", "n1", 2) + "affinity 10.0.0.16/28 n2 age=1h\nblock 10.0.0.16/28 n2 age=1h"
	for more, want := range map[string]string{
		"version v3.32.1\n" + text:                  "",
		"version v3.32.1\n" + text + " claimed=2m":  "",
		"version v3.32.1\n" + text + " claimed=30s": "new-1",
		"version v3.31.5\n" + text:                  "new-1",
		"version v3.32.1\n" + strings.Replace(text, "affinity 10.0.0.16/28 n2 age=1h\n", "", 1): "new-1", // Calico looks for the affinity
	} {
		o := ask(t, parse(t, more), capacity.Scenario{AddNodes: 1}).Outcome
		if got := strings.Join(o.WithoutBlock, ","); got != want {
			t.Errorf("%s:\nwithout a block are %q, not %q", more, got, want)
		}
	}
}

// TestRemoveNode: the removed node's addresses are free. Its pods restart elsewhere, except
// for those that only this node runs. Nodes that borrowed from it keep their addresses.
func TestRemoveNode(t *testing.T) {
	st := parse(t, `pool pods 10.0.0.0/27 size=28
node n1
node n2
`+owned("10.0.0.0/28", "n1", 0)+owned("10.0.0.16/28", "n2", 3)+`
use 10.0.0.0 shop/web n1
use 10.0.0.1 kube-system/agent n1 of=DaemonSet/agent
`)
	o := ask(t, st, capacity.Scenario{RemoveNodes: []string{"n1"}, AddNodes: 1}).Outcome
	if !o.Fits || o.Started != 2 || len(o.Nodes) != 1 || fmt.Sprint(o.Nodes[0].Claimed) != "[10.0.0.0/28]" {
		t.Errorf("the node that joins should get what n1 held, and one pod of n1 move: %+v", o)
	}
}

// TestSelector: a node that no pool selects gets no address. A proposed change adds a pool
// for it.
func TestSelector(t *testing.T) {
	st := parse(t, "pool pods 10.0.0.0/24 size=26 nodes=rack==\"a\"\nnode n1 label=rack=a\n"+owned("10.0.0.0/26", "n1", 1))
	o := ask(t, st, capacity.Scenario{AddNodes: 1}).Outcome
	if o.Refused != 1 || o.FirstRefusal.Limit != capacity.LimitSelector {
		t.Errorf("the pod should get no address for want of a pool: %+v", o)
	}
	if o := ask(t, st, capacity.Scenario{AddNodes: 1, NodeLabels: map[string]string{"rack": "a"}}).Outcome; !o.Fits {
		t.Errorf("a node of rack a should get a block: %+v", o)
	}
	if h := ask(t, st, capacity.Scenario{}).Today[0]; !h.Nodes.IsZero() || h.NodesLimit != capacity.LimitSelector {
		t.Errorf("no plain node can join: %+v", h)
	}
}

// TestIncomplete: a missing resource leaves no answer. A missing BGP configuration only
// affects the traffic.
func TestIncomplete(t *testing.T) {
	text := worlds["two nodes hold everything"]
	for _, r := range capacity.Reads {
		if a := ask(t, parse(t, text+"gap "+string(r)+" forbidden\n"), capacity.Scenario{AddNodes: 1}); a.Inconclusive == "" || a.Outcome != nil || len(a.Today) > 0 {
			t.Errorf("without %s there should be no answer: %+v", r, a)
		}
	}
	a := ask(t, parse(t, text+"gap bgppeers forbidden\n"), capacity.Scenario{AddNodes: 1})
	if a.Inconclusive != "" || a.Outcome.Traffic == nil || a.Outcome.Traffic.Outcome != "not known" {
		t.Errorf("without BGP peers only the traffic is not known: %+v, %+v", a, a.Outcome)
	}
}

// TestNobodyToAsk: pods that no node accepts or no pool serves do not fit, nor does a node
// without a pool.
func TestNobodyToAsk(t *testing.T) {
	one := "pool pods 10.0.0.0/24 size=26\nnode n1\n" + owned("10.0.0.0/26", "n1", 2)
	for name, c := range map[string]struct {
		text    string
		q       capacity.Scenario
		without []string
		refused int
		limit   capacity.Limit
	}{
		"the only node goes": {one, capacity.Scenario{RemoveNodes: []string{"n1"}, Pods: 3}, nil, 5, capacity.LimitNodes},
		"all are cordoned":   {"pool pods 10.0.0.0/24 size=26\nnode n1 cordoned\n", capacity.Scenario{Pods: 10}, nil, 10, capacity.LimitNodes},
		"no pool, pods":      {"node n1\n", capacity.Scenario{Pods: 10}, nil, 10, capacity.LimitSelector},
		"no pool, nodes":     {"node n1\n", capacity.Scenario{AddNodes: 2, PodsPerNode: 3}, []string{"new-1", "new-2"}, 6, capacity.LimitSelector},
	} {
		t.Run(name, func(t *testing.T) {
			a := ask(t, parse(t, c.text), c.q)
			o := a.Outcome
			if o.Fits || !slices.Equal(o.WithoutBlock, c.without) || o.Refused != c.refused || o.Started != c.refused || o.FirstRefusal == nil || o.FirstRefusal.Limit != c.limit || o.FirstRefusal.Reason == "" {
				t.Errorf("it is %+v, %+v", o, o.FirstRefusal)
			}
			if a.Today == nil {
				t.Error("the headroom is not a list")
			}
		})
	}
}

// TestCordoned: cordoned nodes get no further pods, whatever they run.
func TestCordoned(t *testing.T) {
	st := parse(t, "pool pods 10.0.0.0/24 size=26\nnode n1 cordoned\nnode n2\nnode n3\n"+owned("10.0.0.0/26", "n1", 60)+owned("10.0.0.64/26", "n2", 1)+owned("10.0.0.128/26", "n3", 4))
	a := ask(t, st, capacity.Scenario{Pods: 50, RemoveNodes: []string{"n3"}})
	if o := a.Outcome; !o.Fits || o.Started != 54 || len(o.Nodes) > 0 {
		t.Errorf("all should start in the block of n2: %+v", o)
	}
	// n2 gets one of five pods. n3 has room for 60, claims the last block, and has room for
	// 64 more.
	if h := a.Today[0]; h.First != "n3" || h.Pods.String() != "155" {
		t.Errorf("155 pods can start before n3 has no room: %+v", h)
	}
}

// TestSimulationEnds: scenarios beyond the limits are rejected, one at the limit is
// answered, and the simulation ends with its context.
func TestSimulationEnds(t *testing.T) {
	st := parse(t, worlds["two nodes hold everything"])
	for _, q := range []capacity.Scenario{{AddNodes: 4, PodsPerNode: 1 << 62}, {AddNodes: 1, PodsPerNode: 5_000_001}, {AddNodes: 2, PodsPerNode: 2_500_001}} {
		if _, err := capacity.Ask(t.Context(), st, q); err == nil || !strings.Contains(err.Error(), "at most") {
			t.Errorf("%+v is not refused: %v", q, err)
		}
	}
	if o := ask(t, st, capacity.Scenario{AddNodes: 1, PodsPerNode: 5_000_000}).Outcome; o.Started != 5_000_000 || o.Borrowed != 113 || o.Refused != 4_999_887 || o.Nodes[0].Refused != o.Refused {
		t.Errorf("113 addresses are there to borrow: %+v", o)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := capacity.Ask(ctx, st, capacity.Scenario{Pods: 5_000_000}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a simulation whose context ended returns %v", err)
	}
}

// TestChangesBesideLargePools: the search for a trial CIDR skips existing pools.
func TestChangesBesideLargePools(t *testing.T) {
	for _, pool := range []string{"240.0.0.0/4 size=26", "0.0.0.0/0 size=26", "fdff::/48 size=122", "fdff::/16 size=122"} {
		o := ask(t, parse(t, "config strict\npool pods "+pool+"\nnode n1\n"), capacity.Scenario{Pods: 20*64 + 1}).Outcome
		if o.Refused != 1 || len(o.Changes) != 1 || o.Changes[0].Kind != "max-blocks" {
			t.Errorf("%s: a 21st block would do, and nothing else: %+v", pool, o)
		}
		// Nodes that no pool selects need an additional pool.
		o = ask(t, parse(t, "pool pods "+pool+" nodes=rack==\"a\"\nnode n1 label=rack=a\n"), capacity.Scenario{AddNodes: 1}).Outcome
		if found := len(o.Changes) > 0 && o.Changes[0].Kind == "prefix"; o.Fits || found == strings.HasPrefix(pool, "0.0.0.0/0") {
			t.Errorf("%s: a further pool would do, if there is room for one: %+v", pool, o)
		}
	}
}

// TestRejectedBlockSize: blocks of a size that Calico rejects are named instead of
// simulated.
func TestRejectedBlockSize(t *testing.T) {
	pool := "pool pods fd00::/48 size=122\nnode n1\n"
	for text, want := range map[string]string{
		"pool wide fd00::/48 size=64\nnode n1\n":          "pool wide cannot be simulated: block size /64: Calico takes /116 to /128",
		"pool wide 10.0.0.0/8 size=12\nnode n1\n":         "pool wide cannot be simulated: block size /12: Calico takes /20 to /32",
		"pool tiny 10.0.0.0/28 size=26\nnode n1\n":        "pool tiny cannot be simulated: a block of /26 is larger than pool 10.0.0.0/28",
		pool + "affinity fd00::/64 n1 age=1h\n":           "affinity n1-fd00::/64 cannot be simulated: block size /64: Calico takes /116 to /128",
		pool + owned("fd00::/122", "n1", 1):               "",
		pool + "pool wide fd01::/48 size=64 disabled\n\n": "",
	} {
		a := ask(t, parse(t, text), capacity.Scenario{AddNodes: 1})
		if a.Inconclusive != want || (want == "") != (a.Outcome != nil) {
			t.Errorf("%s: it is %q, and should be %q", text, a.Inconclusive, want)
		}
	}
}

// TestTwice: duplicates in a scenario are errors.
func TestTwice(t *testing.T) {
	st := parse(t, worlds["two nodes hold everything"])
	for want, q := range map[string]capacity.Scenario{
		`node "n1" is listed twice for removal`:           {RemoveNodes: []string{"n1", "n2", "n1"}},
		"pool pods is given two block sizes, /27 and /28": {BlockSizes: []capacity.BlockSize{{Bits: 27}, {Pool: "pods", Bits: 28}}},
		"pool pods is given two block sizes, /28 and /28": {BlockSizes: []capacity.BlockSize{{Pool: "pods", Bits: 28}, {Pool: "pods", Bits: 28}}},
	} {
		if _, err := capacity.Ask(t.Context(), st, q); err == nil || err.Error() != want {
			t.Errorf("%+v: %v, not %s", q, err, want)
		}
	}
}

// TestCurve: the curve's nodes have unused names, so each needs a block.
func TestCurve(t *testing.T) {
	st := parse(t, "pool pods 10.0.0.0/26 size=28\nnode new-1\n"+owned("10.0.0.0/28", "new-1", 1))
	for _, p := range ask(t, st, capacity.Scenario{}).Curve[0].Points {
		if want := max(p.Nodes-3, 0); p.WithoutBlock != want || p.Blocks != min(p.Nodes+1, 4) {
			t.Errorf("with %d more nodes %d should have no block: %+v", p.Nodes, want, p)
		}
	}
}

// TestWindows: Calico assigns addresses to pods on Windows nodes only under strict
// affinity.
func TestWindows(t *testing.T) {
	st, strict := parse(t, "pool pods 10.0.0.0/24 size=26\nnode n1\n"), true
	q := capacity.Scenario{AddNodes: 1, NodeLabels: map[string]string{"kubernetes.io/os": "windows"}}
	if o := ask(t, st, q).Outcome; o.Fits || o.Refused != 1 || !strings.Contains(o.FirstRefusal.Reason, "Windows") {
		t.Errorf("it should not fit: %+v", o)
	}
	own := parse(t, "pool pods 10.0.0.0/24 size=26\nnode n1 windows\nblock 10.0.0.0/26 n1\naffinity 10.0.0.0/26 n1\n")
	if got := capacity.NewAllocator(own).Assign(capacity.Request{Node: "n1", Family: blocks.IPv4, Use: blocks.UseWorkload}); got.Addr.IsValid() {
		t.Errorf("a Windows node gets %s of its own block without strict affinity", got.Addr)
	}
	q.StrictAffinity, q.PodsPerNode = &strict, 60
	if o := ask(t, st, q).Outcome; !o.Fits || len(o.Nodes[0].Claimed) != 1 {
		t.Errorf("60 pods fit into a block of 64, of which Windows keeps 4 back: %+v", o)
	}
}

// clusterOf returns nodes with 30 pods each in blocks of the given size. Every other node
// has one more, empty block.
func clusterOf(release, pool string, nodes, bits int) *state.State {
	snapshot := &blocks.Snapshot{IPAM: blocks.DefaultIPAMConfig(), Cluster: blocks.Cluster{CalicoVersion: release, TakenAt: time.Unix(1e9, 0)}}
	const pods = 30
	size := 1 << (32 - bits)
	cidr := netip.MustParsePrefix(pool)
	snapshot.Pools = []blocks.Pool{{Meta: blocks.Meta{Name: "pods"}, CIDR: cidr, BlockSize: bits, Automatic: true, Uses: []blocks.Use{blocks.UseWorkload}}}
	addr := cidr.Addr()
	for i := range nodes {
		node := fmt.Sprintf("node-%04d", i)
		snapshot.Nodes = append(snapshot.Nodes, blocks.Node{Meta: blocks.Meta{Name: node}, Labels: map[string]string{"rack": fmt.Sprint(i % 40)}, Allocatable: blocks.Quantities{"pods": 110_000}})
		owner := blocks.Owner{Kind: blocks.HostOwner, Name: node}
		full := (pods + size - 1) / size
		for k := range full + i%2 {
			cidr := netip.PrefixFrom(addr, bits)
			block := blocks.Block{Meta: blocks.Meta{Name: blocks.BlockName(cidr)}, CIDR: cidr, Owner: owner}
			for o := range int32(size) {
				pod := k*size + int(o)
				if block.Ordinals = append(block.Ordinals, blocks.Free); k == full || pod >= pods {
					block.Unallocated = append(block.Unallocated, o)
				} else {
					name := fmt.Sprintf("pod-%d-%d", i, pod)
					block.Ordinals[o] = int32(len(block.Attributes))
					block.Attributes = append(block.Attributes, blocks.Attributes{Handle: name, HasHandle: true, Pod: name, Namespace: "shop", Node: node})
					snapshot.Workloads = append(snapshot.Workloads, &blocks.Workload{Meta: blocks.Meta{Name: name}, Namespace: "shop", Node: node, Phase: "Running", StatusIPs: []netip.Addr{addr}})
				}
				addr = addr.Next()
			}
			snapshot.Blocks = append(snapshot.Blocks, block)
			snapshot.Affinities = append(snapshot.Affinities, blocks.Affinity{Meta: blocks.Meta{Name: blocks.AffinityName(node, cidr)}, CIDR: cidr, Owner: owner, State: blocks.Confirmed})
		}
	}
	return state.New(snapshot, state.Options{})
}

// nearTheLimits are scenarios for 625 nodes with 30 pods each and 937 of 1,024 blocks, with the
// expected outcomes. They run out of blocks or addresses or exhaust the search for changes.
// [BenchmarkAsk] measures their time on 5,000 nodes.
var nearTheLimits = []struct {
	name, release string
	scenario      capacity.Scenario
	want          [3]int // nodes without a block, addresses borrowed, pods refused
	changes       int
}{
	{"62 nodes fit", "v3.31.0", capacity.Scenario{AddNodes: 62, PodsPerNode: 30}, [3]int{}, 0},
	{"125 nodes do not fit", "v3.31.0", capacity.Scenario{AddNodes: 125, PodsPerNode: 30}, [3]int{38, 1140, 0}, 3},
	{"125 nodes reclaim", "v3.32.1", capacity.Scenario{AddNodes: 125, PodsPerNode: 30}, [3]int{}, 0},
	{"37500 pods", "v3.31.0", capacity.Scenario{Pods: 37_500}, [3]int{0, 6145, 0}, 3},
}

func TestNearTheLimits(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes long")
	}
	for _, x := range nearTheLimits {
		t.Run(x.name, func(t *testing.T) {
			o := ask(t, clusterOf(x.release, "10.0.0.0/16", 625, 26), x.scenario).Outcome
			if got := [3]int{len(o.WithoutBlock), o.Borrowed, o.Refused}; got != x.want || len(o.Changes) != x.changes {
				t.Errorf("nodes without a block, borrowed and refused are %v, and should be %v; changes %+v", got, x.want, o.Changes)
			}
		})
	}
}

// BenchmarkAsk: 1,000 nodes with 30 pods each join 5,000 nodes, and do not fit.
func BenchmarkAsk(b *testing.B) {
	st := clusterOf("v3.31.0", "10.0.0.0/13", 5000, 26)
	for b.Loop() {
		answer, err := capacity.Ask(b.Context(), st, capacity.Scenario{AddNodes: 1000, PodsPerNode: 30})
		if err != nil || answer.Outcome.Fits || len(answer.Outcome.WithoutBlock) != 308 || len(answer.Outcome.Changes) == 0 {
			b.Fatalf("%v, %d without a block", err, len(answer.Outcome.WithoutBlock))
		}
	}
}

// TestUnlabelledAffinitiesAreNotSeen: Calico v3.31 and newer find a node's affinities by labels. An
// affinity without them neither provides a block nor counts against the limit.
func TestUnlabelledAffinitiesAreNotSeen(t *testing.T) {
	for version, sees := range map[string]bool{"v3.30.4": true, "v3.31.0": false} {
		a := capacity.NewAllocator(parse(t, "version "+version+"\nconfig strict max=1\npool pods 10.0.0.0/24\nnode n1\nblock 10.0.0.0/26 n1\naffinity 10.0.0.0/26 n1 unlabelled\nfill 10.0.0.0/26 64 n1\n"))
		got := a.Assign(capacity.Request{Node: "n1", Family: blocks.IPv4, Use: blocks.UseWorkload})
		if got.Claimed == sees || (got.Limit == capacity.LimitBlocksOfNode) != sees {
			t.Errorf("%s: %+v", version, got)
		}
	}
}

// TestNoNodeJoinsWithoutAutomaticBlocks: if automatic blocks are off, a new node gets none, however
// many are left.
func TestNoNodeJoinsWithoutAutomaticBlocks(t *testing.T) {
	for config, limit := range map[string]capacity.Limit{"": capacity.LimitBlocks, "config strict noauto\n": capacity.LimitNotAutomatic} {
		h := ask(t, parse(t, config+"pool pods 10.0.0.0/24\nnode n1\n"+owned("10.0.0.0/26", "n1", 1)), capacity.Scenario{}).Today[0]
		if h.NodesLimit != limit || h.Nodes.IsZero() != (config != "") {
			t.Errorf("%q: %s nodes can join, limited by %s", config, h.Nodes, h.NodesLimit)
		}
	}
}

// TestIdle: the unused addresses of nodes' blocks are idle, those of blocks without an owner are
// not. Under strict affinity the idle ones serve no other node.
func TestIdle(t *testing.T) {
	world := "pool pods 10.0.0.0/25 size=28\nnode n1\nnode n2\n" + owned("10.0.0.0/28", "n1", 10) + owned("10.0.0.16/28", "n2", 16) + "block 10.0.0.32/28 - age=1h\nuse 10.0.0.33 shop/a n1\n"
	for config, wasted := range map[string]int{"": 0, "config strict\n": 21} { // n2 claims a block for the next pod
		o := ask(t, parse(t, config+world), capacity.Scenario{Pods: 1}).Outcome
		if len(o.Pools) != 1 || o.Pools[0].Idle.String() != "21" || o.Pools[0].Wasted.String() != fmt.Sprint(wasted) {
			t.Errorf("%q: %+v, want 21 idle and %d wasted", config, o.Pools, wasted)
		}
	}
}
