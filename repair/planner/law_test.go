package planner

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit/capacity"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
)

// checkLaw checks that no plan leaves a node worse off. Before the plan and after it, every
// other node without a free address of its own claims a block, in every order; then the
// node starts one pod. If the pod got an address of the node's own blocks in every order
// before, it does so after; the same holds for any address. A plan that moves no pods
// must keep this after each of its steps.
//
// The oracle is Calico's allocator in memory, never a verdict of package state.
func checkLaw(t *testing.T, st *state.State, p *repair.Plan) {
	t.Helper()
	if len(p.Steps) == 0 {
		return
	}
	w := newWitness(st)
	before := w.promises(w.seats())
	for _, n := range prefixes(p) {
		after := newWitness(afterwards(st, p.Steps[:n]))
		now := after.promises(slices.Collect(maps.Keys(before)))
		for _, s := range slices.SortedFunc(maps.Keys(before), compareSeats) {
			lost := before[s].without(now[s]).without(exempt(p, n, s.node))
			if lost != (promise{}) {
				t.Errorf("after %d of %d steps %v, the next pod of %s (%s, %s) no longer has %v in every order",
					n, len(p.Steps), stepIDs(p), s.node, s.family, s.who(), lost)
			}
		}
	}
	checkMoved(t, st, p)
}

// prefixes returns after how many steps of a plan the law must hold.
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

// repeats reports whether steps of a kind concern no block, affinity or setting: the law is
// checked after the last of several.
func repeats(k repair.Kind) bool {
	return k == repair.DeleteHandle || k == repair.CreateHandle || k == repair.FixHandleCount ||
		k == repair.ReleaseWhereabouts || k == repair.DeleteWhereaboutsReservation || k == repair.RestoreWhereabouts
}

// promise holds what the next pod gets in every order.
type promise struct {
	// own is true for an address of a block that its node owns or claims, any for some
	// address.
	own, any bool
}

func (p promise) without(q promise) promise { return promise{p.own && !q.own, p.any && !q.any} }

func (p promise) String() string {
	switch {
	case p.any:
		return "an address"
	case p.own:
		return "an address of its own"
	}
	return "nothing"
}

// exempt returns what the first steps of a plan may take from a node, because the plan names
// the node.
func exempt(p *repair.Plan, steps int, node string) (out promise) {
	for i := range p.Steps[:steps] {
		s := &p.Steps[i]
		if s.Guard(repair.GuardHolder) != "" && repair.HostOf(s.Guard(repair.GuardOwner)) == node {
			return promise{own: true, any: true} // --last-blocks
		}
		borrows := s.Kind == repair.SetStrictAffinity && p.Strict.To && slices.Contains(slices.Concat(p.Strict.Starve, p.Strict.MayStarve), node)
		out.any = out.any || borrows
	}
	return out
}

// seat is where a pod may start: a node, and pods of it that have the same pools. It
// compares equal in two states of one cluster.
type seat struct {
	node   string
	family blocks.Family
	// namespace is a namespace with a pod on the node, or "" for one without labels and
	// annotations; pools are the CIDRs of the pools that the pod asks for.
	namespace, pools string
}

func (s seat) who() string { return fmt.Sprintf("namespace %q, pools %q", s.namespace, s.pools) }

func compareSeats(a, b seat) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }

// witness sees what pods get in a state.
type witness struct {
	st *state.State
	// random orders are the same before and after.
	seed uint64
}

func newWitness(st *state.State) *witness { return &witness{withUsed(st), 26} }

// withUsed returns a state in which no address is free that a live pod uses without a
// record. A block that is missing for such an address counts as that of the node that has an
// affinity to it, or else of the pod's node.
// Objects that are marked deleted are gone: Calico's client deletes them when it reads them.
func withUsed(st *state.State) *state.State {
	x, changed := repair.NewPretence(st.Snapshot), false
	for _, b := range x.BlockByName {
		if b.SoftDeleted {
			x.NoBlocks[b.Name], changed = true, true
		}
	}
	for i := range x.Affinities {
		if a := &x.Affinities[i]; a.SoftDeleted {
			x.NoAffinities[a.Name], changed = true, true
		}
	}
	for _, w := range st.Workloads {
		if !w.Live() {
			continue
		}
		for a := range w.Addresses {
			slot := st.SlotOf(a)
			b := holding(x, a)
			if b == nil && slot.IsValid() {
				node := w.Node
				for _, f := range st.AffinitiesOf(slot) {
					node = f.Owner.Node()
				}
				if deleted := st.BlockOf(slot); deleted != nil {
					node = deleted.Owner.Node()
				}
				b, changed = x.Claim(slot, node), true
			}
			if b == nil {
				continue
			}
			if i, ok := b.Ordinal(a); ok && b.Ordinals[i] == blocks.Free {
				b.Ordinals, b.Attributes = slices.Clone(b.Ordinals), append(slices.Clone(b.Attributes), blocks.Attributes{})
				b.Ordinals[i] = int32(len(b.Attributes) - 1)
				b.Unallocated = slices.DeleteFunc(slices.Clone(b.Unallocated), func(o int32) bool { return o == int32(i) })
				changed = true
			}
		}
	}
	if !changed {
		return st
	}
	return state.New(x.Done(), state.Options{Grace: max(st.Grace, 1)})
}

// holding returns the block of an address, if it is not marked deleted.
func holding(x *repair.Pretence, a netip.Addr) *blocks.Block {
	for _, b := range x.BlockByName {
		if b.CIDR.Contains(a) && !b.SoftDeleted {
			return b
		}
	}
	return nil
}

// seats returns where the next pod of a state may start.
func (w *witness) seats() (out []seat) {
	for _, h := range w.st.NodeStates {
		if h.Node == nil {
			continue
		}
		for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
			if !slices.ContainsFunc(w.st.Pools, func(p *state.Pool) bool { return p.Family() == f }) {
				continue
			}
			out = append(out, seat{node: h.Name, family: f})
			var pods []*blocks.Workload
			for _, pod := range h.Workloads { // and one of its namespace that asks for nothing itself
				pods = append(pods, pod, &blocks.Workload{Namespace: pod.Namespace})
			}
			for _, pod := range pods {
				s := seat{node: h.Name, family: f, namespace: pod.Namespace}
				asked, asks := w.st.RequestedPools(pod, f)
				for _, p := range asked {
					s.pools += p.CIDR.String() + " "
				}
				if s.pools == "" && (asks || w.plain(pod.Namespace)) {
					continue
				}
				if !slices.Contains(out, s) {
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// plain reports whether every pool selects a namespace as it does one without labels.
func (w *witness) plain(name string) bool {
	return !slices.ContainsFunc(w.st.Pools, func(p *state.Pool) bool {
		return p.SelectsNamespace(w.st.Namespace(name)) != p.SelectsNamespace(nil)
	})
}

// request is what the next pod of a seat asks for.
func (w *witness) request(s seat) capacity.Request {
	r := capacity.Request{Node: s.node, Family: s.family, Use: blocks.UseWorkload, Namespace: w.st.Namespace(s.namespace)}
	for _, cidr := range strings.Fields(s.pools) {
		r.Pools = append(r.Pools, netip.MustParsePrefix(cidr))
	}
	return r
}

// assign asks again if it gets nothing, as a kubelet does: the first attempt may only have
// removed something.
func assign(a *capacity.Allocator, r capacity.Request) (got capacity.Assigned) {
	for range 3 {
		if got = a.Assign(r); got.Addr.IsValid() {
			break
		}
	}
	return got
}

// promises returns what the next pod of each seat gets in every order.
func (w *witness) promises(seats []seat) map[seat]promise {
	out := map[seat]promise{}
	lacking := w.lacking()
	for _, s := range seats {
		p := promise{own: true, any: true}
		var others []string
		for node := range lacking[s.family] {
			if node != s.node {
				others = append(others, node)
			}
		}
		slices.Sort(others)
		for order := range w.orders(others) {
			a := capacity.NewAllocator(w.st)
			for _, node := range order {
				for _, x := range lacking[s.family][node] {
					if got := assign(a, w.request(x)); got.Addr.IsValid() {
						a.Release(got.Block, got.Addr)
					}
				}
			}
			got := assign(a, w.request(s))
			if p = (promise{p.own && got.Own(s.node), p.any && got.Addr.IsValid()}); p == (promise{}) {
				break
			}
		}
		out[s] = p
	}
	return out
}

// lacking returns the seats without a free address of their node's own, by family and node.
// An affinity whose block does not exist has none.
func (w *witness) lacking() map[blocks.Family]map[string][]seat {
	out := map[blocks.Family]map[string][]seat{blocks.IPv4: {}, blocks.IPv6: {}}
	for _, s := range w.seats() {
		h := w.st.NodeState(s.node)
		got := assign(capacity.NewAllocator(w.st), w.request(s))
		if !got.Own(s.node) || !w.hasFree(h, w.st.PoolOf(got.Block)) {
			out[s.family][s.node] = append(out[s.family][s.node], s)
		}
	}
	return out
}

// hasFree reports whether a node owns a block in a pool with a free address, be it without
// an affinity that Calico sees.
func (w *witness) hasFree(h *state.NodeState, p *state.Pool) bool {
	return slices.ContainsFunc(h.Blocks, func(b *state.Block) bool {
		return b.Pool == p && slices.ContainsFunc(b.Unallocated, func(o int32) bool { return !w.st.Reserved.Contains(b.Address(int(o))) })
	})
}

// orders yields every order of up to five nodes, and 200 random ones of more.
func (w *witness) orders(nodes []string) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		if len(nodes) <= 5 {
			permute(slices.Clone(nodes), 0, yield)
			return
		}
		rnd := rand.New(rand.NewPCG(w.seed, 1))
		for range 200 {
			order := slices.Clone(nodes)
			rnd.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			if !yield(order) {
				return
			}
		}
	}
}

func permute(nodes []string, from int, yield func([]string) bool) bool {
	if from >= len(nodes)-1 {
		return yield(nodes)
	}
	for i := from; i < len(nodes); i++ {
		nodes[from], nodes[i] = nodes[i], nodes[from]
		if !permute(nodes, from+1, yield) {
			return false
		}
		nodes[from], nodes[i] = nodes[i], nodes[from]
	}
	return true
}

// checkMoved checks that each pod that a plan moves gets an address of its new node's own
// in every family that it had, wherever the scheduler may put it while the plan is applied.
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
	w := newWitness(afterwards(st, p.Steps[:last+1]))
	for i := range p.Steps {
		pod := evicted(st, &p.Steps[i])
		if pod == nil {
			continue
		}
		for _, h := range w.st.NodeStates {
			if h.Node == nil || !mayRun(pod, h.Node) {
				continue
			}
			a := capacity.NewAllocator(w.st)
			for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
				if !pod.HasFamily(f) {
					continue
				}
				s := seat{node: h.Name, family: f, namespace: pod.Namespace}
				asked, _ := w.st.RequestedPools(pod, f)
				for _, q := range asked {
					s.pools += q.CIDR.String() + " "
				}
				if got := assign(a, w.request(s)); !got.Own(h.Name) {
					t.Errorf("%s: on %s, where the scheduler may put it, the pod gets no %s address of the node's own: %+v", p.Steps[i].ID, h.Name, f, got)
				}
			}
		}
	}
}

// evicted returns the pod of a step that evicts one; nil for other steps.
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

// mayRun reports whether a pod that is evicted may start again on a node: one of a DaemonSet
// does so where it was, others where its node selector and its tolerations allow it.
func mayRun(w *blocks.Workload, n *blocks.Node) bool {
	if w.OfDaemonSet() {
		return n.Name == w.Node
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

// lawRequests are the requests whose plans must keep the law: each kind of repair alone,
// all together, and those with a consent or a value.
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

// checkLaws makes the plans of a state and checks each against the law. It returns the
// steps that were planned, by kind.
func checkLaws(t *testing.T, st *state.State, requests map[string]repair.Request) map[repair.Kind]int {
	t.Helper()
	steps := map[repair.Kind]int{}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		req := requests[name]
		p := Build(st, req)
		for i := range p.Steps {
			steps[p.Steps[i].Kind]++
		}
		if checkLaw(t, st, p); t.Failed() {
			t.Logf("the request is %q", name)
			break
		}
	}
	return steps
}

// TestLawInFixtures checks every plan of every state that tests of this program describe,
// and of every example.
func TestLawInFixtures(t *testing.T) {
	files, err := filepath.Glob("../../*/*/testdata/*/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../../*/*/testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	var cases []string
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
	for _, c := range cases {
		name, text, _ := strings.Cut(c, "\n")
		t.Run(name, func(t *testing.T) { checkLaws(t, parseState(t, text, 0), lawRequests()) })
	}
}

// tightStates is how many random states there are, and tightSample of how many the law is
// checked by default.
const tightStates, tightSample = 2000, 150

// TestLawInRandomStates checks the plans of random states in which blocks and addresses
// are scarce.
func TestLawInRandomStates(t *testing.T) {
	steps, requests := map[repair.Kind]int{}, lawRequests()
	var all []uint64
	for i := range uint64(tightStates) {
		all = append(all, i)
	}
	states := testenv.Sample(t, tightSample, all)
	for _, i := range states {
		text := statedsl.Tight(rand.New(rand.NewPCG(1, i)))
		ok := t.Run(fmt.Sprint(i), func(t *testing.T) {
			for kind, n := range checkLaws(t, parseState(t, text, 0), requests) {
				steps[kind] += n
			}
		})
		if !ok {
			t.Logf("state %d:\n%s", i, text)
		}
	}
	for _, k := range []repair.Kind{repair.ReleaseBlock, repair.DisownBlock, repair.DeleteAffinity, repair.RestoreAffinity, repair.FinishDelete, repair.RecordIP, repair.ReleaseIP, repair.SetStrictAffinity} {
		if steps[k] < len(states)/50 && !t.Failed() {
			t.Errorf("%s is planned %d times only", k, steps[k])
		}
	}
}
