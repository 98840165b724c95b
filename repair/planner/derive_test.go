package planner

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/repair"
)

// everything requests all repairs that need no value and move no pods.
var everything = asking(func(q *repair.RequestKind) bool { return !slices.Contains(q.Steps, repair.EvictPod) })

// asking returns a request for all kinds of repair for which is returns true.
func asking(is func(*repair.RequestKind) bool) (r repair.Request) {
	for _, q := range repair.Requests {
		if q.Field != nil {
			*q.Field(&r) = is(&q)
		}
	}
	return r
}

// TestKinds: every kind is complete, and has test states of its own.
func TestKinds(t *testing.T) {
	files := map[repair.Kind][2]string{repair.DeleteHandle: {"handles", "reconcile_handle"}, repair.FixHandleCount: {"handles", "reconcile_handle"}}
	for _, k := range namedKinds(t) {
		if KindOf(k) == nil {
			t.Errorf("%s is not registered", k)
		}
	}
	for _, x := range kinds {
		k := x.Kind
		if len(x.Rights) == 0 || x.Propose == nil || x.AddRefs == nil || (x.Do == nil) == (x.Act == nil) || x.Verify == nil || x.Undo == nil || x.Pretend == nil {
			t.Errorf("%s is not whole", k)
		}
		moves := slices.ContainsFunc(repair.Requests, func(q repair.RequestKind) bool { return q.Flag == "consolidate" && slices.Contains(q.Steps, k) })
		if moves && !everything.Asks(k) {
			files[k] = [2]string{"consolidate", strings.ReplaceAll(string(k), "-", "_")}
		}
		if len(x.Requires) == 0 || !slices.Contains(x.Exact, repair.GuardUID) && x.Loose[repair.GuardBlockUID] == nil && !slices.Contains(x.Exact, repair.GuardBlockUID) && !slices.Contains(x.Exact, repair.GuardConsolidation) {
			t.Errorf("%s needs no reads, or is not held to the UID", k)
		}
		if (&repair.Request{}).Asks(k) || !slices.ContainsFunc(repair.Requests, func(q repair.RequestKind) bool { return slices.Contains(q.Steps, k) }) {
			t.Errorf("%s is planned without being asked for, or cannot be asked for", k)
		}
		name, ok := files[k]
		if !ok {
			name = [2]string{strings.ReplaceAll(string(k), "-", "_"), strings.ReplaceAll(string(k), "-", "_")}
		}
		if _, err := os.Stat(filepath.Join("testdata", "plans", name[0]+".txt")); err != nil {
			t.Errorf("%s: %v", k, err)
		}
		if found, err := filepath.Glob("../*/step_" + name[1] + ".go"); err != nil || len(found) != 1 {
			t.Errorf("%s: it has the files %v (%v)", k, found, err)
		}
	}
	for _, q := range repair.Requests {
		for _, k := range q.Steps {
			if KindOf(k) == nil {
				t.Errorf("--%s leads to %s, which is not registered", q.Flag, k)
			}
		}
		if says := q.Idle != "" || KindOf(q.Steps[0]).Idle != nil; says != (q.Field != nil) || q.Help == "" || q.Answers == "" {
			t.Errorf("--%s is not whole", q.Flag)
		}
	}
	if KindOf("drop-all") != nil {
		t.Error("a kind that nobody knows is known")
	}
}

// namedKinds returns the kinds that package repair names.
func namedKinds(t *testing.T) (out []repair.Kind) {
	t.Helper()
	text, err := os.ReadFile("../plan.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\t\w+ +Kind = "(.+)"$`).FindAllStringSubmatch(string(text), -1) {
		out = append(out, repair.Kind(m[1]))
	}
	if len(out) < 20 {
		t.Errorf("package repair names %d kinds", len(out))
	}
	return out
}

// TestEditedPlan: a plan edited by hand gives no harmful step, for example one that releases a block
// in use, an owner's own affinity or a live pod's address.
func TestEditedPlan(t *testing.T) {
	tried := map[repair.Kind]int{}
	for seed := range uint64(200) {
		text, _ := randomState(rand.New(rand.NewPCG(seed, 2)))
		st := parseState(t, text, 0)
		never := func(k repair.Kind, target state.Subject, why string) {
			tried[k]++
			if s, _ := Derive(st, everything, repair.StepID(k, target)); s != nil {
				t.Errorf("state %d: %s comes out, though %s", seed, s.ID, why)
			}
		}
		for _, b := range st.IPBlocks {
			if b.Used > 0 && st.BlockObjects(b.CIDR) == 1 {
				never(repair.ReleaseBlock, state.BlockSubject(b), "the block holds addresses")
				never(repair.FinishDelete, state.BlockSubject(b), "the block holds addresses")
			}
		}
		for i := range st.Affinities {
			if a := &st.Affinities[i]; st.BlockObjects(a.CIDR) == 1 && affinity.Classify(a, state.BareOrNil(st.BlockOf(a.CIDR))) == affinity.Confirmed {
				never(repair.DeleteAffinity, state.AffinitySubject(a), "it is the owner's own")
			}
		}
		for i := range st.Workloads {
			for addr := range st.Workloads[i].Addresses {
				never(repair.ReleaseIP, state.IPSubject(addr, ""), "pod "+st.Workloads[i].FullName()+" names the address")
			}
		}
		for i := range st.Handles {
			if len(st.HandleRefs(st.Handles[i].ID)) > 0 {
				never(repair.DeleteHandle, state.HandleSubject(st.Handles[i].ID), "blocks refer to it")
			}
		}
	}
	for _, k := range []repair.Kind{repair.ReleaseBlock, repair.FinishDelete, repair.DeleteAffinity, repair.ReleaseIP, repair.DeleteHandle} {
		if tried[k] < 100 {
			t.Errorf("only %d steps of %s were tried", tried[k], k)
		}
	}
	for _, id := range []string{"", "release-block", "release-block:", "release-block:10.0.0.0", "drop-all:x", "release-ip:x", "set-strict-affinity:default", "finish-delete:Pod:x"} {
		text, _ := randomState(rand.New(rand.NewPCG(1, 2)))
		if s, r := Derive(parseState(t, text, 0), everything, id); s != nil || r != nil {
			t.Errorf("ID %q gives step %v, refusal %v", id, s, r)
		}
	}
}

// TestMissingReads: if a read that a kind requires is missing, no step of the kind is planned or
// derived, and the refusal names the read.
func TestMissingReads(t *testing.T) {
	on := true
	req := everything
	req.StrictAffinity, req.Consolidate = &on, true
	text, _ := randomState(rand.New(rand.NewPCG(4, 4)))
	for _, k := range kinds {
		for _, need := range append([]blocks.Resource{blocks.ClusterInfos}, k.Requires...) {
			snap, err := statedsl.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			snap.Gaps = []blocks.Gap{{Resource: need, Reason: "forbidden"}}
			p := Build(state.New(snap, state.Options{}), req)
			for _, s := range p.Steps {
				if s.Kind == k.Kind {
					t.Errorf("%s is planned though %s could not be read", s.ID, need)
				}
			}
			if !slices.ContainsFunc(p.Refused, func(r repair.Refusal) bool {
				return r.Kind == k.Kind && r.Code == repair.RefusedNotRead && strings.Contains(r.Reason, string(need)+": forbidden")
			}) {
				t.Errorf("%s: no refusal names %s: %+v", k.Kind, need, p.Refused)
			}
			if p.Complete || len(p.Gaps) != 1 {
				t.Errorf("a plan with a gap is called complete, or hides it: %v", p.Gaps)
			}
		}
	}
}

// TestObservations: a step that depends on other objects requires two observations. It pins the
// objects that must not change in between, with their versions. With --observe-twice, every step
// does.
func TestObservations(t *testing.T) {
	pinnedBy := map[repair.Kind][]string{
		repair.DeleteAffinity: {repair.GuardUID, repair.GuardVersion, repair.GuardBlockUID}, repair.DeleteHandle: {repair.GuardUID, repair.GuardVersion},
		repair.FixHandleCount: {repair.GuardUID, repair.GuardVersion, repair.GuardCounts}, repair.ReleaseIP: {repair.GuardBlockUID, repair.GuardHandle, repair.GuardSequence},
		repair.RestoreAffinity: {repair.GuardUID, repair.GuardOwner, repair.GuardAffinity}, repair.DisownBlock: {repair.GuardUID, repair.GuardOwner, repair.GuardAffinity},
		repair.ReleaseWhereabouts: {repair.GuardUID, repair.GuardPod, repair.GuardContainer, repair.GuardReservation}, repair.DeleteWhereaboutsReservation: {repair.GuardUID, repair.GuardVersion},
		repair.RestoreWhereabouts: {repair.GuardUID, repair.GuardReservationUID, repair.GuardPodUID, repair.GuardContainer},
		repair.CreateHandle:       {repair.GuardUID, repair.GuardCounts}, repair.RecordIP: {repair.GuardBlockUID, repair.GuardHandle, repair.GuardPod},
	}
	seen := map[repair.Kind]int{}
	for seed := range uint64(300) {
		text, _ := randomState(rand.New(rand.NewPCG(seed, 3)))
		st := parseState(t, text, 0)
		for _, twice := range []bool{false, true} {
			req := everything
			req.ObserveTwice = twice
			for _, s := range Build(st, req).Steps {
				seen[s.Kind]++
				pins := pinnedBy[s.Kind]
				if s.Kind == repair.ReleaseBlock && st.Vanished(repair.HostOf(s.Guard(repair.GuardOwner))) {
					pins = []string{repair.GuardUID, repair.GuardVersion} // a missing node has no age
				}
				if s.TwoObservations != (twice || pins != nil) {
					t.Fatalf("%s: two observations %t, asked for everywhere %t", s.ID, s.TwoObservations, twice)
				}
				if twice && (s.Kind == repair.ReleaseBlock || s.Kind == repair.FinishDelete) {
					pins = []string{repair.GuardUID, repair.GuardVersion}
				}
				for _, name := range pins {
					if s.Guard(name) == "" || !slices.Contains(KindOf(s.Kind).Exact, name) && KindOf(s.Kind).Loose[name] == nil {
						t.Errorf("state %d: %s is not held to its %s", seed, s.ID, name)
					}
				}
			}
		}
	}
	for k := range pinnedBy {
		if seen[k] == 0 {
			t.Errorf("no step of %s was seen", k)
		}
	}
}

// TestReleasesAreTheReleasable: without filters, a plan releases exactly the blocks that the report
// counts as releasable.
func TestReleasesAreTheReleasable(t *testing.T) {
	released := 0
	for seed := range uint64(300) {
		text, _ := randomState(rand.New(rand.NewPCG(seed, 5)))
		st := parseState(t, strings.ReplaceAll(text, "unpinned", ""), 0)
		var want, got []string
		for _, b := range st.IPBlocks {
			if b.Releasability.OK {
				want = append(want, repair.StepID(repair.ReleaseBlock, state.BlockSubject(b)))
			}
		}
		p := Build(st, repair.Request{EmptyBlocks: true})
		got = stepIDs(p)
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Errorf("state %d: releasable are %v, released %v", seed, want, got)
		}
		released += len(got)
		for i, q := range st.Pools {
			if freed := p.After[i].Blocks.Claimed; q.ReleasableKnown && q.Slots.Claimed.Sub(q.Releasable).Cmp(freed) != 0 {
				t.Errorf("state %d: pool %s has %s of %s blocks releasable, and %s stay claimed", seed, q.Name, q.Releasable, q.Slots.Claimed, freed)
			}
		}
	}
	if released < 100 {
		t.Errorf("only %d blocks were released in all", released)
	}
}

// TestReplaced: an object with another UID replaces a step's target only if it was created later. So
// a step with an invented UID does not count as done.
func TestReplaced(t *testing.T) {
	const before = `
pool pods 10.0.0.0/24
node n1
pod shop/x n1
block 10.0.0.0/26 n1
affinity 10.0.0.0/26 n1
block 10.0.0.64/26 n1
affinity 10.0.0.64/26 n1
affinity 10.0.0.128/26 n1
handle k8s-pod-network.gone
alloc 10.0.0.1 pod=shop/gone node=n1 handle=k8s-pod-network.a seq=20
handle k8s-pod-network.a 10.0.0.0/26=1
view n1 complete
`
	p := Build(parseState(t, before, 0), everything)
	if len(p.Steps) != 4 {
		t.Fatalf("the plan has the steps %v", stepIDs(p))
	}
	for name, c := range map[string]struct {
		state string
		done  bool
	}{
		"nothing was done": {before, false},
		"created again later": {`
block 10.0.0.0/26 n1
alloc 10.0.0.1 pod=shop/new node=n1 handle=k8s-pod-network.new seq=21
block 10.0.0.64/26 n2 uid=new age=1m
affinity 10.0.0.128/26 n1 uid=new age=1m
handle k8s-pod-network.gone uid=new age=1m`, true},
		"others that are older": {`
block 10.0.0.0/26 n1
alloc 10.0.0.1 pod=shop/new node=n1 handle=k8s-pod-network.new seq=19
block 10.0.0.64/26 n2 uid=other age=48h
affinity 10.0.0.128/26 n1 uid=other age=48h
handle k8s-pod-network.gone uid=other age=48h`, false},
		"all is gone": {`node n1`, true},
	} {
		st := parseState(t, c.state, 0)
		for i := range p.Steps {
			if err := KindOf(p.Steps[i].Kind).Verify(st, &p.Steps[i]); (err == nil) != c.done {
				t.Errorf("%s: %s: %v", name, p.Steps[i].ID, err)
			}
		}
	}
}

// TestRefs: a step also reads objects that may be created between plan and apply, by their future
// names.
func TestRefs(t *testing.T) {
	st := parseState(t, `
pool pods 10.0.0.0/24
node n1
pod shop/web n1 10.0.0.1
block 10.0.0.0/26 n1
affinity 10.0.0.0/26 n1
alloc 10.0.0.1 pod=shop/web node=n1 handle=k8s-pod-network.web
alloc 10.0.0.2 pod=shop/gone node=n1 handle=k8s-pod-network.gone
handle k8s-pod-network.gone 10.0.0.0/26=1
block 10.0.0.64/26 n1
affinity 10.0.0.128/26 n2
view n1 complete
`, 0)
	p := Build(st, everything)
	want := map[string][]string{
		"release-block:10.0.0.64/26": {"ipamblocks/10-0-0-64-26", "blockaffinities/n1-10-0-0-64-26", "ipamblocks/10-0-0-0-26",
			"blockaffinities/n1-10.0.0.0/26", "nodes/n1", "pods of n1", "all ippools", "all ipreservations", "clusterinformations/default", "ipamconfigs/default", "namespaces/shop"},
		"release-ip:10.0.0.2": {"ipamblocks/10-0-0-0-26", "ipamhandles/k8s-pod-network.gone", "pods/shop/gone", "pods of n1", "clusterinformations/default"},
		"delete-affinity:n2:10.0.0.128/26": {"blockaffinities/n2-10.0.0.128/26", "blockaffinities/n2-10-0-0-128-26", "ipamblocks/10-0-0-128-26",
			"nodes/n2", "pods of n2"},
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		var got []string
		for _, r := range KindOf(s.Kind).Refs(st, s) {
			switch {
			case r.All():
				got = append(got, fmt.Sprintf("all %s", r.Resource))
			case r.Node != "":
				got = append(got, fmt.Sprintf("%s of %s", r.Resource, r.Node))
			case r.Namespace != "":
				got = append(got, fmt.Sprintf("%s/%s/%s", r.Resource, r.Namespace, r.Name))
			default:
				got = append(got, fmt.Sprintf("%s/%s", r.Resource, r.Name))
			}
		}
		for _, w := range want[s.ID] {
			if !slices.Contains(got, w) {
				t.Errorf("%s does not read %s again, only %v", s.ID, w, got)
			}
		}
		delete(want, s.ID)
	}
	if len(want) > 0 {
		t.Errorf("no steps for %v, only %v", want, stepIDs(p))
	}
}
