package planner

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// fullHolder is a node with a full and an empty block, in a pool with blocks left.
const fullHolder = `
pool pods 10.0.0.0/24 size=28
node a
block 10.0.0.0/28 a
affinity 10.0.0.0/28 a
fill 10.0.0.0/28 16 a
block 10.0.0.16/28 a
affinity 10.0.0.16/28 a
`

// TestGuardsAreChecked: each guard of each kind of step, as "show" prints it, is checked. If the
// plan has another value for it, or none, the step is skipped.
func TestGuardsAreChecked(t *testing.T) {
	seen := map[repair.Kind]map[string]bool{}
	on := true
	for seed := range uint64(300) {
		text, _ := randomState(rand.New(rand.NewPCG(seed, 6)))
		req := everything
		switch {
		case seed == 1:
			text, req.LastBlocks = lastBlocks, true
		case seed == 2:
			text = fullHolder
		case seed%3 == 1:
			text, req = shortState(rand.New(rand.NewPCG(seed, 9)))
		}
		st := parseState(t, text, 0)
		if seed%3 == 0 { // derived from the remains of other steps, so no other step is requested with it
			req = repair.Request{StrictAffinity: &on}
		}
		req.ObserveTwice = seed%2 == 0
		for _, h := range st.NodeStates {
			req.Terminated = append(req.Terminated, h.Name) // only counts if a node is not Ready
		}
		for _, s := range Build(st, req).Steps {
			derived, _ := Derive(st, req, s.ID)
			if derived == nil {
				t.Fatalf("state %d: %s does not come out again", seed, s.ID)
			}
			kind := KindOf(s.Kind)
			if why := kind.Changed(st, &s, derived); why != "" {
				t.Fatalf("state %d: %s is left though nothing has changed: %s", seed, s.ID, why)
			}
			if seen[s.Kind] == nil {
				seen[s.Kind] = map[string]bool{}
			}
			for i, g := range s.Guards {
				seen[s.Kind][g.Name] = true
				for _, other := range otherwise(g.Value) {
					edited := s
					edited.Guards = slices.Clone(s.Guards)
					edited.Guards[i].Value = other
					if kind.Changed(st, &edited, derived) == "" {
						t.Errorf("state %d: %s is not held to its %s: %s for %s", seed, s.ID, g.Name, other, g.Value)
					}
				}
				edited := s
				edited.Guards = slices.Delete(slices.Clone(s.Guards), i, i+1)
				if g.Name != repair.GuardKeepsUID && kind.Changed(st, &edited, derived) == "" {
					t.Errorf("state %d: %s is not held to its %s, which the plan lacks", seed, s.ID, g.Name)
				}
			}
		}
	}
	for _, k := range kinds {
		for _, name := range k.Exact {
			if !seen[k.Kind][name] {
				t.Errorf("%s is held to its %s, which no step has", k.Kind, name)
			}
		}
	}
}

// lastBlocks is a state in which a cordoned node's last block is released for another node.
const lastBlocks = `
pool pods 10.0.0.0/25 size=26
config strict
node n1 cordoned
node n2
node n3
block 10.0.0.0/26 n1
affinity 10.0.0.0/26 n1
block 10.0.0.64/26 n2
affinity 10.0.0.64/26 n2
use 10.0.0.65 shop/a n2
pod shop/b n3 phase=Pending
`

// otherwise returns other possible values of a guard.
func otherwise(value string) []string {
	if at, err := time.Parse(time.RFC3339, value); err == nil {
		return []string{at.Add(-time.Hour).Format(time.RFC3339), at.Add(time.Second).Format(time.RFC3339)}
	}
	if value == repair.Absent {
		return []string{"10.255.0.0/28"}
	}
	return []string{repair.Absent, value + "x"}
}

// TestKeptIsAnother: the plan names a block that the node keeps. If the node would now keep another
// one, the step still runs while the named block exists. If that block is lost or recreated, the
// step is skipped.
func TestKeptIsAnother(t *testing.T) {
	const before = `
pool pods 10.0.0.0/24 size=28
node n1
pod shop/x n1 10.0.0.33
block 10.0.0.0/28 n1
affinity 10.0.0.0/28 n1
block 10.0.0.16/28 n1
affinity 10.0.0.16/28 n1
block 10.0.0.32/28 n1 uid=KEPT
affinity 10.0.0.32/28 n1
alloc 10.0.0.33 pod=shop/x node=n1 handle=k8s-pod-network.x
`
	const id = "release-block:10.0.0.16/28"
	planned, _ := Derive(parseState(t, before, 0), repair.Request{EmptyBlocks: true}, id)
	if planned == nil || planned.Guard(repair.GuardKeeps) != "10.0.0.32/28" || planned.Guard(repair.GuardKeepsUID) != "KEPT" {
		t.Fatalf("planned is %+v", planned)
	}
	used := "use 10.0.0.1 shop/y n1\n"
	for name, c := range map[string]struct {
		state string
		held  bool
	}{
		"as it was":                        {before, true},
		"a lower block is in use by now":   {before + used, true},
		"the kept block was created again": {strings.Replace(before, "KEPT", "other", 1), false},
		"the kept block is lost":           {strings.Replace(strings.Replace(before, "alloc 10.0.0.33", "alloc 10.0.0.1", 1), "block 10.0.0.32/28 n1 uid=KEPT", "", 1), false},
		"the kept block is another node's": {strings.Replace(before, "block 10.0.0.32/28 n1", "block 10.0.0.32/28 n2", 1) + used, false},
	} {
		st := parseState(t, c.state, 0)
		derived, refusal := Derive(st, repair.Request{EmptyBlocks: true}, id)
		if derived == nil {
			t.Errorf("%s: refused: %+v", name, refusal)
			continue
		}
		if why := releaseBlock.Changed(st, planned, derived); (why == "") != c.held {
			t.Errorf("%s: held to: %q", name, why)
		}
		if ref, err := keptRef(st, derived); err != nil || ref == nil || ref.Resource != blocks.Blocks {
			t.Errorf("%s: kept is %+v, %v", name, ref, err)
		}
	}
}
