package repair

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// manual lists what only people should do so that the trouble ends: nodes borrow
// because no block was left for them, and go on borrowing until the pods concerned
// are started again, when a block is there. So room comes first, then the pods.
func manual(st, after *state.State, p *Plan) []Manual {
	m := &manuals{st: st, after: after, plan: p, restarted: map[netip.Addr]bool{}}
	if (p.Request.EmptyBlocks || p.Request.StrictAffinity != nil) && st.FirstMissing(setStrictAffinity.needs) == nil {
		m.short = shortage(after, nil)
		m.wait()
		m.addRoom()
		m.cordon()
		m.empty()
		m.uncordon()
		m.restart()
		m.tunnels()
	}
	m.holders()
	return m.out
}

// manuals collects the manual steps, group by group.
type manuals struct {
	st, after *state.State
	plan      *Plan
	short     []shortfall

	out   []Manual
	order int
	// cordoned are the nodes that the list has cordoned, restarted the addresses
	// whose pods it has restarted.
	cordoned  []string
	restarted map[netip.Addr]bool
}

// group begins steps that come after those before; within a group any order will
// do.
func (m *manuals) group(items ...Manual) {
	if len(items) == 0 {
		return
	}
	m.order++
	for _, x := range items {
		x.Order = m.order
		m.out = append(m.out, x)
	}
}

// concerns reports whether pools and nodes are among those asked for.
func (m *manuals) concerns(pools, nodes []string) bool {
	return meet(m.plan.Request.Pools, pools) && meet(m.plan.Request.Nodes, nodes)
}

// shortfall is a pool with the nodes that need a block of it and get none.
type shortfall struct {
	pool  *state.Pool
	nodes []string
}

func (s *shortfall) text() string {
	n := len(s.nodes)
	return fmt.Sprintf("%s %s a block, and pool %s has none for %s", state.List(s.nodes), one(n, "needs", "need"), s.pool.Name, one(n, "it", "them"))
}

// one chooses by whether there is one of something, or more.
func one(n int, singular, plural string) string {
	if n == 1 {
		return singular
	}
	return plural
}

// shortage says for which nodes no block is left when every node that needs one
// takes one: each by itself may look as if it could, when there are fewer blocks
// than nodes. room is what pools have beside the blocks that can be claimed.
func shortage(st *state.State, room map[*state.Pool]blocks.Count) []shortfall {
	left := map[*state.Pool]blocks.Count{}
	for _, p := range st.Pools {
		left[p] = p.Slots.Allocatable.Add(room[p])
	}
	lack := map[*state.Pool][]string{}
	for _, n := range lacksBlocks(st) {
		pools := st.PoolsAtIssue(n)
		if len(pools) == 0 {
			continue
		}
		i := slices.IndexFunc(pools, func(p *state.Pool) bool { return !left[p].IsZero() })
		switch {
		case i >= 0:
			left[pools[i]] = left[pools[i]].Sub(blocks.CountOf(1))
		case n.Cause == state.CauseNone && pools[0].Slots.Allocatable.IsZero():
			// It gets one all the same: of an affinity that it has, or of a block that a
			// newer Calico takes from another node.
		default:
			lack[pools[0]] = append(lack[pools[0]], n.Host.Name)
		}
	}
	var out []shortfall
	for _, p := range st.Pools {
		if nodes := tidy(lack[p]); len(nodes) > 0 {
			out = append(out, shortfall{p, nodes})
		}
	}
	return out
}

// lacksBlocks returns how nodes stand that need a block for their next pod: those that
// borrow or wait first, then those that have none and could take pods.
func lacksBlocks(st *state.State) []*state.NodeBlockStatus {
	var out []*state.NodeBlockStatus
	for _, h := range st.NodeStates {
		for _, n := range h.BlockStatus {
			if n.Unused == 0 && (suffers(n) || n.NoBlock() && h.Schedulable) && !barredOtherwise(n.Cause) {
				out = append(out, n)
			}
		}
	}
	first := func(n *state.NodeBlockStatus) bool { return !suffers(n) }
	return append(slices.DeleteFunc(slices.Clone(out), first), slices.DeleteFunc(out, suffers)...)
}

func suffers(n *state.NodeBlockStatus) bool { return len(n.Borrowed)+len(n.Waiting) > 0 }

// barredOtherwise reports whether something else than a lack of blocks keeps a node
// from claiming one.
func barredOtherwise(c state.Cause) bool {
	return mends[c] != ""
}
