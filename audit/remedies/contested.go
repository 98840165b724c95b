package remedies

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Contested is a pool that has fewer blocks left than there are nodes that need one, and
// the nodes that come too late: each by itself looks as if it could get one.
type Contested struct {
	Pool  *state.Pool
	Nodes []string
	// Remedies are to add a pool with room for those that get none.
	Remedies []Remedy
}

// String says who gets no block.
func (c *Contested) String() string {
	n := len(c.Nodes)
	return fmt.Sprintf("%s %s a block, and pool %s has none for %s", phrase.List(c.Nodes), phrase.One(n, "needs", "need"), c.Pool.Name, phrase.One(n, "it", "them"))
}

// Contests says for which nodes no block is left when every node that needs one takes
// one: those that borrow or wait first, then those that have none and could take pods.
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

// suffers reports whether a pod of the node borrows or waits.
func suffers(n *state.NodeBlockStatus) bool { return len(n.Borrowed)+len(n.Waiting) > 0 }
