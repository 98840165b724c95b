package planner

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
	w := law.New(afterwards(st, p.Steps[:last+1]))
	for i := range p.Steps {
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

// checkReceivers checks that each node that a plan does not name in MayFill has addresses of its
// own for all pods that may start there.
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

// mayRun reports whether an evicted pod may restart on a node. A DaemonSet's pod restarts on its
// own node, other pods where their node selector and tolerations allow it.
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
		t.Run(name, func(t *testing.T) {
			checkLaws(t, parseState(t, text, 0), lawRequests())
		})
	}
}

// tightStates is the number of random states; tightSample is how many of them are checked by
// default.
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

// TestLawInRareStates checks states that broke the law once: a pod moves while a Windows node takes
// no pods, as strict affinity is off; full blocks count towards the limit of blocks.
func TestLawInRareStates(t *testing.T) {
	for name, text := range map[string]string{
		"Windows without strict affinity": "node n0\nnode n1 windows\npool first 10.0.0.0/27 size=30\nblock 10.0.0.0/30 n0\naffinity 10.0.0.0/30 n0\n" +
			"block 10.0.0.16/30 gone\naffinity 10.0.0.16/30 gone\nuse 10.0.0.19 bare/p8 n0 of=ReplicaSet/web ready\n",
		"restored affinities and a block limit": "config strict max=2\nnode n2\npool first 10.0.0.0/29 size=32\npool second 10.0.1.0/28\n" +
			"block 10.0.0.1/32 n2\nuse 10.0.0.1 blue/p2 n2\nblock 10.0.0.7/32 n2\nblock 10.0.1.12/30 n2\nfill 10.0.1.12/30 4 n2\n",
		"a Windows node's blocks have four addresses less": "config strict\nnode n0 windows\nnode n1\npool first 10.0.0.0/27 size=30\n" +
			"block 10.0.0.0/30 n1\naffinity 10.0.0.0/30 n1\nblock 10.0.0.16/30 gone\naffinity 10.0.0.16/30 gone\nuse 10.0.0.19 bare/p8 n1 of=ReplicaSet/web ready\n",
		"Windows nodes claim with strict affinity": "node n0 windows\nnode n1\npool first 10.0.0.0/31 size=31\nblock 10.0.1.0/30 gone\n",
	} {
		t.Run(name, func(t *testing.T) {
			if steps := checkLaws(t, parseState(t, text, 0), lawRequests()); len(steps) == 0 {
				t.Error("no plan has a step")
			}
		})
	}
}

// TestNoPodMovesForAnUnknownAge: no block is emptied while another is empty, and only its unknown age
// keeps it, as in files without managedFields.
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
