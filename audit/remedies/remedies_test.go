package remedies_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

func remediesOf(t *testing.T, text, root string) []remedies.Remedy {
	t.Helper()
	snap, err := statedsl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	r := remedies.Of(state.New(snap, state.Options{})).Root(root)
	if r == nil {
		t.Fatalf("there is no root %s", root)
	}
	return r.Remedies()
}

// apart has a node x whose only borrowing pod is a single replica. Node new, in other pools, is
// short of blocks and can have a borrowing pod of its own.
const apart = `pool pa 10.1.0.0/24 size=28 nodes=g=="a"
pool pb 10.0.0.0/28 size=30 nodes=g=="b"
node x label=g=a
node y label=g=a
node a label=g=b
node new label=g=b
budget none
block 10.1.0.0/28 y age=3h
affinity 10.1.0.0/28 y age=3h
block 10.1.0.16/28 x age=3h
affinity 10.1.0.16/28 x age=3h
use 10.1.0.1 shop/only x of=ReplicaSet/only ready
block 10.0.0.0/30 a age=3h
affinity 10.0.0.0/30 a age=3h
block 10.0.0.4/30 a age=3h
affinity 10.0.0.4/30 a age=3h
block 10.0.0.8/30 a age=3h
affinity 10.0.0.8/30 a age=3h
block 10.0.0.12/30 a age=3h
affinity 10.0.0.12/30 a age=3h
fill 10.0.0.4/30 3 a
fill 10.0.0.8/30 3 a
fill 10.0.0.12/30 3 a
`

// TestConsentIsForAllThatBorrow: the consent for one single replica covers every pod that the
// command evicts. So the advice counts all of them, and ends no bare pod that it does not name.
func TestConsentIsForAllThatBorrow(t *testing.T) {
	for name, c := range map[string]struct{ other, command, title, risk string }{
		"nobody else": {"", "calico-audit repair --rehome --evict-singletons", remedies.Rehome.Title, "; pods without replica: 1"},
		"another alone": {"use 10.0.0.1 shop/lone new of=ReplicaSet/lone ready\n", "calico-audit repair --rehome --evict-singletons",
			remedies.Rehome.Title, "; pods without replica: 2"},
		"a bare pod":     {"use 10.0.0.1 shop/bare new ready\n", "", "restart these pods by hand, each only if another node can take it, because plans must not evict them: shop/only", ""},
		"one that stays": {"use 10.0.0.1 shop/bare new ready noevict\n", "calico-audit repair --rehome --evict-singletons", remedies.Rehome.Title, "; pods without replica: 1"},
	} {
		r := remediesOf(t, apart+c.other, "borrowed")[0]
		if command := strings.Join(r.Commands, "\n"); r.Title != c.title || c.command == "" != r.Manual || !strings.HasPrefix(command, c.command) || !strings.Contains(r.Risk, c.risk) {
			t.Errorf("%s: got %q %q, by hand %v, risk %q", name, r.Title, command, r.Manual, r.Risk)
		}
	}
}

// TestConsentIsForNamelessAddresses: the operator's confirmation covers only addresses that name no
// node; host views of the nodes that answer show theirs unused. An address without proof that it is
// unused stays, and so does its block.
func TestConsentIsForNamelessAddresses(t *testing.T) {
	const left = `pool pods 10.0.0.0/24 size=28
node n1
block 10.0.0.0/28 v age=3h
affinity 10.0.0.0/28 v age=3h
block 10.0.0.16/28 n1 age=3h
affinity 10.0.0.16/28 n1 age=3h
use 10.0.0.17 shop/ok n1
alloc 10.0.0.1 pod=shop/gone1 handle=k8s-pod-network.aa age=3h
alloc 10.0.0.3 pod=shop/gone3 handle=k8s-pod-network.cc age=3h
alloc 10.0.0.2 pod=shop/gone2 node=n1 handle=k8s-pod-network.bb age=3h
`
	nameless := "calico-audit repair --leaked-ips --ip 10.0.0.1,10.0.0.3 --without-host-evidence"
	for _, c := range []struct {
		view, effect string
		commands     []string
		yield        remedies.Yield
	}{
		{"", "leaked addresses released: 2; addresses that stay: 1 (repair lists them)", []string{nameless}, remedies.Yield{Addresses: 2}},
		{"view n1 complete\n", "leaked addresses released: 3; blocks to claim: 1 of 1",
			[]string{nameless, "calico-audit repair --leaked-ips --block 10.0.0.0/28", "calico-audit repair --dead-nodes --node v"}, remedies.Yield{Addresses: 3, Blocks: 1}},
	} {
		r := remediesOf(t, left+c.view, "vanished")[0]
		if !slices.Equal(r.Commands, c.commands) || !r.Manual || r.Yield == nil || *r.Yield != c.yield || r.Effect != c.effect || !strings.Contains(r.Risk, "outlived its pod") {
			t.Errorf("%q: got %q, %q, %+v, effect %q, risk %q", c.view, r.Title, r.Commands, r.Yield, r.Effect, r.Risk)
		}
	}
}

// TestNoBlockOfUnrecordedUses: no remedy promises that a block is free once its leaked addresses are
// released, if another address is in use without a record, or another object contradicts the block.
func TestNoBlockOfUnrecordedUses(t *testing.T) {
	const left = "pool pods 10.0.0.0/24 size=28\nnode n1\nblock 10.0.0.0/28 v age=3h\naffinity 10.0.0.0/28 v age=3h\nalloc 10.0.0.2 pod=shop/gone node=v handle=k8s-pod-network.bb age=3h\nview v complete\n"
	for more, blocks := range map[string]int{
		"":                         1,
		"pod shop/x n1 10.0.0.5\n": 0,
		"netns v 7 10.0.0.5\n":     0,
		"affinity 10.0.0.0/28 v age=3h name=again\n":              0,
		"block 10.0.0.0/28 v age=3h name=again\n":                 0,
		"gap ipamblocks name=odd cidr=10.0.0.0/28 it is broken\n": 0,
	} {
		all := remediesOf(t, left+more, "vanished")
		if len(all) == 0 && blocks > 0 {
			t.Errorf("%q: no remedy", more)
		}
		for _, r := range all {
			if got := r.Yield; got == nil && blocks > 0 || got != nil && got.Blocks != blocks {
				t.Errorf("%q: %q promises %+v, not %d blocks", more, r.Title, got, blocks)
			}
		}
	}
}
