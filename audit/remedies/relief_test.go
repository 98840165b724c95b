package remedies_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestEachShortageHasItsOwnConsolidation: of two shortages in different pools, each is relieved for
// a node of its own.
func TestEachShortageHasItsOwnConsolidation(t *testing.T) {
	var text strings.Builder
	text.WriteString("budget none\n")
	for i, g := range []string{"a", "b"} {
		fmt.Fprintf(&text, "pool p%[1]s 10.%[2]d.0.0/27 size=29 nodes=g==%[1]q\nnode new-%[1]s label=g=%[1]s\nnode old-%[1]s label=g=%[1]s\n", g, i)
		for n, used := range []int{1, 2, 3, 3} {
			fmt.Fprintf(&text, "block 10.%[1]d.0.%[2]d/29 old-%[3]s age=3h\naffinity 10.%[1]d.0.%[2]d/29 old-%[3]s age=3h\n", i, 8*n, g)
			for k := range used {
				fmt.Fprintf(&text, "use 10.%d.0.%d shop/%s%d%d old-%s of=ReplicaSet/%s ready\n", i, 8*n+k, g, n, k, g, g)
			}
		}
		fmt.Fprintf(&text, "use 10.%d.0.27 shop/lent-%s new-%s of=ReplicaSet/%s ready\n", i, g, g, g)
	}
	for _, g := range []string{"a", "b"} {
		found := 0
		for _, r := range remediesOf(t, text.String(), "shortage/p"+g) {
			if strings.HasPrefix(r.Title, "empty ") {
				found++
				if !strings.Contains(r.Title, " of old-"+g+" for new-"+g+" ") {
					t.Errorf("shortage of p%s: %s", g, r.Title)
				}
			}
		}
		if found != 1 {
			t.Errorf("shortage of p%s: %d consolidations", g, found)
		}
	}
}

// TestVanishedNodesFreeBlocksOfTheirPool: what a vanished node left in another pool relieves no
// shortage of this one.
func TestVanishedNodesFreeBlocksOfTheirPool(t *testing.T) {
	const text = `pool pa 10.0.0.0/26 nodes=g=="a"
pool pb 10.1.0.0/26 nodes=g=="b"
node n1 label=g=a
node n2 label=g=a
node m1 label=g=b
block 10.0.0.0/26 n1 age=3h
affinity 10.0.0.0/26 n1 age=3h
use 10.0.0.1 shop/a n1
use 10.0.0.2 shop/b n2
block 10.1.0.0/26 v age=3h
affinity 10.1.0.0/26 v age=3h
alloc 10.1.0.2 pod=shop/gone node=v handle=k8s-pod-network.bb age=3h
view v complete
`
	for pool, frees := range map[string]bool{"pa": false, "pb": true} {
		found := false
		for _, r := range remediesOf(t, text, "shortage/"+pool) {
			found = found || strings.Contains(strings.Join(r.Commands, " "), "--leaked-ips")
		}
		if found != frees {
			t.Errorf("shortage of %s: cleaning up after v is offered: %v", pool, found)
		}
	}
}

// TestUnpinnedPodsAreRestarted: an address that no block records cannot be recorded without the
// container's ID, so the pod restarts.
func TestUnpinnedPodsAreRestarted(t *testing.T) {
	all := remediesOf(t, `pool pods 10.0.0.0/24 size=28
node n1
block 10.0.0.0/28 n1 age=3h
affinity 10.0.0.0/28 n1 age=3h
use 10.0.0.1 shop/a n1
pod shop/b n1 10.0.0.5 of=ReplicaSet/b
pod shop/c n1 10.0.0.6 of=ReplicaSet/c cid=cc
`, "unrecorded")
	var titles []string
	for _, r := range all {
		titles = append(titles, r.Title)
	}
	if text := strings.Join(titles, "\n"); len(all) != 2 || !strings.Contains(text, "containerID: shop/b") {
		t.Errorf("got %s", text)
	}
}
