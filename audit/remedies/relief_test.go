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
