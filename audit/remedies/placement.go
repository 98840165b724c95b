package remedies

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// seat is a node that takes pods, with the number of free addresses in its own blocks.
type seat struct {
	node  string
	spare int
}

// demand decides where a pod may start: its placement rules, and the families in which it has
// addresses.
type demand struct {
	placement *blocks.Placement
	v4, v6    bool
}

// demandOf returns the demand of a pod that has address a.
func demandOf(w *blocks.Workload, a netip.Addr) demand {
	f := blocks.FamilyOf(a)
	return demand{w.Placement, f == blocks.IPv4 || w.HasFamily(blocks.IPv4), f == blocks.IPv6 || w.HasFamily(blocks.IPv6)}
}

// families calls yield for each family in which a pod needs an address.
func (x demand) families(yield func(blocks.Family) bool) {
	if x.v4 && !yield(blocks.IPv4) {
		return
	}
	if x.v6 {
		yield(blocks.IPv6)
	}
}

// mayStart returns a function that reports whether the scheduler may put the pod on a node now.
func (x demand) mayStart() func(*state.NodeState) bool {
	may := x.placement.Matcher()
	return func(h *state.NodeState) bool {
		n := h.Node
		return n != nil && (!n.Unschedulable || x.placement.ToleratesCordon()) && (!n.NotReady && !n.OutOfService || x.placement.ToleratesNotReady()) && may(n)
	}
}

// seats returns the nodes where a pod may start and finds an address in the node's own blocks,
// those with the most free addresses first.
func (st *Remedies) seats(x demand) []seat {
	if found, ok := st.seated.Load(x); ok {
		return found.([]seat)
	}
	var out []seat
	may := x.placement.Matcher()
	for _, h := range st.NodeStates {
		if !open(h) || !may(h.Node) {
			continue
		}
		if spare := st.spareFor(h, x, nil); spare > 0 {
			out = append(out, seat{h.Name, spare})
		}
	}
	slices.SortStableFunc(out, func(a, b seat) int { return cmp.Compare(b.spare, a.spare) })
	st.seated.Store(x, out)
	return out
}

// leaving reports whether a node is about to be deleted: by its deletionTimestamp, or by the taints
// of the cluster autoscaler (cluster-autoscaler/utils/taints, ToBeDeletedTaint) and of Karpenter
// (pkg/apis/v1, DisruptedTaintKey; before v1, karpenter.sh/disruption).
func leaving(n *blocks.Node) bool {
	return !n.Deleting.IsZero() || slices.ContainsFunc(n.Taints, func(t blocks.Taint) bool {
		return t.Key == "ToBeDeletedByClusterAutoscaler" || t.Key == "karpenter.sh/disrupted" || t.Key == "karpenter.sh/disruption"
	})
}

// admits counts the pods that a node still takes: at most status.allocatable.pods, and none if it is
// about to be deleted.
func (st *Remedies) admits(h *state.NodeState) int {
	switch {
	case leaving(h.Node):
		return 0
	case h.Node.AllocatablePods == 0: // unknown
		return math.MaxInt
	}
	return max(h.Node.AllocatablePods-st.bound()[h.Name], 0)
}

// countBound counts the pods on each node that take up one of its places, those with the host's
// network included.
func (st *Remedies) countBound() map[string]int {
	out := map[string]int{}
	for _, w := range st.Workloads {
		if !w.Ended() {
			out[w.Node]++
		}
	}
	return out
}

// spareFor counts the pods that find addresses in the node's own blocks, without block but. If the
// node can claim a block, the count is at least one.
func (st *Remedies) spareFor(h *state.NodeState, x demand, but *state.Block) int {
	least := -1
	for f := range x.families {
		spare := 0
		if n := h.StatusOf(f); n != nil {
			if spare = st.unusedOfAnyPod(n, but); spare == 0 && !st.noneLeft(n) {
				spare = 1
			}
		}
		if least < 0 || spare < least {
			least = spare
		}
	}
	return max(least, 0)
}

// crowded returns, sorted, the nodes where a pod may start but finds neither an address of the node
// nor a block to claim, in some family that it needs.
func (st *Remedies) crowded(x demand) []string {
	if found, ok := st.crowds.Load(x); ok {
		return found.([]string)
	}
	var out []string
	may := x.mayStart()
	for _, h := range st.NodeStates {
		for f := range x.families {
			if n := h.StatusOf(f); n != nil && st.isFull(n) && may(h) {
				out = append(out, h.Name)
				break
			}
		}
	}
	st.crowds.Store(x, out)
	return out
}

// ignoresCordons explains why a cordon does not keep a pod off nodes without an address for it;
// empty if it does, or if no cordon is needed.
func (st *Remedies) ignoresCordons(w *blocks.Workload, crowded []string) string {
	if len(crowded) == 0 || !w.Placement.ToleratesCordon() {
		return ""
	}
	return fmt.Sprintf("pod %s tolerates the cordon of a node, and may start on %s without an address of the node's own", w.FullName(), phrase.Some(crowded))
}

// seating assigns addresses, one after the other, to pods that may run only on some nodes.
type seating struct {
	*Remedies
	// but is a block whose addresses do not count; nil for none. Addresses on the nodes in cordon
	// do not count either.
	but    *state.Block
	cordon []string
	// taken counts the pods by node. came counts those that came from another node.
	taken, came map[string]int
}

// take assigns an address to a pod and returns "", or explains why no address is left.
func (x *seating) take(w *blocks.Workload, d demand) string {
	if w.Placement == nil {
		return ""
	}
	for _, s := range x.seats(d) {
		switch {
		case slices.Contains(x.cordon, s.node):
			continue
		case x.but != nil && x.but.Owner.Node() == s.node:
			s.spare = x.spareFor(x.NodeState(s.node), d, x.but)
		}
		stays := s.node == w.Node // its place becomes free
		if x.taken[s.node] < s.spare && (stays || x.came[s.node] < x.admits(x.NodeState(s.node))) {
			if x.taken[s.node]++; !stays {
				x.came[s.node]++
			}
			return ""
		}
	}
	if !w.Placement.Limited() {
		return fmt.Sprintf("no node that takes pod %s has an address of its own left for it", w.FullName())
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

// NowhereFor explains why no node on which the pod with address a may run has addresses of its own
// left for it; "" if one has.
func (st *Remedies) NowhereFor(w *blocks.Workload, a netip.Addr) string {
	return (&seating{Remedies: st, taken: map[string]int{}, came: map[string]int{}}).take(w, demandOf(w, a))
}

// evaluatePlacements bars the consolidation's pods that may run only on some nodes and have no room
// there. DaemonSet pods restart on their nodes, so they take their addresses first.
func (st *Remedies) evaluatePlacements(c *Consolidation, daemons map[string]int) {
	moves := slices.DeleteFunc(slices.Clone(c.Moves), func(m Move) bool { return m.Pod.Placement == nil || m.Pod.OfDaemonSet() })
	slices.SortStableFunc(moves, func(a, b Move) int {
		return cmp.Compare(len(st.seats(a.demand())), len(st.seats(b.demand())))
	})
	x := &seating{st, c.Block, c.Cordon, maps.Clone(daemons), map[string]int{}}
	for _, m := range moves {
		if why := x.take(m.Pod, m.demand()); why != "" {
			c.bar(m.Addr, "%s", why)
		}
	}
}

// MayFill returns the uncordoned nodes that may run out of addresses of their own while pods move,
// because the scheduler does not count addresses. but is the block being emptied; nil if there is
// none.
func (st *Remedies) MayFill(moves []Move, but *state.Block, cordon []string) (out []string) {
	count, coming := map[demand]int{}, map[*state.NodeBlockStatus]int{}
	for _, m := range moves {
		if h := st.NodeState(m.Pod.Node); m.Pod.OfDaemonSet() && h != nil { // it comes back
			for f := range m.demand().families {
				if n := h.StatusOf(f); n != nil && !slices.Contains(cordon, h.Name) {
					coming[n]++
				}
			}
		} else if m.Pod.Controller != nil {
			count[m.demand()]++
		}
	}
	for x, pods := range count {
		may := x.mayStart()
		for _, h := range st.NodeStates {
			if !may(h) || slices.Contains(cordon, h.Name) {
				continue
			}
			for f := range x.families {
				if n := h.StatusOf(f); n != nil {
					coming[n] += pods
				}
			}
		}
	}
	// claims are the blocks that nodes would claim, if all claim from one pool.
	claims, lacks := map[*state.Pool]blocks.Count{}, map[*state.NodeBlockStatus]int{}
	for n, pods := range coming {
		if lacks[n] = pods - st.unusedOfAnyPod(n, but); lacks[n] <= 0 {
			delete(coming, n)
			continue
		}
		for _, p := range n.Pools {
			claims[p] = claims[p].Add(nextBlocks(n, p, lacks[n]))
		}
	}
	for n := range coming {
		var most blocks.Count // the node may claim from the pool with the smallest blocks
		for _, p := range n.Pools {
			if more := nextBlocks(n, p, lacks[n]); more.Cmp(most) > 0 && !p.Slots.Allocatable.IsZero() {
				most = more
			}
		}
		limited := blocks.CountOf(st.MayCount(n.Host, n.Family)).Add(most).Cmp(blocks.CountOf(st.IPAM.BlockLimit())) > 0
		enough := func(p *state.Pool) bool {
			return p.ServesAllNamespaces() && !nextBlocks(n, p, lacks[n]).IsZero() && p.Slots.Allocatable.Cmp(claims[p]) >= 0
		}
		if (st.noneLeft(n) || limited || !slices.ContainsFunc(n.Pools, enough)) && !slices.Contains(out, n.Host.Name) {
			out = append(out, n.Host.Name)
		}
	}
	slices.Sort(out)
	return out
}

// nextBlocks returns how many blocks of a pool a node claims for a number of pods; 0 if no block of
// the pool has an address for them.
func nextBlocks(n *state.NodeBlockStatus, p *state.Pool, pods int) blocks.Count {
	size := nextBlockAddresses(n, p)
	if size.IsZero() {
		return size
	}
	return blocks.CountOf(pods).Add(size).Sub(blocks.CountOf(1)).Div(size)
}

// nextBlockAddresses returns how many addresses a node's next block of a pool has for pods. Windows
// nodes reserve four addresses of an IPv4 block (cni-plugin/pkg/ipamplugin/ipam_plugin.go).
func nextBlockAddresses(n *state.NodeBlockStatus, p *state.Pool) blocks.Count {
	count := p.BlockAddresses()
	if n.Host.Node != nil && n.Host.Node.Windows && n.Family == blocks.IPv4 {
		count = count.Sub(blocks.CountOf(1 << min(2, 32-p.BlockSize)))
	}
	return count
}
