package state

import (
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// BlockStatusReads is what it takes to say how nodes stand with blocks.
var BlockStatusReads = []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations, blocks.Affinities, blocks.Nodes, blocks.Pods, blocks.Namespaces}

// NodeBlockStatus is how a node stands with blocks of one family.
type NodeBlockStatus struct {
	Host   *NodeState
	Family blocks.Family
	// Pools are the pools that serve the node's workloads automatically.
	Pools []*Pool
	// Blocks are the usable blocks that the node owns in these pools, and in
	// pools that its pods ask for; Elsewhere are its other blocks of the family.
	Blocks, Elsewhere []*Block
	// Unused is how many addresses of Blocks could still be assigned.
	Unused int
	// Cause is why the node cannot claim a block now; evaluated only where it would
	// have to, because Blocks have no unused address.
	Cause Cause
	// Detail says more about the cause.
	Detail string
	// Borrowed are the node's borrowed addresses of the family.
	Borrowed []*Borrow
	// Waiting are pods of the node that have no address yet; Stuck are those of them
	// that can get none, each evaluated by the pools that may serve it.
	Waiting []*blocks.Workload
	Stuck   []Stuck
	// Inconclusive says why it is not known of some pod that waits whether it is stuck;
	// empty if it is of all.
	Inconclusive string
	// requests are, for each pod that borrows or waits, the pools that may serve it, each
	// set once; where there is none, those that serve any pod are the one set. atIssue are
	// all of them.
	requests [][]*Pool
	atIssue  []*Pool
	// Addressed is true if a pod of the node has an address of the family.
	Addressed bool
}

// CannotAllocate is true if the node's next pod would get no address.
func (n *NodeBlockStatus) CannotAllocate() bool { return n.Unused == 0 && n.Cause.PreventsAllocation() }

// RequiresBlocks is true if the node's next pod would have to come from a new block
// or from a borrowed address, and there is no block to be had.
func (n *NodeBlockStatus) RequiresBlocks() bool { return n.Unused == 0 && n.Cause != CauseNone }

// evaluateNodes settles, for each node, whether it is schedulable and how it stands
// with blocks of each family that counts.
func (st *State) evaluateNodes() {
	for _, h := range st.NodeStates {
		if h.Node == nil {
			continue
		}
		runs := slices.ContainsFunc(h.Workloads, func(w *blocks.Workload) bool {
			return w.Live() && (len(w.StatusIPs) > 0 || len(w.AnnotationIPs) > 0)
		})
		h.Schedulable = !h.Node.OutOfService && (runs || !h.Node.Unschedulable && len(h.Node.KeepsAway()) == 0)
		for _, f := range st.Families {
			h.BlockStatus = append(h.BlockStatus, st.blockStatus(h, f))
		}
	}
}

func (st *State) blockStatus(h *NodeState, f blocks.Family) *NodeBlockStatus {
	n := &NodeBlockStatus{Host: h, Family: f, Pools: st.WorkloadPools(h.Node, f)}
	mine := n.Pools
	for _, w := range h.Workloads {
		if !st.Assigned(w) {
			continue
		}
		asked, asks := st.RequestedPools(w, f)
		if asks {
			mine = append(slices.Clip(mine), asked...)
		}
		n.Addressed = n.Addressed || w.HasFamily(f)
		if w.Waiting() {
			n.Waiting = append(n.Waiting, w)
		}
	}
	st.evaluateWaiting(n)
	for _, b := range h.Blocks {
		switch {
		case b.Family() != f:
		case b.Usable() && slices.Contains(mine, b.Pool) && !st.Reserved.Covers(b.CIDR):
			n.Blocks = append(n.Blocks, b)
			n.Unused += st.Unused(b)
		default:
			n.Elsewhere = append(n.Elsewhere, b)
		}
	}
	for _, b := range h.Borrowed {
		if blocks.FamilyOf(b.Addr) == f {
			n.Borrowed = append(n.Borrowed, b)
		}
	}
	n.requests = st.requests(n)
	for _, p := range slices.Concat(n.requests...) {
		if !slices.Contains(n.atIssue, p) {
			n.atIssue = append(n.atIssue, p)
		}
	}
	if n.Unused == 0 {
		n.Cause, n.Detail = st.cause(n)
	}
	return n
}

// PoolsAtIssue returns the pools that the node could claim a block from: those
// of the pods that borrow or wait or, where there are none, those that serve any
// pod.
func (st *State) PoolsAtIssue(n *NodeBlockStatus) []*Pool { return slices.Clip(n.atIssue) }

func (st *State) requests(n *NodeBlockStatus) (out [][]*Pool) {
	add := func(w *blocks.Workload) {
		pools := st.PodPools(w, n.Host.Node, n.Family)
		if len(pools) > 0 && !slices.ContainsFunc(out, func(o []*Pool) bool { return slices.Equal(o, pools) }) {
			out = append(out, pools)
		}
	}
	for _, b := range n.Borrowed {
		if b.Workload != nil {
			add(b.Workload)
		}
	}
	for _, w := range n.Waiting {
		add(w)
	}
	if general := GeneralPools(n.Pools); len(out) == 0 && len(general) > 0 {
		return [][]*Pool{general}
	}
	return out
}

// StatusOf returns how a node stands with blocks of a family; nil for what no longer exists.
func (h *NodeState) StatusOf(f blocks.Family) *NodeBlockStatus {
	for _, n := range h.BlockStatus {
		if n.Family == f {
			return n
		}
	}
	return nil
}

// Blockless counts the pods of the node that can get no address, and none of whose
// pools the node has a block of.
func (n *NodeBlockStatus) Blockless() (count int) {
	for _, s := range n.Stuck {
		if s.Blockless {
			count++
		}
	}
	return count
}

// RequiresProof is true unless all that is wrong is that pools do not serve pods, which
// no block would change.
func (n *NodeBlockStatus) RequiresProof() bool {
	return n.NoBlock() || slices.ContainsFunc(n.Stuck, func(s Stuck) bool { return s.Blockless && s.Cause != CauseUnserved })
}

// NoBlock is true if the node owns no usable block in its pools.
func (n *NodeBlockStatus) NoBlock() bool { return len(n.Blocks) == 0 }
