package remedies

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// seat is a node that takes pods, with the number of free addresses in its own blocks.
type seat struct {
	node  string
	spare int
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
	case h.Node.AllocatablePods() == 0: // unknown
		return math.MaxInt
	}
	return max(h.Node.AllocatablePods()-st.bound()[h.Name], 0)
}

// unschedulable explains why the replacement of a pod may find no node, although nodes have room for
// it; empty if it finds one.
func (st *Remedies) unschedulable(w *blocks.Workload) string {
	x := w.Scheduling
	switch {
	case x == nil:
		return "has scheduling rules that were not read"
	case x.Undecided != "":
		return "has " + x.Undecided + ", so it is not known which nodes take it"
	case x.HostPorts && !w.OfDaemonSet():
		return "needs a hostPort, which may be taken on other nodes"
	}
	for _, repels := range st.repellers() {
		if repels.pods(w) {
			return "is kept from some nodes by the required pod anti-affinity of pod " + repels.by.FullName()
		}
	}
	if w.OfDaemonSet() {
		if o := st.queuesFor(w.Node); o != nil {
			return "could lose its place on " + w.Node + " to pod " + o.FullName() + ", which waits for a node"
		}
		if h := st.NodeState(w.Node); h != nil && h.Node != nil && !w.Placement.AdmitsDaemon(h.Node) {
			return "would not start on " + w.Node + " again: its DaemonSet does not tolerate a taint of the node"
		}
	}
	return ""
}

// findRepellers returns one pod for each anti-affinity of a namespace.
func (st *Remedies) findRepellers() (out []repeller) {
	type rule struct {
		namespace string
		of        *blocks.Scheduling
	}
	seen := map[rule]bool{}
	for _, w := range st.Workloads {
		if r := (rule{w.Namespace, w.Scheduling}); r.of != nil && len(r.of.Repels) > 0 && !w.Ended() && !seen[r] {
			seen[r] = true
			for _, t := range r.of.Repels {
				out = append(out, repeller{w, t.Matcher(w.Namespace)})
			}
		}
	}
	return out
}

// findQueue returns, for each distinct placement, one pod that waits for a node.
func (st *Remedies) findQueue() (out []queued) {
	seen := map[*blocks.Placement]bool{}
	for _, w := range st.Workloads {
		if w.Node == "" && !w.Ended() && !seen[w.Placement] {
			seen[w.Placement] = true
			out = append(out, queued{w, w.Placement.Matcher()})
		}
	}
	return out
}

// queuesFor returns a pod that waits for a node and could take the place of a pod that leaves one;
// nil if there is none.
func (st *Remedies) queuesFor(node string) *blocks.Workload {
	if h := st.NodeState(node); h != nil && h.Node != nil {
		for _, q := range st.queue() {
			if q.on(h.Node) {
				return q.Workload
			}
		}
	}
	return nil
}

// sumUnrequested returns what each node has left of its resources for more pods
// (k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources, Fit). It leaves out nodes with a
// pod whose requests are not known.
func (st *Remedies) sumUnrequested() map[string]blocks.Quantities {
	out := map[string]blocks.Quantities{}
	for _, h := range st.NodeStates {
		if out[h.Name] = (blocks.Quantities{}); h.Node != nil {
			maps.Copy(out[h.Name], h.Node.Allocatable)
		}
	}
	for _, w := range st.Workloads {
		if left := out[w.Node]; left != nil && !w.Ended() {
			if w.Scheduling == nil {
				delete(out, w.Node)
				continue
			}
			left.Subtract(w.Scheduling.Requests)
		}
	}
	return out
}

// countBound counts the pods on each node that take up one of its places for pods, including
// host-network pods.
func (st *Remedies) countBound() map[string]int {
	out := map[string]int{}
	for _, w := range st.Workloads {
		if !w.Ended() {
			out[w.Node]++
		}
	}
	return out
}

// spareFor counts the pods that find addresses in the node's own blocks; those of block but do not
// count. If the node can claim a block, the count is at least one.
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
func (st *Remedies) crowded(x demand) blocks.Names {
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
func (st *Remedies) ignoresCordons(w *blocks.Workload, crowded blocks.Names) string {
	if len(crowded) == 0 || w.OfDaemonSet() || !w.Placement.ToleratesCordon() {
		return ""
	}
	return fmt.Sprintf("pod %s tolerates the cordon of a node, and may start on %s without an address of the node's own", w.FullName(), crowded)
}

// seating assigns addresses and resources to pods, one pod at a time.
type seating struct {
	*Remedies
	// but is a block whose addresses do not count; nil for none. Addresses on the nodes in cordon
	// do not count either.
	but    *state.Block
	cordon []string
	// taken counts, by node, the pods that have an address there already. came counts the pods that
	// arrive from other nodes. left holds the resources that the node still has for more pods.
	taken, came map[string]int
	left        map[string]blocks.Quantities
}

// seating returns a seating in which the pods of taken have their addresses already.
func (st *Remedies) seating(but *state.Block, cordon []string, taken map[string]int) *seating {
	x := &seating{st, but, cordon, map[string]int{}, map[string]int{}, map[string]blocks.Quantities{}}
	maps.Copy(x.taken, taken)
	return x
}

// holds reports whether a node has room for requests. A pod that stays there gives up its own.
func (x *seating) holds(node string, asks blocks.Quantities, stays bool) bool {
	if x.left[node] == nil {
		x.left[node] = maps.Clone(x.unrequested()[node])
	}
	left := x.left[node]
	if stays && left != nil {
		left = left.Plus(asks)
	}
	return left.Holds(asks)
}

// take finds a node for a pod, and counts its address and its requests there. It returns "", or
// explains why no node is left. If counted is true, the caller counts the address.
func (x *seating) take(w *blocks.Workload, d demand, counted bool) string {
	var asks blocks.Quantities
	if w.Controller != nil && w.Scheduling != nil {
		asks = w.Scheduling.Requests
	}
	seats, tight := x.seats(d), false
	switch {
	case w.OfDaemonSet(): // it starts on its node again, and evaluateDaemon counts its address
		if seats, tight = nil, !x.holds(w.Node, asks, true); !tight {
			return ""
		}
	case w.Placement == nil && counted && len(asks) == 0:
		return ""
	}
	for _, s := range seats {
		switch {
		case slices.Contains(x.cordon, s.node):
			continue
		case x.but != nil && x.but.Owner.Node() == s.node:
			s.spare = x.spareFor(x.NodeState(s.node), d, x.but)
		}
		stays := s.node == w.Node && x.queuesFor(s.node) == nil // its place becomes free
		if counted && s.spare == 0 || !counted && x.taken[s.node] >= s.spare || !stays && x.came[s.node] >= x.admits(x.NodeState(s.node)) {
			continue
		}
		if !x.holds(s.node, asks, stays) {
			tight = true
			continue
		}
		if !counted {
			x.taken[s.node]++
		}
		if !stays {
			x.came[s.node]++
			x.left[s.node].Subtract(asks)
		}
		return ""
	}
	if tight {
		return fmt.Sprintf("no node with an address of its own has room for the requests of pod %s (%s)", w.FullName(), strings.Join(asks.Names(), ", "))
	}
	if !w.Placement.Limited() {
		return fmt.Sprintf("no node that takes pod %s has an address of its own left for it", w.FullName())
	}
	var nodes blocks.Names
	may := w.Placement.Matcher()
	for _, h := range x.NodeStates {
		if h.Node != nil && may(h.Node) {
			nodes = append(nodes, h.Name)
		}
	}
	if len(nodes) == 0 {
		return fmt.Sprintf("pod %s may run on no node that exists (its nodeSelector and node affinity: %s)", w.FullName(), phrase.OrNone(w.Placement.String()))
	}
	return fmt.Sprintf("pod %s may only run on %s (its nodeSelector and node affinity: %s), where no address of the node's own is left for it", w.FullName(), nodes, w.Placement)
}

// NowhereFor explains why no node on which the pod with address a may run has addresses of its own
// left for it; "" if one has.
func (st *Remedies) NowhereFor(w *blocks.Workload, a netip.Addr) string {
	return st.seating(nil, nil, nil).take(w, demandOf(w, a), w.Placement == nil)
}

// evaluatePlacements bars the consolidation's pods that find no address on the nodes where they may
// run, or no room for their requests. DaemonSet pods restart on their nodes, so they take their
// addresses first.
func (st *Remedies) evaluatePlacements(c *Consolidation, daemons map[string]int) {
	moves := slices.Clone(c.Moves)
	slices.SortStableFunc(moves, func(a, b Move) int {
		return cmp.Compare(len(st.seats(a.demand())), len(st.seats(b.demand())))
	})
	x := st.seating(c.Block, c.Cordon, daemons)
	for _, m := range moves {
		if why := x.take(m.Pod, m.demand(), m.Pod.Placement == nil && !m.demand().both()); why != "" {
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
