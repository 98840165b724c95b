package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
)

// nodesHoldingSeveral lists the hosts that hold several blocks of the given pools, those with the
// most first, and the blocks of hosts that are not nodes.
func nodesHoldingSeveral(st *state.State, pools []*state.Pool) []string {
	type hoard struct {
		host  *state.NodeState
		cidrs []string
	}
	var all []hoard
	for _, h := range st.NodeStates {
		var cidrs []string
		for _, b := range h.Blocks {
			if slices.Contains(pools, b.Pool) {
				cidrs = append(cidrs, fmt.Sprintf("%s (%d in use)", b.CIDR, b.Used))
			}
		}
		if len(cidrs) > 1 || h.Node == nil && len(cidrs) > 0 {
			all = append(all, hoard{h, cidrs})
		}
	}
	slices.SortStableFunc(all, func(a, b hoard) int { return len(b.cidrs) - len(a.cidrs) })
	out := make([]string, len(all))
	for i, x := range all {
		vanished := ""
		if x.host.Node == nil && st.NodesRead() && st.Vanished(x.host.Name) {
			vanished = ", which no longer exists,"
		}
		out[i] = fmt.Sprintf("%s%s holds %d: %s", x.host.Name, vanished, len(x.cidrs), strings.Join(x.cidrs, ", "))
	}
	return out
}

// cachedNodesHoldingSeveral caches nodesHoldingSeveral, for many nodes that use the same few sets
// of pools.
func cachedNodesHoldingSeveral(st *state.State) func([]*state.Pool) []string {
	known := map[string][]string{}
	return func(pools []*state.Pool) []string {
		key := state.PoolNames(pools)
		if _, ok := known[key]; !ok {
			known[key] = nodesHoldingSeveral(st, pools)
		}
		return known[key]
	}
}

// cachedScarce returns a function that reports whether a pool has no block left to claim, and no
// other pool helps all nodes that it serves. It caches the answers for many blocks of the same
// pools.
func cachedScarce(st *state.State) func(*state.Pool) bool {
	known := map[*state.Pool]bool{nil: false}
	return func(p *state.Pool) bool {
		if _, ok := known[p]; !ok {
			known[p] = p.OutOfBlocks() && !st.Relieved(p, (*state.Pool).HasBlocks)
		}
		return known[p]
	}
}
