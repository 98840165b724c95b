package planner

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit/capacity"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/law"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
)

// checkLaw checks that a plan leaves no node worse off (see package law). For a plan that moves no
// pods, it checks this after each step.
func checkLaw(t *testing.T, st *state.State, p *repair.Plan) {
	t.Helper()
	if len(p.Steps) == 0 {
		return
	}
	before := law.New(st)
	for _, n := range prefixes(p) {
		done := *p
		done.Steps = p.Steps[:n]
		for _, worse := range before.Worse(afterwards(st, done.Steps), &done) {
			t.Errorf("after %d of %d steps %v, %s", n, len(p.Steps), stepIDs(p), worse)
		}
	}
	checkMoved(t, st, p)
}

// prefixes returns the numbers of steps after which the law must hold.
func prefixes(p *repair.Plan) (out []int) {
	if !slices.ContainsFunc(p.Steps, func(s repair.Step) bool { return s.Kind == repair.EvictPod || s.Group() != "" }) {
		for n := 1; n < len(p.Steps); n++ {
			if p.Steps[n].Kind != p.Steps[n-1].Kind || !repeats(p.Steps[n-1].Kind) {
				out = append(out, n)
			}
		}
	}
	return append(out, len(p.Steps))
}

// repeats reports whether steps of a kind concern no block, affinity or setting. The law is checked
// only after the last of several such steps.
func repeats(k repair.Kind) bool {
	return k == repair.DeleteHandle || k == repair.CreateHandle || k == repair.FixHandleCount ||
		k == repair.ReleaseWhereabouts || k == repair.DeleteWhereaboutsReservation || k == repair.RestoreWhereabouts
}

// checkMoved checks that each pod that a plan moves gets an address of its new node's own blocks in
// every family that it had, wherever the scheduler may put it while the plan is applied. It also
// checks that a block is empty once its pods have moved.
func checkMoved(t *testing.T, st *state.State, p *repair.Plan) {
	t.Helper()
	last := -1
	for i := range p.Steps {
		if p.Steps[i].Kind == repair.EvictPod {
			last = i
		}
	}
	if last < 0 {
		return
	}
	w := law.New(afterwards(st, p.Steps[:last+1]))
	checkPlaces(t, w, st, p)
	checkScheduled(t, w.State, st, p)
	for i := range p.Steps {
		if b := repair.BlockAt(w.State, p.Steps[i].Target.CIDR); p.Steps[i].Kind == repair.ReleaseBlock && b != nil && b.Used > 0 {
			t.Errorf("%s: the block holds %d addresses once its pods have moved", p.Steps[i].ID, b.Used)
		}
		pod := evicted(st, &p.Steps[i])
		if pod == nil {
			continue
		}
		for _, h := range w.NodeStates {
			if h.Node == nil || !mayRun(pod, h.Node) {
				continue
			}
			a := capacity.NewAllocator(w.State)
			for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
				if !pod.HasFamily(f) {
					continue
				}
				if got, own := w.OwnAddress(a, pod, h.Name, f); !own {
					t.Errorf("%s: on %s, where the scheduler may put it, the pod gets no %s address of the node's own: %+v", p.Steps[i].ID, h.Name, f, got)
				}
			}
		}
	}
}

// checkPlaces checks that the nodes have enough addresses of their own for all pods that a plan
// moves together, and admit as many pods. Pods with the fewest possible nodes start first. If a node would have to claim a
// block, the next eviction waits for that instead (WouldBorrow in package moves).
func checkPlaces(t *testing.T, w *law.Witness, st *state.State, p *repair.Plan) {
	t.Helper()
	family := func(pod *blocks.Workload) blocks.Family {
		if pod.HasFamily(blocks.IPv6) {
			return blocks.IPv6
		}
		return blocks.IPv4
	}
	places := map[*blocks.Workload][]string{}
	for i := range p.Steps {
		pod := evicted(st, &p.Steps[i])
		if pod == nil || pod.Controller == nil || pod.HasFamily(blocks.IPv4) && pod.HasFamily(blocks.IPv6) {
			continue // a pod of both families needs both on one node
		}
		for _, h := range w.NodeStates {
			if h.Node == nil || !mayRun(pod, h.Node) {
				continue
			}
			if got, _ := w.OwnAddress(capacity.NewAllocator(w.State), pod, h.Name, family(pod)); got.Claimed {
				return
			}
			places[pod] = append(places[pod], h.Name)
		}
	}
	a := capacity.NewAllocator(w.State)
	admits := map[string]int{} // how many pods of other nodes fit on each node
	for _, h := range w.NodeStates {
		admits[h.Name] = 1 << 30
		if h.Node != nil && h.Node.AllocatablePods() > 0 && h.Node.AllocatablePods() >= bound(st, h.Name) {
			admits[h.Name] = h.Node.AllocatablePods() - bound(w.State, h.Name)
		}
	}
	for _, pod := range slices.SortedFunc(maps.Keys(places), func(x, y *blocks.Workload) int {
		return cmp.Or(cmp.Compare(len(places[x]), len(places[y])), cmp.Compare(x.FullName(), y.FullName()))
	}) {
		finds := func(node string) bool {
			if admits[node] <= 0 {
				return false
			}
			got, own := w.OwnAddress(a, pod, node, family(pod))
			if own {
				admits[node]--
			}
			if !own && got.Addr.IsValid() {
				a.Release(got.Block, got.Addr) // it would borrow there, so it starts elsewhere
			}
			return own
		}
		if !slices.ContainsFunc(places[pod], finds) {
			t.Errorf("pods that move use all addresses, and none is left for %s on %v", pod.FullName(), places[pod])
		}
	}
}

// scheduled adds to a random state what the scheduler considers: resources and taints of the nodes, requests and
// other rules of the pods, and pods that wait for a node.
func scheduled(draw func(*rand.Rand) string) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		lines := strings.Split(draw(r), "\n")
		rules := []string{"hostport", "undecided=resource-claims", "repels=app=web", "unread", "label=app=web", "requests=gpu=1"}
		for i, line := range lines {
			switch kind, _, _ := strings.Cut(line, " "); kind {
			case "node":
				if lines[i] += fmt.Sprintf(" allocatable=cpu=%d", 4+r.IntN(12)); r.IntN(8) == 0 {
					lines[i] += " taint=" + []string{"maintenance", "node.kubernetes.io/disk-pressure", "node.kubernetes.io/network-unavailable"}[r.IntN(3)]
				}
			case "use", "pod", "fill":
				if lines[i] += fmt.Sprintf(" requests=cpu=%d", r.IntN(4)); r.IntN(12) == 0 {
					lines[i] += " " + rules[r.IntN(len(rules))]
				}
			}
		}
		if r.IntN(8) == 0 {
			lines = append(lines, fmt.Sprintf("pod shop/waits - phase=Pending requests=cpu=%d", 1+r.IntN(9)))
		}
		return strings.Join(lines, "\n")
	}
}

// checkScheduled checks that the scheduler finds a node for each pod that a plan moves: by rules that
// the plan evaluates, with room for its requests. A pod that waits for a node gets the room that the
// moved pods leave behind.
func checkScheduled(t *testing.T, after, st *state.State, p *repair.Plan) {
	t.Helper()
	left := map[string]blocks.Quantities{}
	for i := range st.Nodes {
		n, from := &st.Nodes[i], after
		left[n.Name] = maps.Clone(n.Allocatable)
		if slices.ContainsFunc(st.Workloads, func(w *blocks.Workload) bool { return w.Node == "" && !w.Ended() && w.Placement.Matcher()(n) }) {
			from = st
		}
		for _, w := range from.Workloads {
			if w.Node == n.Name && !w.Ended() && w.Scheduling != nil {
				for name, q := range w.Scheduling.Requests {
					left[n.Name][name] -= q
				}
			}
		}
	}
	for i := range p.Steps {
		pod := evicted(st, &p.Steps[i])
		if pod == nil || pod.Controller == nil {
			continue
		}
		x := pod.Scheduling
		if x == nil || x.Undecided != "" || x.HostPorts && !pod.OfDaemonSet() {
			t.Errorf("pod %s moves, and may find no node: %+v", pod.FullName(), x)
			continue
		}
		for _, w := range st.Workloads {
			if w.Scheduling != nil && slices.ContainsFunc(w.Scheduling.Repels, func(r blocks.PodTerm) bool { return r.Matcher(w.Namespace)(pod) }) {
				t.Errorf("pod %s moves, which %s repels", pod.FullName(), w.FullName())
			}
		}
		if !slices.ContainsFunc(after.Nodes, func(n blocks.Node) bool {
			if !mayRun(pod, &n) || !left[n.Name].Holds(x.Requests) {
				return false
			}
			for name, q := range x.Requests {
				left[n.Name][name] -= q
			}
			return true
		}) {
			t.Errorf("no node has room for pod %s, which moves and requests %v: %v", pod.FullName(), x.Requests, left)
		}
	}
}

// bound counts the pods on a node that have not ended.
func bound(st *state.State, node string) (n int) {
	for _, pod := range st.Workloads {
		if pod.Node == node && !pod.Ended() {
			n++
		}
	}
	return n
}

// checkReceivers checks that each node that MayFill does not name has addresses of its own for all
// pods of the plan that may start there.
func checkReceivers(t *testing.T, st *state.State, p *repair.Plan) {
	t.Helper()
	last, moved := 0, []*blocks.Workload{}
	for i := range p.Steps {
		if pod := evicted(st, &p.Steps[i]); pod != nil {
			last, moved = i+1, append(moved, pod)
		}
	}
	if last == 0 {
		return
	}
	after := law.New(afterwards(st, p.Steps[:last]))
	for _, h := range after.NodeStates {
		if h.Node == nil || slices.Contains(p.MayFill, h.Name) {
			continue
		}
		a := capacity.NewAllocator(after.State)
		for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
			for _, pod := range moved {
				if pod.Controller == nil || !pod.HasFamily(f) || !mayRun(pod, h.Node) {
					continue
				}
				if got, own := after.OwnAddress(a, pod, h.Name, f); !own {
					t.Errorf("%s is not named as one that may fill up, and pod %s gets no %s address of its own there: %+v", h.Name, pod.FullName(), f, got)
				}
			}
		}
	}
}

// evicted returns the pod that a step evicts; nil for other steps.
func evicted(st *state.State, s *repair.Step) *blocks.Workload {
	if s.Kind != repair.EvictPod {
		return nil
	}
	for _, w := range st.Workloads {
		if w.FullName() == s.Guard(repair.GuardPod) {
			return w
		}
	}
	return nil
}

// mayRun reports whether an evicted pod may restart on a node, where its node selector and
// tolerations allow it. A DaemonSet's pod restarts on its own node only, and tolerates the taints of
// the node life cycle, except that of a node without a network
// (k8s.io/kubernetes/pkg/controller/daemon/util, AddOrUpdateDaemonPodTolerations).
func mayRun(w *blocks.Workload, n *blocks.Node) bool {
	if w.OfDaemonSet() {
		return n.Name == w.Node && w.Placement.Matcher()(n) && !slices.ContainsFunc(n.Taints, func(t blocks.Taint) bool { return t.Key == blocks.TaintNetwork })
	}
	taints := slices.Clone(n.Taints)
	for key, is := range map[string]bool{"unschedulable": n.Unschedulable, "not-ready": n.NotReady, "out-of-service": n.OutOfService} {
		if is {
			taints = append(taints, blocks.Taint{Key: blocks.LifeCycleTaints + key, Effect: "NoSchedule"})
		}
	}
	for _, taint := range taints {
		if w.Placement == nil || !slices.ContainsFunc(w.Placement.Tolerates, func(x blocks.Toleration) bool { return x.Tolerates(taint) }) {
			return false
		}
	}
	untainted := *n
	untainted.Taints = nil
	return w.Placement.Matcher()(&untainted)
}

// lawRequests returns the requests whose plans must keep the law: each kind of repair alone, all
// together, and those with a consent or a value.
func lawRequests() map[string]repair.Request {
	on, off := true, false
	out := map[string]repair.Request{"strict on": {StrictAffinity: &on}, "strict off": {StrictAffinity: &off}}
	all := repair.Request{CordonFull: true, EvictSingletons: true, WithoutHostEvidence: true, StrictAffinity: &on}
	for _, q := range repair.Requests {
		if q.Field == nil {
			continue
		}
		alone := repair.Request{CordonFull: true, EvictSingletons: true, WithoutHostEvidence: true}
		*q.Field(&alone), *q.Field(&all) = true, true
		out[q.Flag] = alone
	}
	still := everything
	still.WithoutHostEvidence = true
	last := still
	last.LastBlocks = true
	out["all"], out["all but moves"], out["all but moves, last blocks"] = all, still, last
	out["last blocks"] = repair.Request{EmptyBlocks: true, LastBlocks: true}
	return out
}

// checkLaws makes the plans of a state and checks each against the law. It returns the number of
// planned steps by kind.
func checkLaws(t *testing.T, st *state.State, requests map[string]repair.Request) map[repair.Kind]int {
	t.Helper()
	steps := map[repair.Kind]int{}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		req := requests[name]
		p := Build(st, req)
		for i := range p.Steps {
			steps[p.Steps[i].Kind]++
		}
		checkReceivers(t, st, p)
		if checkLaw(t, st, p); t.Failed() {
			t.Logf("the request is %q", name)
			break
		}
	}
	return steps
}

// TestLawInFixtures checks every plan of every state in this program's tests, and of every example.
func TestLawInFixtures(t *testing.T) {
	for _, c := range fixtures(t) {
		name, text, _ := strings.Cut(c, "\n")
		t.Run(name, func(t *testing.T) {
			checkLaws(t, parseState(t, text, 0), lawRequests())
		})
	}
}

// TestLawInFixturesWithCooldown checks the plans that move pods with a cooldown of released
// addresses: no other pod can use an address immediately after a moved pod has released it.
func TestLawInFixturesWithCooldown(t *testing.T) {
	requests, moved := lawRequests(), 0
	maps.DeleteFunc(requests, func(name string, _ repair.Request) bool { return name != "rehome" && name != "consolidate" })
	for _, c := range fixtures(t) {
		name, text, _ := strings.Cut(c, "\n")
		st := parseState(t, text, 0)
		st.Snapshot.IPAM.Cooldown = time.Minute
		t.Run(name, func(t *testing.T) {
			moved += checkLaws(t, state.New(st.Snapshot, state.Options{Grace: 0}), requests)[repair.EvictPod]
		})
	}
	if moved < 20 {
		t.Errorf("only %d pods are moved", moved)
	}
}

// fixtures returns the states in this program's tests and of its examples, each after a line with its
// name.
func fixtures(t *testing.T) (cases []string) {
	t.Helper()
	files, err := filepath.Glob("../../*/*/testdata/*/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../../*/*/testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, more...) {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range strings.Split("\n"+string(raw), "\n== ")[1:] {
			name, text, _ := strings.Cut(text, "\n")
			text, _, _ = strings.Cut("\n"+text, "\n-- ")
			if _, err := statedsl.Parse(text); err == nil && strings.Contains(text, "\npool ") {
				cases = append(cases, filepath.Base(file)+"/"+name+"\n"+text)
			}
		}
	}
	if len(cases) < 500 {
		t.Fatalf("only %d states were found", len(cases))
	}
	return cases
}

// TestLawInRandomStates checks the plans of random states of each generator. By default, it tries a
// sample of them.
func TestLawInRandomStates(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes long")
	}
	everything := func(*rand.Rand) map[string]repair.Request { return lawRequests() }
	checkRandomStates(t, 2000, 100, statedsl.Tight, everything)
	checkRandomStates(t, 1500, 75, statedsl.Rare, narrowedRequests)
	checkRandomStates(t, 6000, 150, statedsl.Limited, everything)
}

// TestLawOfScheduledPods checks the plans that move pods in random states with resources and rules of
// the scheduler.
func TestLawOfScheduledPods(t *testing.T) {
	requests, moved := lawRequests(), 0
	maps.DeleteFunc(requests, func(name string, _ repair.Request) bool { return name != "rehome" && name != "consolidate" })
	seeds := make([]uint64, 2000)
	for i := range seeds {
		seeds[i] = uint64(i)
	}
	for _, i := range testenv.Sample(t, 100, seeds) {
		text := scheduled([]func(*rand.Rand) string{statedsl.Rare, statedsl.Tight, statedsl.Limited}[i%3])(rand.New(rand.NewPCG(1, i)))
		if !t.Run(fmt.Sprint(i), func(t *testing.T) { moved += checkLaws(t, parseState(t, text, 0), requests)[repair.EvictPod] }) {
			t.Logf("state %d:\n%s", i, text)
		}
	}
	if moved < 10 {
		t.Errorf("only %d pods are moved", moved)
	}
}

// checkRandomStates checks the plans of a sample of n random states.
func checkRandomStates(t *testing.T, n, sample int, draw func(*rand.Rand) string, requests func(*rand.Rand) map[string]repair.Request) {
	t.Helper()
	seeds := make([]uint64, n)
	for i := range seeds {
		seeds[i] = uint64(i)
	}
	seeds = testenv.Sample(t, sample, seeds)
	steps := map[repair.Kind]int{}
	for _, i := range seeds {
		rnd := rand.New(rand.NewPCG(1, i))
		text := draw(rnd)
		ok := t.Run(fmt.Sprintf("%d of %d", i, n), func(t *testing.T) {
			for kind, n := range checkLaws(t, parseState(t, text, 0), requests(rnd)) {
				steps[kind] += n
			}
		})
		if !ok {
			t.Logf("state %d of %d:\n%s", i, n, text)
		}
	}
	for _, k := range []repair.Kind{repair.ReleaseBlock, repair.DisownBlock, repair.DeleteAffinity, repair.RestoreAffinity, repair.FinishDelete, repair.RecordIP, repair.ReleaseIP, repair.SetStrictAffinity} {
		if steps[k] < len(seeds)/50 && !t.Failed() {
			t.Errorf("%s is planned %d times only", k, steps[k])
		}
	}
}

// narrowedRequests returns the requests whose plans must keep the law, most with one more limit: to a
// pool, a node or a number of steps, or with machines that are known to be off.
func narrowedRequests(rnd *rand.Rand) map[string]repair.Request {
	out := lawRequests()
	for _, name := range slices.Sorted(maps.Keys(out)) {
		req := out[name]
		switch rnd.IntN(6) {
		case 0:
			req.Pools = []string{[]string{"first", "second", "six", "third"}[rnd.IntN(4)]}
		case 1:
			req.Nodes = []string{fmt.Sprintf("n%d", rnd.IntN(4))}
		case 2:
			req.MaxSteps = 1 + rnd.IntN(3)
		case 3:
			req.Terminated = []string{"n0", "n1", "gone"}
		case 4:
			req.LastBlocks = true
		}
		out[name] = req
	}
	return out
}

// TestLawInRareStates checks states that once broke the law, reduced to the essentials.
func TestLawInRareStates(t *testing.T) {
	for name, text := range map[string]string{
		"the CNI configuration names the first pool, so its pods get no address of the second": "node n1\nnode n2\nnamespace red pools=second\npool first 10.0.0.0/29 size=30\n" +
			"pool second 10.0.1.0/29 size=30\nblock 10.0.0.0/30 n1\naffinity 10.0.0.0/30 n1\nfill 10.0.0.0/30 4 n1\nblock 10.0.0.4/30 n1\naffinity 10.0.0.4/30 n1\n" +
			"block 10.0.1.0/30 n1\naffinity 10.0.1.0/30 n1\nuse 10.0.1.0 red/x n1\n",
		"the only other node with addresses admits no more pods": "budget none\nnode a pods=8\nnode b pods=3\nnode new pods=9\npool pods 10.0.0.0/28 size=30\n" +
			"block 10.0.0.0/30 a\naffinity 10.0.0.0/30 a\nfill 10.0.0.0/30 3 a of=ReplicaSet/web ready\nblock 10.0.0.4/30 a\naffinity 10.0.0.4/30 a\nuse 10.0.0.4 shop/x a of=ReplicaSet/web ready\n" +
			"use 10.0.0.5 shop/y a of=ReplicaSet/web ready\nblock 10.0.0.8/30 b\naffinity 10.0.0.8/30 b\nuse 10.0.0.8 shop/z b of=ReplicaSet/api ready noevict\nuse 10.0.0.9 shop/u b of=ReplicaSet/api ready\n" +
			"block 10.0.0.12/30 b\naffinity 10.0.0.12/30 b\nuse 10.0.0.12 shop/v b of=ReplicaSet/api ready noevict\npod shop/w new phase=Pending of=ReplicaSet/web\n",
		"v3.32 may take a node's empty block, and its affinity without a block makes another": "version v3.32.1\nnode n0\nnode n1\nnode n2\npool first 10.0.0.0/30 size=31\n" +
			"pool second 10.0.1.0/30 size=30\nblock 10.0.0.0/32 n2\nuse 10.0.0.0 blue/p1 n0 pools=second\nblock 10.0.0.2/32 n0\nuse 10.0.0.2 bare/p3 n0\naffinity 10.0.0.3/32 n1\n" +
			"block 10.0.1.0/30 n1\naffinity 10.0.1.0/30 n1\n",
		"v3.32 may take a node's empty blocks, and it is at its limit with the rest": "version v3.32.1\nconfig strict max=1\nnode n0\nnode n1\nnode n2\nnode n3\npool six fd00::/126 size=128\n" +
			"block fd00::/128 n0\naffinity fd00::/128 n0\nuse fd00:: blue/p2 n0\nblock fd00::1/128 n3\naffinity fd00::1/128 n3\n" +
			"block fd00::2/128 n0\naffinity fd00::2/128 n0\nblock fd00::3/128 n0\naffinity fd00::3/128 n0\n",
		"an affinity's block is marked deleted, and Calico creates it anew though addresses are recorded": "config strict max=1\nnamespace red label=team=red\nnode n1\nnode n6\nnode n7\n" +
			"pool second 10.0.1.0/29 size=32 namespaces=team=='red'\nreserve 10.0.1.0/30\naffinity 10.0.1.1/32 n1\npod red/p13 n1\nblock 10.0.1.4/32 n0 deleted\naffinity 10.0.1.4/32 n1\nalloc 10.0.1.4\nblock 10.0.1.6/32 n0\n",
		"v3.32 may take a node's empty blocks, and it is at its limit with one that records nothing": "version v3.32.1\nconfig strict max=1\nnode n0\nnode n1\nnode n2\nnode n3\n" +
			"pool six fd00::/126 size=128\nblock fd00::/128 n0\naffinity fd00::/128 n0\npod blue/p2 n0 fd00::\nblock fd00::1/128 n3\naffinity fd00::1/128 n3\nblock fd00::2/128 n0\naffinity fd00::2/128 n0\n" +
			"block fd00::3/128 n0\naffinity fd00::3/128 n0\naffinity 10.0.9.0/30 gone\n",
		"reserved blocks keep a node from the last blocks": "config max=2\nnode n0\nnode n2\npool second 10.0.1.0/28 size=30\nreserve 10.0.1.0/29\nblock 10.0.1.0/30 n2\naffinity 10.0.1.0/30 n2\n" +
			"block 10.0.1.4/30 n2\naffinity 10.0.1.4/30 n2\nblock 10.0.1.8/30 gone\n",
		"a node that gets an address back releases no block of a pool that does not select it": "node n0\nnode n1 label=zone=b\nnode n2\npool first 10.0.0.0/30 size=31 nodes=zone!='b'\npool second 10.0.1.0/27 size=29\n" +
			"block 10.0.0.2/31 n1\naffinity 10.0.0.2/31 n1\nblock 10.0.1.24/29 n1\nfill 10.0.1.24/29 7 n1\nalloc 10.0.1.31 pod=red/p9 handle=k8s-pod-network.c9\npod bare/p24 n0 pools=first\n",
		"without an affinity, a node finds its block of the pool's size, not the other": "node n1\nnode n2\nnode n3\nnode n4\npool first 10.0.0.0/28 size=29\npool second 10.0.1.0/28 size=28\n" +
			"block 10.0.0.8/29 n2\nblock 10.0.1.8/29 n2\nuse 10.0.1.10 shop/p10 n2\naffinity fd00::3/128 n0\n",
		"a node gives its last block away, and could claim one of the last blocks of another pool": "config strict\nnode n0\nnode n1\nnode n3\npool first 10.0.0.0/29 size=30\npool third 10.0.2.0/31 size=31\n" +
			"block 10.0.2.0/31 n0\npod red/p14 n3 phase=Pending pools=third\naffinity 10.0.9.0/30 gone\n",
		"a pod asks for a pool that does not select its node, and takes its only address": "node n1\nnode n2 label=zone=b\npool first 10.0.0.0/32 size=32 nodes=zone!='b'\nblock 10.0.0.0/32 n0\n" +
			"pod shop/p8 n2 pools=first\naffinity 10.0.9.0/30 gone\n",
		"a block marked deleted records nothing, whatever its size": "node n0\nnode n3\npool first 10.0.0.0/30 size=30\npool six fd00::/125 size=125\n" +
			"pod blue/p1 n0 10.0.1.2,fd00::4\npod blue/p6 n3 10.0.2.3,fd00::6\nblock fd00::4/126 gone deleted\nalloc fd00::6\n",
		"Windows without strict affinity": "node n0\nnode n1 windows\npool first 10.0.0.0/27 size=30\nblock 10.0.0.0/30 n0\naffinity 10.0.0.0/30 n0\n" +
			"block 10.0.0.16/30 gone\naffinity 10.0.0.16/30 gone\nuse 10.0.0.19 bare/p8 n0 of=ReplicaSet/web ready\n",
		"restored affinities and a block limit": "config strict max=2\nnode n2\npool first 10.0.0.0/29 size=32\npool second 10.0.1.0/28\n" +
			"block 10.0.0.1/32 n2\nuse 10.0.0.1 blue/p2 n2\nblock 10.0.0.7/32 n2\nblock 10.0.1.12/30 n2\nfill 10.0.1.12/30 4 n2\n",
		"a Windows node's blocks have four addresses less": "config strict\nnode n0 windows\nnode n1\npool first 10.0.0.0/27 size=30\n" +
			"block 10.0.0.0/30 n1\naffinity 10.0.0.0/30 n1\nblock 10.0.0.16/30 gone\naffinity 10.0.0.16/30 gone\nuse 10.0.0.19 bare/p8 n1 of=ReplicaSet/web ready\n",
		"a node needs several blocks for the pods that may come": "node n0\nnode n1\npool first 10.0.0.0/29 size=32\nblock 10.0.0.0/32 -\nblock 10.0.0.1/32 n1\n" +
			"block 10.0.0.2/32 gone\nuse 10.0.0.2 bare/p2 n0 of=DaemonSet/log\nblock 10.0.0.3/32 n1\nblock 10.0.0.5/32 gone\nuse 10.0.0.5 bare/p4 n1 of=ReplicaSet/web\n" +
			"block 10.0.0.6/32 gone\nblock 10.0.0.7/32 gone\n",
		"a block without an affinity counts once its node uses it": "config strict max=1\nnode n0\npool first 10.0.0.0/28 size=30\nblock 10.0.0.0/30 n0\n" +
			"use 10.0.0.0 red/p1 n0\nuse 10.0.0.1 shop/p2 n0\nuse 10.0.0.2 bare/p3 n0\nblock 10.0.0.4/30 gone\nuse 10.0.0.4 bare/p4 n0 of=StatefulSet/db\n" +
			"block 10.0.0.12/30 gone\nuse 10.0.0.13 bare/p6 n0 of=DaemonSet/log\naffinity 10.0.2.8/29 gone\n",
		"a finished affinity counts towards the limit": "config strict max=1\nnode n2\npool first 10.0.0.0/28 size=31\nreserve 10.0.0.0/30\n" +
			"block 10.0.0.0/31 n2\naffinity 10.0.0.0/31 n2 deleted\nblock 10.0.0.4/31 gone\n",
		"addresses without a block count towards the limit": "config strict max=3\nnode n2\npool first 10.0.0.0/27 size=30\npool second 10.0.1.0/28 size=30\n" +
			"pod shop/p0 n2 10.0.0.8\npod shop/p1 n2 10.0.0.9\npod shop/p2 n2 10.0.0.10\npod shop/p3 n2 10.0.0.11\n" +
			"pod shop/p4 n2 10.0.0.28\npod shop/p5 n2 10.0.0.29\npod shop/p6 n2 10.0.0.30\npod shop/p7 n2 10.0.0.31\n" +
			"block 10.0.1.0/30 gone\nblock 10.0.1.12/30 n2\nfill 10.0.1.12/30 4 n2\n",
		"without its affinity a node would claim from another pool": "node n0\nnode n1\nnode n2\npool first 10.0.0.0/30 size=31\npool third 10.0.2.0/29 size=32\n" +
			"pod red/p2 n0 pools=first\naffinity 10.0.2.0/32 n1\nblock 10.0.2.1/32 gone\n",
		"v3.32 may take the block that a node keeps": "version v3.32.1\nnamespace red pools=second\nnode n0\nnode n1\nnode n2\nnode n3\n" +
			"pool second 10.0.1.0/30 size=31\npool third 10.0.2.0/28 size=29\nblock 10.0.0.0/31 gone\nuse 10.0.0.0 red/p1 n0\nblock 10.0.1.2/31 n3\naffinity 10.0.1.2/31 n3\n" +
			"block 10.0.2.0/29 n3\nblock 10.0.2.8/29 gone\n",
		"v3.32 may take the empty block of a node at its limit": "version v3.32.1\nconfig max=2\nnode n0\nnode n1\nnode n2\npool third 10.0.2.0/27 size=30\nblock 10.0.2.0/30 gone\n" +
			"block 10.0.2.4/30 n1\naffinity 10.0.2.4/30 n1\nblock 10.0.2.8/30 n1\nfill 10.0.2.8/30 4 n1\nblock 10.0.2.12/30 n1\nfill 10.0.2.12/30 4 n1\n" +
			"block 10.0.2.16/30 gone\nblock 10.0.2.20/30 n3\nblock 10.0.2.24/30 gone\n",
		"v3.32 may take a block that does not record its addresses": "version v3.32.1\nnode n0\npool first 10.0.0.0/31 size=31\nblock 10.0.0.0/31 n1\naffinity 10.0.0.0/31 n1\n" +
			"pod bare/p1 n1 10.0.0.0\nblock 10.0.1.12/30 gone\nuse 10.0.1.12 shop/p2 n0\nblock 10.0.0.2/31 gone\n",
		"a namespace asks for pools of which its pods ask for others": "config strict max=1\nnamespace red pools=second,first\nnode a\npool first 10.0.0.0/27 size=29\n" +
			"pool second 10.0.1.0/28 size=31 nodes=zone=='a'\nblock 10.0.1.0/31 a\nuse 10.0.1.0 red/x a pools=first\nuse 10.0.1.1 bare/y a\n" +
			"block 10.0.1.14/31 a\nuse 10.0.1.14 bare/v a\nuse 10.0.1.15 bare/w a\nblock 10.0.9.0/30 gone\n",
		"v3.32 may take a block that only borrowers use": "version v3.32.1\nbudget none\nnode n0\nnode n1\nnode n2\npool first 10.0.0.0/29 size=31\nblock 10.0.0.0/31 -\nalloc 10.0.0.0\n" +
			"block 10.0.0.2/31 gone\nuse 10.0.0.3 shop/p4 n0 phase=Succeeded\nblock 10.0.0.6/31 n1\naffinity 10.0.0.6/31 n1\nuse 10.0.0.6 bare/p5 n2\n",
		"v3.32 takes blocks last, and a node may own a block without an affinity": "version v3.32.1\nnode n0\nnode n2\nnode n3\nnode n4\npool first 10.0.0.0/28 size=30\npool second 10.0.1.0/29 size=29\n" +
			"block 10.0.0.0/30 n3\nblock 10.0.0.4/30 gone\naffinity 10.0.0.4/30 gone\nblock 10.0.0.8/30 gone\naffinity 10.0.0.8/30 gone\npod bare/p4 n3 10.0.0.12\nblock 10.0.1.0/29 n4\nblock 10.0.9.0/30 gone\n",
		"affinities to reserved blocks keep nodes at their limit": "config strict max=1\nnode a\nnode b\nnode c\nnode d\npool first 10.0.0.0/28 size=30\nreserve 10.0.0.0/29\n" +
			"reserve 10.0.0.8/30\naffinity 10.0.0.0/30 a\nblock 10.0.0.4/30 gone\naffinity 10.0.0.4/30 c\nblock 10.0.0.8/30 d deleted\naffinity 10.0.0.8/30 d\nblock 10.0.9.0/30 gone\n",
		"an address that a pod gives back has a cooldown": "config cooldown=60s\nbudget none\nnode a\nnode b\npool pods 10.0.0.0/29 size=30\nblock 10.0.0.0/30 a\naffinity 10.0.0.0/30 a\nfill 10.0.0.0/30 4 a\n" +
			"block 10.0.0.4/30 b\naffinity 10.0.0.4/30 b\nuse 10.0.0.4 shop/x b\nuse 10.0.0.5 shop/y a of=ReplicaSet/web ready\nuse 10.0.0.6 shop/z a of=ReplicaSet/web ready\n",
		"other nodes claim from a second pool, Windows nodes from any": "node n0\nnode n2 windows\npool first 10.0.0.0/28 size=29\npool second 10.0.1.0/26 size=29\n" +
			"block 10.0.0.0/29 gone\naffinity 10.0.0.0/29 gone\nblock 10.0.1.48/29 n0\naffinity 10.0.1.48/29 n0\nuse 10.0.1.53 bare/p22 n0 pools=first\nblock 10.0.9.0/30 gone\n",
		"a node that asks for one pool takes from two, once both have blocks": "version v3.32.1\nnode n0\nnode n1\npool first 10.0.0.0/29 size=30\npool second 10.0.1.0/30 size=30\n" +
			"block 10.0.0.0/30 gone\nuse 10.0.0.3 blue/p n0\nblock 10.0.0.4/30 gone\naffinity 10.0.0.4/30 gone\npod red/p n1 pools=second\nblock 10.0.9.0/30 gone\n",
		"a node at its limit has an affinity without a block, and another node would claim that slot": "version v3.30.1\nconfig strict max=1\nnode n2\nnode z\npool first 10.0.0.0/28 size=30\n" +
			"block 10.0.0.0/30 z\naffinity 10.0.0.0/30 z\nfill 10.0.0.0/30 4 z\naffinity 10.0.0.4/30 z\naffinity 10.0.0.8/30 n2\naffinity 10.0.9.0/30 gone\n",
		"a node that releases its empty block would claim that slot": "version v3.30.1\nconfig strict max=2\nnode a\nnode n2\npool first 10.0.0.0/27 size=30\nblock 10.0.0.0/30 a\naffinity 10.0.0.0/30 a\n" +
			"fill 10.0.0.0/30 4 a\nblock 10.0.0.4/30 a\naffinity 10.0.0.4/30 a\nblock 10.0.0.8/30 gone\nuse 10.0.0.8 shop/p1 n2 of=ReplicaSet/api ready\nblock 10.0.0.16/30 n2\naffinity 10.0.0.16/30 n2\n" +
			"fill 10.0.0.16/30 4 n2\naffinity 10.0.0.24/30 n2\nblock 10.0.0.28/30 n2\naffinity 10.0.0.28/30 n2\nfill 10.0.0.28/30 4 n2\naffinity 10.0.9.0/30 gone\n",
		"pods that move give back the addresses of a block that its node does not use": "version v3.32.1\nconfig max=1\nbudget none\nnode a\nnode n2\npool first 10.0.0.0/28 size=30\nblock 10.0.0.0/30 n2\n" +
			"use 10.0.0.0 shop/p1 n2 of=ReplicaSet/api ready\nuse 10.0.0.1 shop/p2 a of=ReplicaSet/api ready\nblock 10.0.0.4/30 n2\naffinity 10.0.0.4/30 n2\nuse 10.0.0.4 shop/p3 n2 of=ReplicaSet/db ready\n" +
			"use 10.0.0.5 shop/p4 a of=ReplicaSet/web ready\nblock 10.0.0.8/30 a\naffinity 10.0.0.8/30 a\nfill 10.0.0.8/30 4 a\nblock 10.0.0.12/30 gone\nuse 10.0.0.12 shop/p5 n2 of=ReplicaSet/db ready\n" +
			"use 10.0.0.13 shop/p6 a of=ReplicaSet/db ready\naffinity 10.0.9.0/30 gone\n",
		"a node admits fewer pods than give it addresses back": "version v3.30.1\nconfig max=1\nbudget none\nnode a\nnode n2 pods=4\npool first 10.0.0.0/27 size=30\nblock 10.0.0.8/30 n2\naffinity 10.0.0.8/30 n2\n" +
			"use 10.0.0.8 shop/p1 n2 of=ReplicaSet/web ready\nuse 10.0.0.9 shop/p2 n2 of=ReplicaSet/web ready\nuse 10.0.0.10 shop/p3 a of=ReplicaSet/web ready\nblock 10.0.0.20/30 a\naffinity 10.0.0.20/30 a\n" +
			"fill 10.0.0.20/30 4 a\nblock 10.0.0.28/30 n2\naffinity 10.0.0.28/30 n2\nuse 10.0.0.28 shop/p4 a of=ReplicaSet/web ready\nuse 10.0.0.29 shop/p5 a of=ReplicaSet/api ready\n",
		"only borrowers use a node's two blocks, and v3.32 may take both": "version v3.32.1\nconfig max=1\nbudget none\nnode a\nnode n2\nnode z\nnode worker-4\nnode k\npool first 10.0.0.0/28 size=30\n" +
			"block 10.0.0.0/30 z\naffinity 10.0.0.0/30 z\nuse 10.0.0.0 shop/p1 a of=ReplicaSet/api ready\nuse 10.0.0.1 shop/p2 a of=ReplicaSet/api ready\nblock 10.0.0.4/30 z\naffinity 10.0.0.4/30 z\n" +
			"use 10.0.0.4 shop/p3 k of=ReplicaSet/web ready\nuse 10.0.0.5 shop/p4 a of=ReplicaSet/db ready\nuse 10.0.0.6 shop/p5 a of=ReplicaSet/db ready\nblock 10.0.0.8/30 gone\n" +
			"use 10.0.0.8 shop/p6 worker-4 of=ReplicaSet/db ready\nuse 10.0.0.9 shop/p7 n2 of=ReplicaSet/api ready\naffinity 10.0.0.12/30 n2\naffinity 10.0.9.0/30 gone\n",
		"nodes claim the smallest blocks first, up to their limit": "config max=2\nbudget none\nnode n0\nnode n1\npool first 10.0.0.0/29 size=32\npool second 10.0.3.0/29 size=31\n" +
			"block 10.0.0.4/32 n1\naffinity 10.0.0.4/32 n1\nblock 10.0.0.7/32 gone\nuse 10.0.0.7 shop/p1 n1 of=ReplicaSet/api ready\n" +
			"block 10.0.1.0/30 gone\nuse 10.0.1.0 red/p2 n0 of=ReplicaSet/web ready\nuse 10.0.1.3 shop/p5 n1 of=ReplicaSet/api ready\n",
		"a block without an affinity is its node's, from whichever pool the node would claim": "node n0\nnode n1\nnode n2\nnode n3\nnode n4\npool first 10.0.0.0/28 size=30\npool third 10.0.2.0/26 size=29\n" +
			"block 10.0.0.0/30 -\nblock 10.0.0.4/30 gone\nblock 10.0.0.8/30 n0\nfill 10.0.0.8/30 3 n0\nuse 10.0.0.11 red/p n0 pools4=third\nblock 10.0.0.12/30 gone\n" +
			"block 10.0.2.0/29 n1\nblock 10.0.2.16/29 n2\nblock 10.0.2.24/29 gone\naffinity 10.0.2.24/29 gone\nblock 10.0.2.32/29 n3\n",
		"v3.32 may take a block from which nodes get no tunnel address": "version v3.32.1\nconfig strict\nnode n0\nnode n1\nnode n2\nnode n3\nnode n4\npool first 10.0.0.0/29 size=30 vxlan=CrossSubnet\n" +
			"pool third 10.0.2.0/30 size=30\nblock 10.0.0.0/30 n2\naffinity 10.0.0.0/30 n2\nblock 10.0.0.4/30 n4\naffinity 10.0.0.4/30 n4\nblock 10.0.2.0/30 n2\naffinity 10.0.2.0/30 n2\naffinity 10.0.9.0/30 gone\n",
		"a node without a tunnel address can only borrow one": "node a\nnode b\npool pods 10.0.0.0/30 size=30 uses=Workload\npool tunnels 10.0.1.0/30 size=31 ipip=Always uses=Tunnel\n" +
			"block 10.0.1.0/31 b\naffinity 10.0.1.0/31 b\nblock 10.0.1.2/31 b\naffinity 10.0.1.2/31 b\nalloc 10.0.1.0 node=b handle=ipip-tunnel-addr-b\n",
		"a block that v3.32 gives to any node has an affinity of a node at its limit": "version v3.32.1\nconfig strict max=2\nnode n0\nnode n1\npool first 10.0.0.0/28 size=30\nblock 10.0.0.0/30 n0\naffinity 10.0.0.0/30 n0\n" +
			"fill 10.0.0.0/30 4 n0\nblock 10.0.0.4/30 n1\naffinity 10.0.0.4/30 n1\nfill 10.0.0.4/30 4 n1\nblock 10.0.0.8/30 gone\naffinity 10.0.0.8/30 gone\naffinity 10.0.0.8/30 n0\nblock 10.0.0.12/30 n0\naffinity 10.0.0.12/30 n0\n" +
			"fill 10.0.0.12/30 4 n0\naffinity 10.0.9.0/30 gone\n",
		"a node takes its tunnel address from its last block": "node a\nnode b\npool pods 10.0.0.0/29 size=30\npool tunnels 10.0.1.0/31 size=31 vxlan=Always\nblock 10.0.0.0/30 a\naffinity 10.0.0.0/30 a\n" +
			"block 10.0.0.4/30 b\naffinity 10.0.0.4/30 b\nblock 10.0.1.0/31 a\naffinity 10.0.1.0/31 a\naffinity 10.0.9.0/30 gone\n",
		"a node that is full is cordoned while pods move, also with the addresses that they give back": "budget none\nnode n0\nnode n1\npool first 10.0.0.0/28 size=30\nblock 10.0.0.0/30 n0\naffinity 10.0.0.0/30 n0\nuse 10.0.0.0 red/p1 n1 of=DaemonSet/log ready\nfill 10.0.0.1/30 3 n0\n" +
			"block 10.0.0.4/30 gone\naffinity 10.0.0.4/30 gone\nuse 10.0.0.6 shop/p7 n0 of=ReplicaSet/api ready\nblock 10.0.0.8/30 n1\naffinity 10.0.0.8/30 n1\nfill 10.0.0.8/30 3 n1\nblock 10.0.0.12/30 gone\naffinity 10.0.0.12/30 gone\n",
		"nodes that borrow claim nothing": "config strict\nnamespace blue pools=third\nnode n0\nnode n2\npool third 10.0.2.0/31 size=32 nodes=zone=='a'\n" +
			"block 10.0.1.8/30 n0\nuse 10.0.1.11 blue/p n0\nblock 10.0.1.16/30 n2\nuse 10.0.1.19 blue/q n2\nblock 10.0.2.0/32 n2\nblock 10.0.2.1/32 n4\naffinity 10.0.9.0/30 gone\n",
		"no node has addresses of both families for the pods that move": "node a cordoned\nnode n2\nnode z pods=6\nnode k\npool first 10.0.0.0/28 size=30 uses=Workload\npool six fd00::/124 size=126 uses=Workload\n" +
			"block 10.0.0.0/30 a\nblock 10.0.0.4/30 k\nblock 10.0.0.8/30 gone\nblock 10.0.0.12/30 z\naffinity 10.0.0.12/30 z\nblock fd00::/126 n2\n" +
			"affinity fd00::/126 n2\nblock fd00::4/126 k\naffinity fd00::4/126 k\nblock fd00::8/126 a\nblock fd00::c/126 k\n" +
			"alloc fd00::d pod=shop/p4 node=a handle=k8s-pod-network.c4\npod shop/p4 a 10.0.0.3,fd00::d cid=c4 of=ReplicaSet/api ready\n" +
			"alloc fd00::c pod=shop/p5 node=k handle=k8s-pod-network.c5\npod shop/p5 k 10.0.0.4,fd00::c cid=c5 of=ReplicaSet/web ready\n" +
			"alloc fd00::e pod=shop/p6 node=k handle=k8s-pod-network.c6\npod shop/p6 k 10.0.0.5,fd00::e cid=c6\n" +
			"alloc fd00::f pod=shop/p10 node=k handle=k8s-pod-network.c10\npod shop/p10 k fd00::f cid=c10 of=ReplicaSet/api ready\n",
		"nodes that are full in one family are cordoned for some pods, and take none of the others": "budget none\nnode a cordoned\nnode n2\nnode s\nnode z\nnode k\npool first 10.0.0.0/28 size=30 uses=Workload\n" +
			"pool six fd00::/124 size=126 uses=Workload\nblock 10.0.0.0/30 a\nblock 10.0.0.4/30 k\naffinity 10.0.0.4/30 k\nblock 10.0.0.8/30 s\n" +
			"affinity 10.0.0.8/30 s\nblock 10.0.0.12/30 z\naffinity 10.0.0.12/30 z\nblock fd00::/126 n2\naffinity fd00::/126 n2\nblock fd00::4/126 k\n" +
			"affinity fd00::4/126 k\nblock fd00::8/126 s\naffinity fd00::8/126 s\nuse fd00::8 shop/x s of=ReplicaSet/x ready\n" +
			"use fd00::9 shop/y s of=ReplicaSet/x ready\nblock fd00::c/126 k\naffinity fd00::c/126 k\nalloc 10.0.0.4 pod=shop/p5 node=k handle=k8s-pod-network.c5\n" +
			"alloc fd00::c pod=shop/p5 node=k handle=k8s-pod-network.c5\npod shop/p5 k 10.0.0.4,fd00::c cid=c5 of=ReplicaSet/web ready\n" +
			"use fd00::d shop/p6 k of=ReplicaSet/web ready\nuse fd00::e shop/p7 k of=ReplicaSet/web ready\nuse fd00::f shop/p8 k of=ReplicaSet/web ready\n" +
			"use 10.0.0.5 shop/q k of=ReplicaSet/q ready\nuse 10.0.0.6 shop/r k of=ReplicaSet/q ready\nuse 10.0.0.7 shop/t k of=ReplicaSet/q ready\n",
		"v3.32 may take the block of the other family that a pod leaves": "version v3.32.1\nnode a\nnode n2\nnode z\npool first 10.0.0.0/28 size=30 uses=LoadBalancer,Workload\npool six fd00::/125 size=126\n" +
			"block 10.0.0.0/30 gone\nblock fd00::4/126 z\naffinity fd00::4/126 z\nalloc 10.0.0.0 pod=shop/p1 node=z handle=k8s-pod-network.c1\n" +
			"alloc fd00::4 pod=shop/p1 node=z handle=k8s-pod-network.c1\npod shop/p1 z 10.0.0.0,fd00::4 cid=c1 of=ReplicaSet/api ready\n",
		"v3.32 may take the other block that a DaemonSet's pod leaves for a moment": "version v3.32.1\nnode a\nnode n2\nnode z\npool first 10.0.0.0/29 size=30 uses=LoadBalancer,Workload\npool six fd00::/123 size=126 uses=Workload\n" +
			"block 10.0.0.4/30 a\naffinity 10.0.0.4/30 a\nblock fd00::8/126 gone\nalloc 10.0.0.6 pod=shop/p1 node=a handle=k8s-pod-network.c1\n" +
			"alloc fd00::9 pod=shop/p1 node=a handle=k8s-pod-network.c1\npod shop/p1 a 10.0.0.6,fd00::9 cid=c1 of=DaemonSet/log ready\n",
		"Windows nodes claim with strict affinity": "node n0 windows\nnode n1\npool first 10.0.0.0/31 size=31\nblock 10.0.1.0/30 gone\n",
		"Windows nodes have no address in blocks that are partly reserved": "config strict\nnode a windows\nnode c\npool pods 10.0.0.0/27 size=29\nreserve 10.0.0.19/32\nreserve 10.0.0.20/31\nreserve 10.0.0.22/32\n" +
			"reserve 10.0.0.27/32\nreserve 10.0.0.28/31\nreserve 10.0.0.30/32\nblock 10.0.0.0/29 a\naffinity 10.0.0.0/29 a\nfill 10.0.0.0/29 8 a\nblock 10.0.0.8/29 a\naffinity 10.0.0.8/29 a\naffinity 10.0.9.0/30 gone\n",
		"Windows nodes claim blocks of four addresses before others": "config strict\nnode n0\nnode n1 windows\npool third 10.0.2.0/27 size=29\npool over 10.0.0.0/28 size=30\n" +
			"block 10.0.2.8/29 n2\nuse 10.0.2.13 red/p6 n0\naffinity 10.0.9.0/30 gone\n",
		"Windows nodes claim blocks of four addresses, and get none": "node a windows\nnode b\nnode c\npool pods 10.0.0.0/28 size=30\nblock 10.0.0.0/30 b\naffinity 10.0.0.0/30 b\nfill 10.0.0.0/30 4 b\n" +
			"block 10.0.0.4/30 gone\naffinity 10.0.0.4/30 gone\n",
		"a block of another size, marked deleted, records addresses in use": "node n1\npool first 10.0.0.0/28 size=28\nblock 10.0.0.0/29 n0 deleted\nuse 10.0.0.6 red/p7 n0\naffinity 10.0.0.8/29 n0\n",
		"a block of another size, marked deleted, is over a pod's address":  "node n1\npool first 10.0.0.0/28 size=28\nblock 10.0.0.0/29 n0 deleted\npod red/p7 n0 10.0.0.6\naffinity 10.0.0.8/29 gone\n",
		"Calico reads one of two objects of a block": "config strict\nnode a\nnode b\nnode z\npool pods 10.0.0.0/29 size=30\nblock 10.0.0.0/30 a\nblock 10.0.0.0/30 b name=again\naffinity 10.0.0.0/30 a\n" +
			"affinity 10.0.0.0/30 b\nblock 10.0.0.4/30 b\naffinity 10.0.0.4/30 b\naffinity 10.0.9.0/30 gone\n",
		"without affinities, a node does not find its block of another size": "node n1\nnode n2\npool first 10.0.0.0/30 size=30\nblock 10.0.0.0/31 n2\n",
		"a node needs its affinity, though it has a block for one namespace": "node n1\nnode n2\npool first 10.0.0.0/29 size=29\npool second 10.0.1.0/30 size=30 namespaces=team=='red'\n" +
			"affinity 10.0.0.0/30 n2\nblock 10.0.1.0/30 n2\naffinity 10.0.1.0/30 n2\n",
		"Calico would create an affinity's block over addresses in use": "node n0\nnode n3\nnode n4\npool first 10.0.0.0/29 size=31\nblock 10.0.0.0/30 n1 deleted\naffinity 10.0.0.0/30 n0\nuse 10.0.0.1 bare/p2 n1\nuse 10.0.0.2 bare/p3 n1\n",
		"v3.32 may take a block in a pool inside another one": "version v3.32.1\nnode n1\nnode n3\npool first 10.0.0.0/26 size=29\npool over 10.0.0.0/28 size=30\nblock 10.0.0.0/29 gone\nalloc 10.0.0.7\n" +
			"block 10.0.0.8/29 n0\naffinity 10.0.0.8/29 n0\nblock 10.0.0.16/29 n2\nblock 10.0.0.24/29 n2\nblock 10.0.0.32/29 -\nuse 10.0.0.37 red/p25 n3 pools=first\n" +
			"block 10.0.0.40/29 -\nblock 10.0.0.48/29 n0\nblock 10.0.0.56/29 n0\n",
		"a block in a pool inside another one serves the pods of both": "node n0\nnode n1\nnode n2\nnode n3\nnode n4\npool first 10.0.0.0/32 size=32 namespaces=team=='red'\npool over 10.0.0.0/27 size=29\n" +
			"block 10.0.0.0/32 n1\naffinity 10.0.0.0/32 n1\naffinity 10.0.9.0/30 gone\n",
		"an affinity in a pool inside another one counts towards the limit": "config strict max=1\nnode n0\npool second 10.0.1.0/30 size=32 notAllocatable=CIDROverlap\npool over 10.0.1.0/29 size=30\n" +
			"block 10.0.1.2/32 n0\nuse 10.0.1.2 blue/p4 n0\naffinity 10.0.9.0/30 gone\n",
		"the CNI configuration names a pool that assigns manually": "config strict\nnode a\nnode b\npool pods 10.0.0.0/28 size=30 manual\nblock 10.0.0.0/30 a\naffinity 10.0.0.0/30 a\nfill 10.0.0.0/30 4 a\n" +
			"block 10.0.0.4/30 a\naffinity 10.0.0.4/30 a\nblock 10.0.0.8/29 b\naffinity 10.0.0.8/29 b\nfill 10.0.0.8/29 8 b\nreserve 10.0.0.8/29\naffinity 10.0.9.0/30 gone\n",
		"the CNI configuration names a pool that selects no node": "config strict\nnode a\nnode b\npool auto 10.1.0.0/28 size=30\npool pods 10.0.0.0/28 size=30 nodes=!all()\n" +
			"block 10.0.0.0/30 a\naffinity 10.0.0.0/30 a\nfill 10.0.0.0/30 4 a\nblock 10.0.0.4/30 a\naffinity 10.0.0.4/30 a\nblock 10.0.0.8/30 b\naffinity 10.0.0.8/30 b\nfill 10.0.0.8/30 4 b\n" +
			"block 10.0.0.12/30 b\naffinity 10.0.0.12/30 b\nfill 10.0.0.12/30 4 b\naffinity 10.0.9.0/30 gone\n",
		"a pod restarts into the pool that the CNI configuration names": "budget none\nnode a\nnode b\npool auto 10.1.0.0/28 size=30\npool pods 10.0.0.0/30 size=30 manual\nblock 10.0.0.0/30 a\naffinity 10.0.0.0/30 a\n" +
			"use 10.0.0.1 shop/b b of=ReplicaSet/web ready\nblock 10.1.0.0/30 b\naffinity 10.1.0.0/30 b\naffinity 10.0.9.0/30 gone\n",
	} {
		t.Run(name, func(t *testing.T) {
			if steps := checkLaws(t, parseState(t, text, 0), lawRequests()); len(steps) == 0 {
				t.Error("no plan has a step")
			}
		})
	}
}

// TestLawPermits: even if blocks are scarce, a plan contains the steps that leave no node worse off.
func TestLawPermits(t *testing.T) {
	const short = "version v3.32.1\nnode a label=zone=a\nnode b label=zone=a\nnode c label=zone=b\npool pods 10.0.0.0/29 size=30 nodes=zone=='a' uses=Workload\n" +
		"block 10.0.0.0/30 a\naffinity 10.0.0.0/30 a\nfill 10.0.0.0/30 2 a\nblock 10.0.0.4/30 gone\naffinity 10.0.0.4/30 gone\n"
	for name, c := range map[string]struct{ text, flag, step string }{
		"no node has pools of two zones":                {short + "pool more 10.1.0.0/24 nodes=zone=='b'\n", "empty-blocks", "release-block:10.0.0.4/30"},
		"another pool is for services":                  {short + "pool services 10.1.0.0/24 uses=LoadBalancer\n", "empty-blocks", "release-block:10.0.0.4/30"},
		"another pool is for tunnels":                   {short + "pool tunnels 10.1.0.0/24 uses=Tunnel\n", "empty-blocks", "release-block:10.0.0.4/30"},
		"another pool is disabled":                      {short + "pool old 10.1.0.0/24 disabled\n", "empty-blocks", "release-block:10.0.0.4/30"},
		"the allocator does not see b's affinity to it": {short + "affinity 10.0.0.4/30 b unlabelled\n", "empty-blocks", "release-block:10.0.0.4/30"},
		"a block without an affinity is full": {strings.Replace(short, "10.0.0.0/29", "10.0.0.0/28", 1) + "block 10.0.0.8/30 b\nfill 10.0.0.8/30 4 b\nblock 10.0.0.12/30 a\naffinity 10.0.0.12/30 a\nfill 10.0.0.12/30 1 a\n",
			"empty-blocks", "release-block:10.0.0.4/30"},
		"another pool has blocks for anyone": {"node a\nnode b\npool first 10.0.0.0/30 size=30\npool second 10.1.0.0/24\nblock 10.0.0.0/30 b\nfill 10.0.0.0/30 4 b\naffinity 10.1.0.0/26 a\n", "orphan-affinities", "delete-affinity:a:10.1.0.0/26"},
		"addresses of one missing block": {"config max=3\nnode a\npool pods 10.0.0.0/24 size=29\npod shop/x a 10.0.0.0\npod shop/y a 10.0.0.1\npod shop/z a 10.0.0.2\n" +
			"block 10.0.0.8/29 a\nfill 10.0.0.8/29 8 a\n", "missing-affinities", "restore-affinity:10.0.0.8/29"},
		"the limit is reached already": {"config strict max=1\nnode a\npool pods 10.0.0.0/28 size=30\nblock 10.0.0.0/30 a\naffinity 10.0.0.0/30 a\nfill 10.0.0.0/30 4 a\n" +
			"block 10.0.0.4/30 a\nfill 10.0.0.4/30 4 a\n", "missing-affinities", "restore-affinity:10.0.0.4/30"},
	} {
		t.Run(name, func(t *testing.T) {
			st, requests := parseState(t, c.text, 0), lawRequests()
			if p := Build(st, requests[c.flag]); !slices.Contains(stepIDs(p), c.step) {
				t.Errorf("steps %v, refused %+v", stepIDs(p), p.Refused)
			}
			checkLaws(t, st, requests)
		})
	}
}

// TestNodeWithoutAffinityIsFirst: a node with a block but no affinity to it claims free blocks of
// other pools first, then those of the block's pool in its own order. v3.32 takes other nodes'
// blocks last. A release would give it the block that another node would take. The law treats such
// a node as one that needs nothing.
func TestNodeWithoutAffinityIsFirst(t *testing.T) {
	const start = "version v3.32.1\nnode n0\nnode n1\npool first 10.0.0.0/%d size=30\npool second 10.0.1.0/30 size=30\n" +
		"block %s gone\naffinity %s gone\nblock %s n1\nblock 10.0.9.0/30 gone\n"
	for name, c := range map[string]struct {
		bits       int
		empty, own string
	}{
		"its block is in a later pool": {30, "10.0.0.0/30", "10.0.1.0/30"},
		"its block is in the pool":     {29, "10.0.0.4/30", "10.0.0.0/30"},
		"its block is in it, reversed": {29, "10.0.0.0/30", "10.0.0.4/30"},
	} {
		text := fmt.Sprintf(start, c.bits, c.empty, c.empty, c.own)
		if c.bits == 29 {
			text = strings.Replace(text, "pool second 10.0.1.0/30 size=30\n", "", 1)
		}
		st := parseState(t, text, 0)
		p := Build(st, repair.Request{EmptyBlocks: true})
		for _, x := range []*state.State{st, afterwards(st, p.Steps)} {
			a := capacity.NewAllocator(x)
			for _, node := range []string{"n1", "n0"} {
				if got := a.Assign(capacity.Request{Node: node, Family: blocks.IPv4, Use: blocks.UseWorkload}); !got.Own(node) {
					t.Errorf("%s: %s gets %+v, with the steps %v", name, node, got, stepIDs(p))
				}
			}
		}
	}
}

// TestPodsOfOneNodeClaimInAnyOrder: a node's next pod of one namespace may claim the last block of a
// pool, unless a pod of another namespace claims a block for both first. That order is not certain,
// so a plan that gives the latter pod an address takes nothing away.
func TestPodsOfOneNodeClaimInAnyOrder(t *testing.T) {
	st := parseState(t, "config strict\nnamespace red pools=second,first\nnamespace blue pools=second\nnode n0\nnode n1\npool first 10.0.0.0/30 size=30\npool second 10.0.1.0/29 size=30\n"+
		"pool third 10.0.2.0/30 size=30\nblock 10.0.1.0/30 n1\naffinity 10.0.1.0/30 n1\nuse 10.0.1.0 blue/a n1\nfill 10.0.1.0/30 3 n1\nblock 10.0.2.0/30 n0\naffinity 10.0.2.0/30 n0\n"+
		"use 10.0.2.0 red/b n0\nfill 10.0.2.0/30 2 n0\nalloc 10.0.2.3 pod=shop/x node=n0 handle=k8s-pod-network.x\n", 0)
	a, first, second := capacity.NewAllocator(st), netip.MustParsePrefix("10.0.0.0/30"), netip.MustParsePrefix("10.0.1.0/29")
	red := a.Assign(capacity.Request{Node: "n0", Family: blocks.IPv4, Use: blocks.UseWorkload, Pools: []netip.Prefix{second, first}})
	blue := a.Assign(capacity.Request{Node: "n1", Family: blocks.IPv4, Use: blocks.UseWorkload, Pools: []netip.Prefix{second}})
	if !red.Own("n0") || blue.Addr.IsValid() {
		t.Errorf("before the plan, n0 gets %+v and then n1 %+v", red, blue)
	}
	if steps := checkLaws(t, st, lawRequests()); steps[repair.ReleaseIP] == 0 {
		t.Error("the leaked address stays")
	}
}

// TestOwnBlockCountsTowardsLimit: at its block limit, a node can claim only its own block without an
// affinity. No more pods move there than are certain to get an address.
func TestOwnBlockCountsTowardsLimit(t *testing.T) {
	text := "config strict max=%d\nbudget none\nnode a\npool pods 10.0.0.0/28 size=30\nblock 10.0.0.0/30 a\nfill 10.0.0.0/30 3 a\naffinity 10.0.9.0/30 gone\nblock 10.0.0.4/30 gone\n" +
		"use 10.0.0.4 shop/x a of=ReplicaSet/web ready\nuse 10.0.0.5 shop/y a of=ReplicaSet/api ready\n"
	for limit, want := range map[int]int{1: 1, 2: 2} {
		p := Build(parseState(t, fmt.Sprintf(text, limit), 0), repair.Request{Rehome: true, CordonFull: true, EvictSingletons: true})
		moved := len(slices.DeleteFunc(p.Steps, func(s repair.Step) bool { return s.Kind != repair.EvictPod }))
		if moved != want {
			t.Errorf("limit %d: %d pods move, refused %+v", limit, moved, p.Refused)
		}
	}
}

// TestNoPodMovesToTheOnlySlotOfAnother: the node that takes the pod would claim a block, and may
// claim the only slot that z, at its block limit, can use.
func TestNoPodMovesToTheOnlySlotOfAnother(t *testing.T) {
	const text = "version v3.30.1\nconfig strict max=1\nbudget none\nnode a\nnode b\nnode z\npool pods 10.0.0.0/28 size=30\nblock 10.0.0.0/30 z\naffinity 10.0.0.0/30 z\nfill 10.0.0.0/30 4 z\n" +
		"block 10.0.0.8/30 gone\nuse 10.0.0.8 shop/p a of=ReplicaSet/web ready\n"
	for more, want := range map[string]bool{"": true, "affinity 10.0.0.4/30 z\n": false} {
		p := Build(parseState(t, text+more, 0), repair.Request{Rehome: true, CordonFull: true, EvictSingletons: true})
		if got := len(p.Steps) > 0; got != want {
			t.Errorf("%q: steps %v, refused %+v", more, stepIDs(p), p.Refused)
		}
	}
}

// TestNoPodMovesThatTaintsKeepAway: a pod is not evicted if its replacement could only start on a node
// with a taint of the node life cycle. A DaemonSet's pod is not evicted from a node that was tainted
// after the pod started.
func TestNoPodMovesThatTaintsKeepAway(t *testing.T) {
	const rehome = "budget none\nnode a\nnode b%s\npool pods 10.0.0.0/29 size=30\nblock 10.0.0.0/30 b\naffinity 10.0.0.0/30 b\nuse 10.0.0.0 shop/x a of=ReplicaSet/web ready\n" +
		"use 10.0.0.1 shop/y b of=ReplicaSet/web ready\nblock 10.0.0.4/30 a\naffinity 10.0.0.4/30 a\nfill 10.0.0.4/30 4 a\n"
	const daemon = "budget none\nnode a%s\nnode b\nnode new\npool pods 10.0.0.0/28 size=30\nblock 10.0.0.0/30 a\naffinity 10.0.0.0/30 a\nuse 10.0.0.0 shop/x a of=DaemonSet/log ready\n" +
		"block 10.0.0.4/30 a\naffinity 10.0.0.4/30 a\nuse 10.0.0.4 shop/y a of=DaemonSet/log ready\nblock 10.0.0.8/30 b\naffinity 10.0.0.8/30 b\nuse 10.0.0.8 shop/z b noevict\n" +
		"block 10.0.0.12/30 b\naffinity 10.0.0.12/30 b\nuse 10.0.0.12 shop/v b noevict\n"
	for taint, want := range map[string][2]bool{
		"": {true, true}, "maintenance": {}, blocks.TaintNetwork: {}, blocks.LifeCycleTaints + "disk-pressure": {false, true},
		blocks.LifeCycleTaints + "unschedulable": {true, true}, // without the cordon, it is about to go
	} {
		if taint != "" {
			taint = " taint=" + taint
		}
		for i, text := range []string{rehome, daemon} {
			p := Build(parseState(t, fmt.Sprintf(text, taint), 0), repair.Request{Rehome: i == 0, Consolidate: i == 1, CordonFull: true, EvictSingletons: true})
			if got := slices.ContainsFunc(p.Steps, func(s repair.Step) bool { return s.Kind == repair.EvictPod }); got != want[i] {
				t.Errorf("%q: steps %v, refused %+v", text, stepIDs(p), p.Refused)
			}
		}
	}
}

// TestNoPodMovesForAnUnknownAge: no block is emptied while another block is empty and only its unknown
// age retains it, as in files without managedFields.
func TestNoPodMovesForAnUnknownAge(t *testing.T) {
	text := "budget none\npool pods 10.0.0.0/28 size=30\nnode a\nnode b\nnode c\nblock 10.0.0.0/30 a\naffinity 10.0.0.0/30 a\nblock 10.0.0.4/30 a%s\naffinity 10.0.0.4/30 a\n" +
		"block 10.0.0.8/30 b\naffinity 10.0.0.8/30 b\nblock 10.0.0.12/30 b\naffinity 10.0.0.12/30 b\n" +
		"use 10.0.0.8 shop/b b of=ReplicaSet/web ready\nuse 10.0.0.12 shop/d b of=ReplicaSet/web ready\nuse 10.0.0.1 shop/c c of=ReplicaSet/web ready\n"
	for age, want := range map[string]bool{" noage": false, "\nuse 10.0.0.4 shop/e a of=ReplicaSet/web ready": true} {
		p := Build(parseState(t, fmt.Sprintf(text, age), 0), repair.Request{Consolidate: true, CordonFull: true, EvictSingletons: true})
		if got := len(p.Steps) > 0; got != want {
			t.Errorf("%q: steps %v, refused %+v", age, stepIDs(p), p.Refused)
		}
	}
}

// TestNoAddressIsFreedInOneOfTwoBlocks: if two objects describe a block, it is unknown which of
// them Calico reads.
func TestNoAddressIsFreedInOneOfTwoBlocks(t *testing.T) {
	const one = "node a\npool pods 10.0.0.0/29 size=30\nblock 10.0.0.0/30 a\naffinity 10.0.0.0/30 a\nalloc 10.0.0.1 node=a handle=k8s-pod-network.x pod=shop/gone\n"
	for text, steps := range map[string]int{one: 1, one + "block 10.0.0.0/30 a name=again\n": 0} {
		if p := Build(parseState(t, text, 0), repair.Request{LeakedIPs: true, WithoutHostEvidence: true}); len(p.Steps) != steps {
			t.Errorf("%d steps, refused %+v, of\n%s", len(p.Steps), p.Refused, text)
		}
	}
}
