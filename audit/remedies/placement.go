package remedies

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// seat is a node that takes pods, and how many addresses it has of its own for them.
type seat struct {
	node  string
	spare int
}

// seatKey is what seats are found by.
type seatKey struct {
	placement *blocks.Placement
	family    blocks.Family
}

// seats returns the nodes on which pods of a placement may run and find an address of the
// node's own, those with the most of them first.
func (st *Remedies) seats(p *blocks.Placement, f blocks.Family) []seat {
	key := seatKey{p, f}
	if found, ok := st.seated.Load(key); ok {
		return found.([]seat)
	}
	var out []seat
	may := p.Matcher()
	for _, h := range st.NodeStates {
		if n := h.StatusOf(f); n != nil && takesPods(h) && may(h.Node) {
			if spare := st.spareOn(n, nil); spare > 0 {
				out = append(out, seat{h.Name, spare})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b seat) int { return cmp.Compare(b.spare, a.spare) })
	st.seated.Store(key, out)
	return out
}

// spareOn is how many pods find an address of a node's own, in blocks other than one: one at
// least where it can claim a block.
func (st *Remedies) spareOn(n *state.NodeBlockStatus, but *state.Block) int {
	if unused := st.unusedOfAnyPod(n, but); unused > 0 || st.noneLeft(n) {
		return unused
	}
	return 1
}

// seating gives room, one after the other, to pods that may run on some nodes alone.
type seating struct {
	*Remedies
	// but is a block that is no room for them; nil if there is none.
	but   *state.Block
	taken map[string]int
}

// take gives a pod room, and returns why there is none; empty if there is.
func (x *seating) take(w *blocks.Workload, f blocks.Family) string {
	if w.Placement == nil {
		return ""
	}
	for _, s := range x.seats(w.Placement, f) {
		if x.but != nil && x.but.Owner.Node() == s.node {
			s.spare = x.spareOn(x.NodeState(s.node).StatusOf(f), x.but)
		}
		if x.taken[s.node] < s.spare {
			x.taken[s.node]++
			return ""
		}
	}
	var nodes []string
	may := w.Placement.Matcher()
	for _, h := range x.NodeStates {
		if h.Node != nil && may(h.Node) {
			nodes = append(nodes, h.Name)
		}
	}
	if len(nodes) == 0 {
		return fmt.Sprintf("pod %s may run on no node that exists (its nodeSelector and node affinity: %s)", w.FullName(), phrase.OrNone(w.Placement.String()))
	}
	return fmt.Sprintf("pod %s may only run on %s (its nodeSelector and node affinity: %s), where no address of the node's own is left for it", w.FullName(), phrase.Some(nodes), w.Placement)
}

// NowhereFor says why a pod that starts again now would find no address of a node's own,
// because of where it may run; empty if it would.
func (st *Remedies) NowhereFor(w *blocks.Workload, f blocks.Family) string {
	return (&seating{Remedies: st, taken: map[string]int{}}).take(w, f)
}

// evaluatePlacements finds the pods of a consolidation that may run on some nodes alone and
// have no room there, beside those of DaemonSets, which come back to their nodes.
func (st *Remedies) evaluatePlacements(c *Consolidation, daemons map[string]int) {
	f := c.Block.Family()
	moves := slices.DeleteFunc(slices.Clone(c.Moves), func(m Move) bool { return m.Pod.Placement == nil || m.Pod.OfDaemonSet() })
	slices.SortStableFunc(moves, func(a, b Move) int {
		return cmp.Compare(len(st.seats(a.Pod.Placement, f)), len(st.seats(b.Pod.Placement, f)))
	})
	x := &seating{st, c.Block, daemons}
	for _, m := range moves {
		if why := x.take(m.Pod, f); why != "" {
			c.bar(m.Addr, "%s", why)
		}
	}
}

// mayCome returns what reports whether one of some pods that start again may come to a
// node. One of a DaemonSet comes to its own, whether or not that is cordoned.
func mayCome(moves []Move) func(*blocks.Node) bool {
	var on []func(*blocks.Node) bool
	for _, m := range moves {
		if !m.Pod.OfDaemonSet() {
			on = append(on, m.Pod.Placement.Matcher())
		}
	}
	return func(n *blocks.Node) bool {
		return slices.ContainsFunc(on, func(may func(*blocks.Node) bool) bool { return may(n) })
	}
}
