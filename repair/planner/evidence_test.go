package planner

import (
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// TestSameEvidence: if a step relies on a machine that is off, the machine must be off in both
// observations. A host view may appear or disappear in between.
func TestSameEvidence(t *testing.T) {
	const world = `
pool p 10.0.0.0/24
node n1 NODE
pod a/b n1
block 10.0.0.0/26 n1
affinity 10.0.0.0/26 n1
alloc 10.0.0.9 pod=a/gone node=n1 handle=h
`
	with := func(node, more string) string { return strings.Replace(world, "NODE", node, 1) + more }
	for name, c := range map[string]struct {
		before, after string
		req           repair.Request
		same          bool
	}{
		"a view, and a view":              {with("", "view n1 complete\n"), with("", "view n1 complete\n"), repair.Request{}, true},
		"a view, and the consent":         {with("", "view n1 complete\n"), with("", ""), repair.Request{WithoutHostEvidence: true}, true},
		"the taint, and the taint":        {with("notready outofservice", ""), with("notready outofservice", ""), repair.Request{}, true},
		"a view, and the taint":           {with("", "view n1 complete\n"), with("notready outofservice", ""), repair.Request{}, false},
		"the taint, and a view":           {with("notready outofservice", ""), with("", "view n1 complete\n"), repair.Request{}, false},
		"terminated, and Ready again":     {with("notready", ""), with("", "view n1 complete\n"), repair.Request{Terminated: []string{"n1"}}, false},
		"terminated, and Ready, consent":  {with("notready", ""), with("", ""), repair.Request{Terminated: []string{"n1"}, WithoutHostEvidence: true}, false},
		"terminated, and terminated":      {with("notready", ""), with("notready outofservice", ""), repair.Request{Terminated: []string{"n1"}}, true},
		"terminated, and the Node's gone": {with("notready", ""), strings.Replace(with("", ""), "node n1 ", "node n2", 1), repair.Request{Terminated: []string{"n1"}}, true},
	} {
		c.req.LeakedIPs = true
		planned, refused := Derive(parseState(t, c.before, 0), c.req, "release-ip:10.0.0.9")
		now, refusedNow := Derive(parseState(t, c.after, 0), c.req, "release-ip:10.0.0.9")
		if planned == nil || now == nil {
			t.Errorf("%s: not derived: %+v, %+v", name, refused, refusedNow)
			continue
		}
		if why := releaseIP.Changed(parseState(t, c.after, 0), planned, now); (why == "") != c.same {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// TestUnansweredNodes: "--terminated all" means the nodes that do not answer and that left
// allocations.
func TestUnansweredNodes(t *testing.T) {
	st := parseState(t, `
pool p 10.0.0.0/24
node n1
node n2 notready
node n3 notready
node n4 notready
pod a/b n1
pod a/c n4 10.0.0.4
block 10.0.0.0/26 n1
alloc 10.0.0.1 pod=a/gone node=n1 handle=h1
alloc 10.0.0.2 pod=a/gone node=n2 handle=h2
alloc 10.0.0.4 pod=a/c node=n4 handle=h4
alloc 10.0.0.5 pod=a/gone node=n9 handle=h5
alloc 10.0.0.6 pod=a/gone2 node=n9 handle=h6
alloc 10.0.0.7 pod=a/gone handle=h7
`, 0)
	if got := UnansweredNodes(st, repair.Request{}); !slices.Equal(got, []string{"n2", "n9"}) {
		t.Errorf("they are %v", got)
	}
	// Addresses of secondary networks name no node, so any node may have left them.
	st = parseState(t, `
pool p 10.0.0.0/24
node n1
node n2 notready
pod a/b n1
pod a/c n8 10.0.0.4
nad a/fast 10.9.0.0/24
wpool 10.9.0.0-24 10.9.0.0/24
walloc 10.9.0.0-24 10.9.0.5 a/gone id=c5 if=net1
`, 0)
	for _, c := range []struct {
		req  repair.Request
		want []string
	}{{repair.Request{LeakedIPs: true}, nil}, {repair.Request{WhereaboutsStranded: true}, []string{"n2", "n8"}}} {
		if got := UnansweredNodes(st, c.req); !slices.Equal(got, c.want) {
			t.Errorf("%+v: they are %v", c.req, got)
		}
	}
}

// TestLeaves: a node without an object has left something behind if an allocation names it. It may
// also have left addresses of secondary networks, which name no node.
func TestLeaves(t *testing.T) {
	const cluster = "pool p 10.0.0.0/24\nnode n1\nblock 10.0.0.0/26 n1\nalloc 10.0.0.1 pod=a/gone node=n8 handle=h1\nalloc 10.0.0.2 pod=a/gone node=n1 handle=h2\npod a/b n7\n"
	for world, want := range map[string][]string{
		cluster: {"n1", "n8"},
		cluster + "nad a/fast 10.9.0.0/24\nwpool 10.9.0.0-24 10.9.0.0/24\nwalloc 10.9.0.0-24 10.9.0.5 a/gone id=c5 if=net1\n": {"n1", "n7", "n8"},
	} {
		var got []string
		for _, node := range []string{"n1", "n7", "n8", "n9"} {
			if Leaves(parseState(t, world, 0), node) {
				got = append(got, node)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v have left something, want %v\n%s", got, want, world)
		}
	}
}

// TestMachineOffIsReadAgain: a machine is off only while its node is not Ready. A step that depends
// on that reads the node again, even if the address does not name its node.
func TestMachineOffIsReadAgain(t *testing.T) {
	st := parseState(t, `pool pods 10.0.0.0/24
node n1
view n1 complete
node n9 notready
nad shop/fast 10.9.0.0/24
block 10.0.0.64/26 n9
affinity 10.0.0.64/26 n9
alloc 10.0.0.70 pod=shop/leaked node=n9 handle=h
affinity 10.0.0.128/26 n8
wpool 10.9.0.0-24 10.9.0.0/24 age=3h
walloc 10.9.0.0-24 10.9.0.5 shop/gone id=c5 if=net1
wres 10.9.0.7 shop/left age=3h
`, 0)
	p := Build(st, repair.Request{WhereaboutsStranded: true, LeakedIPs: true, Terminated: []string{"n9", "n8"}})
	if len(p.Steps) != 3 {
		t.Fatalf("planned are %v; refused: %+v", stepIDs(p), p.Refused)
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		off := strings.Split(strings.ReplaceAll(s.Guard(repair.GuardMachineOff), "--terminated ", ""), ", ")
		if s.Kind != repair.ReleaseIP && len(off) != 2 {
			t.Errorf("%s rests on %d machines being off, want 2", s.ID, len(off))
		}
		for _, node := range off {
			if !slices.Contains(KindOf(s.Kind).Refs(st, s), blocks.Ref{Resource: blocks.Nodes, Name: node}) {
				t.Errorf("%s rests on %q being off, and does not read that node again", s.ID, node)
			}
		}
	}
}
