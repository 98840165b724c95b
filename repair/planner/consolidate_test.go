package planner

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/moves"
)

const emptying = `
pool pods 10.0.0.0/28 size=29
node a
node new
budget none
block 10.0.0.0/29 a
affinity 10.0.0.0/29 a
block 10.0.0.8/29 a
affinity 10.0.0.8/29 a
use 10.0.0.1 shop/web-1 a of=ReplicaSet/web ready
use 10.0.0.9 shop/web-2 a of=ReplicaSet/web ready
use 10.0.0.10 shop/web-3 a of=ReplicaSet/web ready
use 10.0.0.2 shop/borrower new of=ReplicaSet/web ready
`

// TestEmptiedBlockIsReleased: even with --observe-twice, the release of the block names no resource
// version, because each eviction changes it.
func TestEmptiedBlockIsReleased(t *testing.T) {
	p := Build(parseState(t, emptying, 0), repair.Request{Consolidate: true, CordonFull: true, ObserveTwice: true})
	i := slices.IndexFunc(p.Steps, func(s repair.Step) bool { return s.Kind == repair.ReleaseBlock })
	if i < 0 {
		t.Fatalf("no block is released, but %v; refused: %+v", stepIDs(p), p.Refused)
	}
	if v := p.Steps[i].Guard(repair.GuardVersion); v != "" {
		t.Errorf("%s is held to version %s, which each eviction changes", p.Steps[i].ID, v)
	}
}

// TestExactFitIsSaid: if one more pod would stop a consolidation half-way, its plan warns before
// anything is evicted.
func TestExactFitIsSaid(t *testing.T) {
	for taken, want := range map[int]bool{0: false, 2: false, 3: true} {
		text := emptying
		for i := range taken {
			text += fmt.Sprintf("use 10.0.0.%d shop/more-%d a of=ReplicaSet/more ready\n", 11+i, i)
		}
		p := Build(parseState(t, text, 0), repair.Request{Consolidate: true, CordonFull: true})
		if len(p.Steps) == 0 {
			t.Fatalf("%d taken: nothing is planned: %+v", taken, p.Refused)
		}
		said := slices.ContainsFunc(p.Warnings, func(w string) bool {
			return strings.Contains(w, "room for exactly the pods that move out of 10.0.0.0/29 (2)")
		})
		if said != want {
			t.Errorf("%d taken: said %t; warnings %q, steps %v", taken, said, p.Warnings, stepIDs(p))
		}
	}
}

// TestEarlierOneIsTakenBackFirst: while a node carries the mark of an earlier consolidation, the
// plan removes its cordon and starts no other consolidation.
func TestEarlierOneIsTakenBackFirst(t *testing.T) {
	text := strings.Replace(emptying, "node new", "node new cordoned mine=10.0.0.99/32,a,other", 1)
	p := Build(parseState(t, text, 0), repair.Request{Consolidate: true, CordonFull: true})
	if len(p.Steps) != 1 || p.Steps[0].Kind != repair.UncordonNode || len(p.Refused) != 1 || !strings.Contains(p.Refused[0].Reason, "node new carries the annotation of an earlier consolidation") {
		t.Errorf("steps %v, refused %+v", stepIDs(p), p.Refused)
	}
}

// TestEditedReservation: a reservation with edited CIDRs no longer protects the block, so no pod is
// evicted for it.
func TestEditedReservation(t *testing.T) {
	text := strings.Replace(emptying, "node new", "node new cordoned mine=10.0.0.0/29,a,new", 1)
	for _, edited := range []bool{false, true} {
		st := parseState(t, text+"reserve 10.0.0.0/29 mine=a,new\n", 0)
		p := Build(st, repair.Request{Consolidate: true, CordonFull: true})
		i := slices.IndexFunc(p.Steps, func(s repair.Step) bool { return s.Kind == repair.EvictPod })
		if i < 0 {
			t.Fatalf("steps %v, refused %+v", stepIDs(p), p.Refused)
		}
		if edited {
			st.Reservations[0].CIDRs[0] = netip.MustParsePrefix("10.7.0.0/29")
		}
		turn := &repair.Turn{Site: &repair.Site{State: st}, Plan: p, Waits: map[string]time.Time{}, EvictTimeout: time.Minute, Stands: 1}
		_, r := moves.AfterReservation(turn, &p.Steps[i])
		if strings.Contains(r.Why, "the block is not reserved") != edited {
			t.Errorf("edited: %t, and yet %q", edited, r.Why)
		}
		if r := moves.WouldBorrow(turn, &p.Steps[i]); (r.Code != "") != edited {
			t.Errorf("edited: %t, and yet %q", edited, r.Why)
		}
		if st.Reservations[0].Ours = "10.0.0.0/29 from a for other"; !edited {
			if _, r := moves.AfterReservation(turn, &p.Steps[i]); !strings.Contains(r.Why, "the block is not reserved") {
				t.Errorf("reserved for another node, and yet %q", r.Why)
			}
		}
		p.Steps[i].Target.IP = "10.0.0" // in a journal that people edited
		if r := moves.WouldBorrow(turn, &p.Steps[i]); r.Code != repair.RefusedCorrupt || !strings.Contains(r.Why, `"10.0.0"`) {
			t.Errorf("an address that is none: %+v", r)
		}
	}
}

// TestBlockAskedForIsNotEmptied: if the block of --block cannot be emptied, the plan explains why and
// names the blocks that can be. If nothing retains the block, it only names the others.
func TestBlockAskedForIsNotEmptied(t *testing.T) {
	text := strings.Replace(emptying, "shop/web-1 a of=ReplicaSet/web ready", "shop/db-0 a of=StatefulSet/db ready claim", 1)
	for cidr, want := range map[string]string{
		"10.0.0.0/29":  "10.0.0.8/29 could be emptied for new, but --pool, --node, --ip or --block exclude it; 10.0.0.0/29 of a: 10.0.0.1: pod shop/db-0 has storage",
		"10.0.0.16/29": "10.0.0.8/29 could be emptied for new, but --pool, --node, --ip or --block exclude it",
	} {
		p := Build(parseState(t, text, 0), repair.Request{Consolidate: true, CordonFull: true, Blocks: []netip.Prefix{netip.MustParsePrefix(cidr)}})
		if len(p.Steps) != 0 || len(p.Refused) != 1 || p.Refused[0].Code != repair.RefusedNothing || !strings.HasPrefix(p.Refused[0].Reason, want) {
			t.Errorf("%s: steps %v, refused %+v, not %q", cidr, stepIDs(p), p.Refused, want)
		}
	}
}

// TestPodsStayWithoutBudgets: in a live cluster, no pod is rehomed if the repair could not read
// PodDisruptionBudgets. A report never reads them and recommends it nonetheless, so this state is
// not in testdata.
func TestPodsStayWithoutBudgets(t *testing.T) {
	const text = `
pool pods 10.0.0.0/27 size=29
node a
node b
block 10.0.0.0/29 a
affinity 10.0.0.0/29 a
block 10.0.0.8/29 b
affinity 10.0.0.8/29 b
use 10.0.0.1 shop/web-1 a of=ReplicaSet/web ready
use 10.0.0.2 shop/web-2 b of=ReplicaSet/web ready
`
	for _, more := range []string{"live", "live\nbudget none", ""} {
		p := Build(parseState(t, more+text, 0), repair.Request{Rehome: true})
		if moves := len(p.Steps) > 0; moves != (more != "live") {
			t.Errorf("%q: steps %+v, refused %+v", more, p.Steps, p.Refused)
		}
	}
}

// TestRehomeMovesAll: a pod without room on its own node moves to another node in the same run,
// once its own node is full and cordoned. With strict affinity it stays and is named.
func TestRehomeMovesAll(t *testing.T) {
	text := strings.Replace(emptying, "pool pods", "block 10.0.0.16/29 new\naffinity 10.0.0.16/29 new\nfill 10.0.0.16/29 7 new\npool more 10.0.0.16/29 size=29\npool pods", 1)
	text += "use 10.0.0.3 shop/second new of=ReplicaSet/web ready\n"
	for more, want := range map[string]struct {
		steps   string
		refused bool
	}{
		"":                {"evict-pod:10.0.0.2 evict-pod:10.0.0.3 cordon-node:new uncordon-node:new", false},
		"config strict\n": {"evict-pod:10.0.0.2", true},
	} {
		p := Build(parseState(t, more+text, 0), repair.Request{Rehome: true, CordonFull: true})
		named := slices.ContainsFunc(p.Refused, func(r repair.Refusal) bool {
			return strings.Contains(r.Reason, "no address of its own for pod shop/second")
		})
		if got := strings.Join(stepIDs(p), " "); got != want.steps || named != want.refused {
			t.Errorf("with %q: steps %s, refused %+v", more, got, p.Refused)
		}
		if !want.refused && !slices.Equal(p.MayFill, []string{"new"}) {
			t.Errorf("may fill: %v", p.MayFill)
		}
	}
}

// TestCordonOfRehomingIsNoConsolidation: a consolidation may start while a rehoming's cordon is left,
// but not while another consolidation's is.
func TestCordonOfRehomingIsNoConsolidation(t *testing.T) {
	for node, starts := range map[string]bool{"": true, "node left mine=rehome cordoned\n": true, "node left mine=10.0.0.0/29,a,new cordoned\n": false} {
		p := Build(parseState(t, node+emptying, 0), repair.Request{Consolidate: true, CordonFull: true})
		if got := slices.ContainsFunc(p.Steps, func(s repair.Step) bool { return s.Kind == repair.ReserveBlock }); got != starts {
			t.Errorf("with %q: steps %v, refused %+v", node, stepIDs(p), p.Refused)
		}
	}
}

// TestBarePodIsNotMadeAgain: no controller recreates a bare pod. The refusal says so, and with
// consent, the step and the warning do.
func TestBarePodIsNotMadeAgain(t *testing.T) {
	text := strings.Replace(emptying, "pool pods", "block 10.0.0.16/29 new\naffinity 10.0.0.16/29 new\npool more 10.0.0.16/29 size=29\npool pods", 1)
	text = strings.Replace(text, "borrower new of=ReplicaSet/web", "borrower new", 1)
	p := Build(parseState(t, text, 0), repair.Request{Rehome: true})
	if len(p.Steps) > 0 || len(p.Refused) != 1 || !strings.Contains(p.Refused[0].Reason, "gone for good") {
		t.Errorf("steps %v, refused %+v", stepIDs(p), p.Refused)
	}
	p = Build(parseState(t, text, 0), repair.Request{Rehome: true, EvictSingletons: true})
	if len(p.Steps) != 1 || !strings.Contains(p.Steps[0].Because, "gone for good") || strings.Contains(p.Steps[0].Because, "replacement") ||
		!slices.ContainsFunc(p.Warnings, func(w string) bool {
			return strings.Contains(w, "without a controller, which nothing recreates: shop/borrower")
		}) {
		t.Errorf("steps %+v, warnings %q, refused %+v", p.Steps, p.Warnings, p.Refused)
	}
}

// TestPodOfBothFamiliesMovesOnce: a pod that borrows an address of each family is evicted once,
// for whichever address is requested.
func TestPodOfBothFamiliesMovesOnce(t *testing.T) {
	st := parseState(t, "budget none\nnode a\npool pods 10.0.0.0/29 size=30\npool six fd00::/125 size=126\nblock 10.0.0.0/30 gone\nalloc 10.0.0.0 pod=shop/x node=a handle=x\n"+
		"block fd00::/126 gone\nalloc fd00:: pod=shop/x node=a handle=x\npod shop/x a 10.0.0.0,fd00:: of=ReplicaSet/web ready\n"+
		"block 10.0.0.4/30 a\naffinity 10.0.0.4/30 a\nblock fd00::4/126 a\naffinity fd00::4/126 a\n", 0)
	for pool, want := range map[string]string{"": "evict-pod:10.0.0.0", "six": "evict-pod:fd00::"} {
		req := repair.Request{Rehome: true, EvictSingletons: true}
		if pool != "" {
			req.Pools = []string{pool}
		}
		if p := Build(st, req); !slices.Equal(stepIDs(p), []string{want}) || len(p.Refused) > 0 {
			t.Errorf("pool %q: steps %v, refused %+v", pool, stepIDs(p), p.Refused)
		}
	}
}
