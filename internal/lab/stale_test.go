package lab

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/calico-audit/calico-audit/internal/testenv"
)

func TestStaleAffinities(t *testing.T) {
	d := store(t)
	all := StaleTopologies()
	pairs := slices.Collect(slices.Chunk(all, 2)) // with either order of the router IDs
	topologies := slices.Concat(testenv.Sample(t, len(pairs)/3, pairs)...)
	var mu sync.Mutex
	rows := map[int][]StaleRow{}
	t.Run("affinity", func(t *testing.T) {
		for i, topology := range topologies {
			name := fmt.Sprintf("%s, %s, reversed=%t", topology.Name, topology.Stale[0], topology.Reversed)
			t.Run(name, func(t *testing.T) {
				plan, err := d.Plan(t.Context(), topology)
				must(t, err)
				t.Parallel()
				l, err := Start(t, plan)
				must(t, err)
				measured, err := l.MeasureStale(t.Context())
				must(t, err)
				for _, r := range measured {
					agreeStale(t, topology.Stale[0], r)
				}
				mu.Lock()
				defer mu.Unlock()
				rows[i] = measured
			})
		}
	})
	document(t, staleTable(rows), len(topologies) == len(all))
}

// agreeStale checks that packets, kernel, host view and finding agree.
//
// The audit ignores the labels: calico-node and the CNI plugin add them whenever they
// start, and a confd that reads from Typha does not need them.
func agreeStale(t *testing.T, stale Stale, r StaleRow) {
	t.Helper()
	drops := r.Kernel == "blackhole"
	if drops == r.FromNode {
		t.Errorf("%s: packets of the affinity's node are %s, but its kernel says %q", r.Family, arrives(r.FromNode), r.Kernel)
	}
	if want := map[bool]string{true: "critical", false: "none"}[drops]; r.ForeignBlackhole != want {
		t.Errorf("%s: the kernel says %q, and route/stray-blackhole is %s, not %s", r.Family, r.Kernel, r.ForeignBlackhole, want)
	}
	if want := map[bool]string{true: "critical", false: "error"}[drops || stale.Unlabelled]; r.NotOwner != want {
		t.Errorf("%s: the kernel says %q, and affinity/not-owner is %s, not %s (%s)", r.Family, r.Kernel, r.NotOwner, want, r.Effect)
	}
	if said := strings.Contains(r.Effect, "and announces the block"); said != (r.Announced || stale.Unlabelled) {
		t.Errorf("%s: announced is %t, and the finding says: %s", r.Family, r.Announced, r.Effect)
	}
	t.Logf("%s: %+v", r.Family, r)
}
