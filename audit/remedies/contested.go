package remedies

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Contested is a pool with fewer blocks left than nodes in need, and the nodes that get none. Each
// of these nodes, seen alone, could get a block.
type Contested struct {
	Pool  *state.Pool
	Nodes blocks.Names
	// Remedies add a pool with room for the nodes that get no block.
	Remedies []Remedy
}

func (c *Contested) String() string {
	return fmt.Sprintf("pool %s has no block left for %s", c.Pool.Name, c.Nodes)
}

// Contests lets every node in need claim a block, and returns the nodes that get none. Nodes that
// borrow or have waiting pods claim first, then nodes without a block that could take pods.
func (st *Remedies) Contests() (out []Contested) {
	left, lack := map[*state.Pool]blocks.Count{}, map[*state.Pool][]string{}
	for _, p := range st.Pools {
		left[p] = p.Slots.Allocatable
	}
	var needing []*state.NodeBlockStatus
	for _, h := range st.NodeStates {
		for _, n := range h.BlockStatus {
			if n.Unused == 0 && (suffers(n) || n.NoBlock() && h.Schedulable) && (n.Cause == state.CauseNone || n.Cause.Shortfall()) {
				needing = append(needing, n)
			}
		}
	}
	slices.SortStableFunc(needing, func(a, b *state.NodeBlockStatus) int {
		switch {
		case suffers(a) == suffers(b):
			return 0
		case suffers(a):
			return -1
		}
		return 1
	})
	for _, n := range needing {
		pools := st.PoolsAtIssue(n)
		if len(pools) == 0 || st.HealsItself(n, pools) {
			continue
		}
		if i := slices.IndexFunc(pools, func(p *state.Pool) bool { return !left[p].IsZero() }); i >= 0 {
			left[pools[i]] = left[pools[i]].Sub(blocks.CountOf(1))
		} else {
			lack[pools[0]] = append(lack[pools[0]], n.Host.Name)
		}
	}
	for _, p := range st.Pools {
		if nodes := lack[p]; len(nodes) > 0 {
			slices.Sort(nodes)
			nodes = slices.Compact(nodes)
			out = append(out, Contested{p, nodes, []Remedy{st.addPool([]*state.Pool{p}, len(nodes))}})
		}
	}
	return out
}

// suffers reports whether a pod of the node borrows an address or waits for one.
func suffers(n *state.NodeBlockStatus) bool { return len(n.Borrowed)+len(n.Waiting) > 0 }
