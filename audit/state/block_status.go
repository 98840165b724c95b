package state

import (
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// BlockStatusReads are the reads that a node's block status needs.
var BlockStatusReads = []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations, blocks.Affinities, blocks.Nodes, blocks.Pods, blocks.Namespaces}

// NodeBlockStatus is a node's supply of blocks of one family.
type NodeBlockStatus struct {
	Host   *NodeState
	Family blocks.Family
	// Pools are the pools that serve the node's workloads automatically.
	Pools []*Pool
	// Blocks are the node's usable blocks in these pools and in pools that its pods ask for.
	// Elsewhere are its other blocks of the family.
	Blocks, Elsewhere []*Block
	// Unused is how many addresses of Blocks can still be assigned.
	Unused int
	// Cause is why the node cannot claim a block now. It is evaluated only if Unused is 0,
	// because only then does the node need one.
	Cause  Cause
	Detail string
	// Borrowed are the node's borrowed addresses of the family.
	Borrowed []*Borrow
	// Waiting are the node's pods that wait for any address, not for a certain one. Stuck are those
	// that can get none from the pools that may serve them.
	Waiting []*blocks.Workload
	Stuck   []Stuck
	// Inconclusive explains why it is not known whether some waiting pod is stuck; empty if it is
	// known for all.
	Inconclusive string
	// requests are the distinct sets of pools that may serve a borrowing or waiting pod. Without
	// such a pod, the only set is the pools for any pod. atIssue is the union.
	requests [][]*Pool
	atIssue  []*Pool
	// Addressed is true if a pod of the node has an address of the family.
	Addressed bool
}

// CannotAllocate reports whether the node's next pod would get no address.
func (n *NodeBlockStatus) CannotAllocate() bool { return n.Unused == 0 && n.Cause.PreventsAllocation() }

// evaluateNodes decides, for each node, whether it is schedulable, and evaluates its block status
// for each of Families.
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
			h.BlockStatus = append(h.BlockStatus, st.BlockStatusFor(h, f))
		}
	}
}

// BlockStatusFor evaluates an existing node for a family, which need not be in use.
func (st *State) BlockStatusFor(h *NodeState, f blocks.Family) *NodeBlockStatus {
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
		if w.Waiting() && !w.StaticAddress {
			n.Waiting = append(n.Waiting, w)
		}
	}
	st.evaluateWaiting(n)
	for _, b := range h.Blocks {
		switch {
		case b.Family() != f:
		case b.Usable() && within(mine, b.CIDR) && !st.Reserved.Covers(b.CIDR):
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

// PoolsAtIssue returns the pools from which the node could claim a block: those of its borrowing
// or waiting pods or, without such pods, those that serve any pod.
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

// StatusOf returns a node's block status for a family; nil if the node no longer exists.
func (h *NodeState) StatusOf(f blocks.Family) *NodeBlockStatus {
	for _, n := range h.BlockStatus {
		if n.Family == f {
			return n
		}
	}
	return nil
}

// Blockless counts the pods of the node that can get no address while the node has no block in
// any of their pools.
func (n *NodeBlockStatus) Blockless() (count int) {
	for _, s := range n.Stuck {
		if s.Blockless {
			count++
		}
	}
	return count
}

// RequiresProof is false if the only problem is that pools do not serve pods: blocks would not
// change that.
func (n *NodeBlockStatus) RequiresProof() bool {
	return n.NoBlock() || slices.ContainsFunc(n.Stuck, func(s Stuck) bool { return s.Blockless && s.Cause != CauseUnserved })
}

// NoBlock reports whether the node owns no usable block in its pools.
func (n *NodeBlockStatus) NoBlock() bool { return len(n.Blocks) == 0 }
