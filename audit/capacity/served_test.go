package capacity_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit/capacity"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// drawnStates returns the states of the test data and the worlds of these tests, by name.
func drawnStates(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, text := range worlds {
		out[name] = text
		out[name+", a node more"] = text + "\nnode also\n"
		out[name+", pods wait"] = text + "\npod shop/w1 n1 phase=Pending\npod shop/w2 n1 phase=Pending\nnode also\npod shop/w3 also phase=Pending\n"
	}
	for _, pattern := range []string{"../checks/testdata/*/*.txt", "../checks/testdata/*.txt", "../../repair/planner/testdata/plans/*.txt"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("no states are %s (%v)", pattern, err)
		}
		for _, path := range paths {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range strings.Split("\n"+string(raw), "\n== ")[1:] {
				name, drawn, _ := strings.Cut(one, "\n")
				drawn, _, _ = strings.Cut(drawn, "-- ")
				out[filepath.Base(path)+", "+name] = drawn
			}
		}
	}
	return out
}

// advised returns the scenarios that fit according to the answer: q itself, or q with each
// of the proposed changes.
func advised(t *testing.T, st *state.State, q capacity.Scenario) (out []capacity.Scenario) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answer, err := capacity.Ask(ctx, st, q)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case answer.Outcome == nil:
		return nil
	case answer.Outcome.Fits:
		return []capacity.Scenario{q}
	}
	for _, c := range answer.Outcome.Changes {
		with, like := q, st.PoolByNameOrCIDR(c.Pool)
		n := numbers(t, c.Title)
		switch {
		case c.Kind == "max-blocks":
			with.MaxBlocks = &n[1]
		case like == nil:
			continue
		case c.Kind == "block-size":
			with.BlockSizes = []capacity.BlockSize{{Pool: c.Pool, Bits: n[len(n)-1]}}
		default:
			bits, pools := n[0], 1
			if c.Kind == "pools" && len(n) > 1 && strings.HasPrefix(c.Title, "add "+strconv.Itoa(n[0])) {
				bits, pools = n[1], n[0]
			}
			free := netip.MustParseAddr("240.0.0.0")
			if like.Family() == blocks.IPv6 {
				free = netip.MustParseAddr("fdfe::")
			}
			selector := like.NodeSelector
			if strings.HasSuffix(c.Title, ", for all nodes") {
				selector = ""
			}
			for range pools {
				p := netip.PrefixFrom(free, bits)
				with.AddPools = append(with.AddPools, capacity.NewPool{CIDR: p, BlockSize: like.BlockSize, NodeSelector: selector})
				free = last(p).Next()
			}
		}
		out = append(out, with)
	}
	return out
}

func last(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for i := p.Bits(); i < len(bytes)*8; i++ {
		bytes[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

var number = regexp.MustCompile(`\d+`)

// numbers returns the numbers in a title, ignoring names of pools.
func numbers(t *testing.T, title string) (out []int) {
	t.Helper()
	title, _, _ = strings.Cut(title, " (")
	title, _, _ = strings.Cut(title, " like ")
	if _, rest, ok := strings.Cut(title, "with blocks of "); ok {
		title = rest
	}
	for _, s := range number.FindAllString(title, -1) {
		n, _ := strconv.Atoi(s)
		out = append(out, n)
	}
	if len(out) == 0 {
		t.Fatalf("%q has no number", title)
	}
	return out
}

// needed are requests of the demand. A waiting pod keeps its addresses. A node without a
// block releases them and keeps the block.
type needed struct {
	of   []capacity.Request
	keep bool
}

// demand returns the requests of today's demand: the addresses of each waiting pod, and of
// the next pod of each node without a block.
func demand(st *state.State) (out []needed) {
	for _, h := range st.NodeStates {
		if h.Node == nil {
			continue
		}
		ask := func(f blocks.Family, w *blocks.Workload) capacity.Request {
			q := capacity.Request{Node: h.Name, Family: f, Use: blocks.UseWorkload}
			if w != nil {
				q.Namespace = st.Namespace(w.Namespace)
				asked, _ := st.RequestedPools(w, f)
				for _, p := range asked {
					q.Pools = append(q.Pools, p.CIDR)
				}
			}
			return q
		}
		pods := map[*blocks.Workload][]capacity.Request{}
		for _, n := range h.BlockStatus {
			if n.NoBlock() && h.Schedulable {
				out = append(out, needed{[]capacity.Request{ask(n.Family, nil)}, false})
			}
			for _, w := range n.Waiting {
				if len(st.PodPools(w, h.Node, n.Family)) > 0 {
					pods[w] = append(pods[w], ask(n.Family, w))
				}
			}
		}
		for _, w := range h.Workloads {
			if len(pods[w]) > 0 {
				out = append(out, needed{pods[w], true})
			}
		}
	}
	return out
}

// TestTodayIsServedFirst: a scenario that fits, with or without a proposed change, also
// fits after today's demand was served in any order.
func TestTodayIsServedFirst(t *testing.T) {
	r, tried, waited := testenv.Rand(t), 0, 0
	drawn := drawnStates(t)
	names := slices.Sorted(maps.Keys(drawn))
	for _, name := range testenv.Sample(t, len(names)/3, names) {
		text := drawn[name]
		snapshot, err := statedsl.Parse(text)
		if err != nil {
			continue // cases about gaps
		}
		st := state.New(snapshot, state.Options{})
		for _, q := range []capacity.Scenario{{AddNodes: 2, PodsPerNode: 3}, {AddNodes: 1}, {Pods: 7}, {Pods: 1}} {
			for _, with := range advised(t, st, q) {
				first := demand(st)
				for order := range 5 {
					if order > 0 {
						r.Shuffle(len(first), func(i, j int) { first[i], first[j] = first[j], first[i] })
					}
					if why := played(t, st, with, first); why != "" {
						t.Errorf("%s\n%s\nif %+v: %s, after %v", name, text, with, why, first)
						break
					}
				}
				if tried++; len(first) > 0 {
					waited++
				}
			}
		}
	}
	if tried < 150 || waited < 30 || testenv.EveryCase() && (tried < 500 || waited < 100) {
		t.Errorf("only %d scenarios fit, %d of them with something to serve first", tried, waited)
	}
}

// played plays a scenario after serving the demand, and returns a description of a misfit.
func played(t *testing.T, st *state.State, q capacity.Scenario, first []needed) string {
	t.Helper()
	a, pods, err := capacity.Play(st, q)
	if err != nil {
		t.Fatal(err)
	}
	assign := func(r capacity.Request) capacity.Assigned {
		got := a.Assign(r)
		if got.Again {
			got = a.Assign(r)
		}
		return got
	}
	for _, pod := range first {
		for _, r := range pod.of {
			if got := assign(r); !pod.keep && got.Addr.IsValid() {
				a.Release(got.Block, got.Addr)
			}
		}
	}
	for i, pod := range pods {
		for _, r := range pod {
			if got := assign(r); !got.Own(r.Node) {
				return fmt.Sprintf("pod %d, on %s, gets %v of %q (%s)", i+1, r.Node, got.Addr, got.Owner, got.Reason)
			}
		}
	}
	return ""
}

// TestManyWait: 150 pods wait on 50 nodes without a block.
func TestManyWait(t *testing.T) {
	text := "pool pods 10.0.0.0/24 size=26\nnode n\n" + owned("10.0.0.0/26", "n", 64) + owned("10.0.0.64/26", "n", 64) + owned("10.0.0.128/26", "n", 64) + owned("10.0.0.192/26", "n", 5)
	for i := range 50 {
		text += fmt.Sprintf("node w%d\n", i)
		for j := range 3 {
			text += fmt.Sprintf("pod shop/p%d-%d w%d phase=Pending\n", i, j, i)
		}
	}
	st := parse(t, text)
	for _, q := range []capacity.Scenario{{}, {Pods: 1}, {AddNodes: 1}} {
		a := ask(t, st, q)
		if d := a.Demand; d.Pods != 150 || d.Nodes != 50 || d.PodsLeft != 150 || len(d.NodesLeft) != 50 || d.First == nil || d.First.Limit == capacity.LimitNone {
			t.Errorf("%+v: the demand is %+v", q, d)
		}
		if h := a.Today[0]; !h.Nodes.IsZero() {
			t.Errorf("%s nodes can join", h.Nodes)
		}
		if q.IsZero() {
			continue
		}
		if a.Outcome.Fits || !slices.ContainsFunc(a.Outcome.Changes, func(c capacity.Change) bool {
			return strings.HasPrefix(c.Title, "add a pool of /20 or larger (64 blocks of /26)")
		}) {
			t.Errorf("%+v: 50 or 51 blocks are needed: %+v", q, a.Outcome)
		}
	}
	// If there is room for them, the headroom is what remains.
	a := ask(t, parse(t, strings.ReplaceAll(text, "10.0.0.0/24 size", "10.0.0.0/18 size")), capacity.Scenario{})
	if d := a.Demand; d.Pods != 150 || d.Nodes != 50 || d.PodsLeft != 0 || len(d.NodesLeft) != 0 || d.First != nil {
		t.Errorf("all are served: %+v", d)
	}
	if h := a.Today[0]; h.Blocks.String() != "252" || h.Nodes.String() != "202" {
		t.Errorf("of 252 blocks 50 are for nodes that exist: %+v", h)
	}
}

// TestWaitingWithoutPool: waiting pods that no pool serves are left over.
func TestWaitingWithoutPool(t *testing.T) {
	a := ask(t, parse(t, "node n1\npod shop/a n1 phase=Pending\n"), capacity.Scenario{Pods: 1})
	if d := a.Demand; d.Pods != 1 || d.PodsLeft != 1 || d.First == nil || d.First.Waits != "shop/a" || d.First.Limit != capacity.LimitSelector || a.Outcome.Fits {
		t.Errorf("the pod gets no address: %+v", d)
	}
}
