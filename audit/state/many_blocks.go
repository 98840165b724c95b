package state

import (
	"fmt"
	"slices"
	"strings"
)

// NodesHoldingSeveral lists the hosts that hold several blocks of the given pools, those
// with the most first, and the blocks of hosts that are no node.
func (st *State) NodesHoldingSeveral(pools []*Pool) []string {
	type hoard struct {
		host  *NodeState
		cidrs []string
	}
	var all []hoard
	for _, h := range st.NodeStates {
		var cidrs []string
		for _, b := range h.Blocks {
			if slices.Contains(pools, b.Pool) {
				cidrs = append(cidrs, fmt.Sprintf("%s (%s)", b.CIDR, InUseText(b)))
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
		if x.host.Node == nil {
			vanished = ", which no longer exists,"
		}
		out[i] = fmt.Sprintf("%s%s holds %d: %s", x.host.Name, vanished, len(x.cidrs), strings.Join(x.cidrs, ", "))
	}
	return out
}

// CachedNodesHoldingSeveral returns NodesHoldingSeveral with a memory, for asking it of many nodes
// that use the same few sets of pools.
func (st *State) CachedNodesHoldingSeveral() func([]*Pool) []string {
	known := map[string][]string{}
	return func(pools []*Pool) []string {
		key := PoolNames(pools)
		if _, ok := known[key]; !ok {
			known[key] = st.NodesHoldingSeveral(pools)
		}
		return known[key]
	}
}
