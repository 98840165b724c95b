package state

import (
	"cmp"
	"slices"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
)

// LastBlock is the verdict on an empty block that its node would otherwise keep as its
// last: whether it may be released for a node that cannot allocate.
type LastBlock struct {
	Reclaimability
	// Holder says how the node that has it does without: "cordoned" or "idle".
	Holder string
	// For are the nodes that cannot allocate in its pool, sorted; one of them at least
	// if the block may go.
	For []string
}

// LastBlock says whether a block that is held as its node's last (RetainLast) may be
// released all the same: its node is cordoned, or runs no pod of the pod network, while
// a schedulable node cannot allocate in the block's pool. Not more go than such nodes
// lack, those of cordoned nodes first, then by address. For the block of an idle node
// that pods may still come to, only nodes with pods of their own count: it would trade
// one node's next pod for another's. Calico v3.32 and newer need none of this: their
// allocator takes another node's empty block once it was claimed a minute ago
// (findUsableBlock, EmptyBlockMinReclaimAge).
func (st *State) LastBlock(b *Block) LastBlock {
	v := LastBlock{Reclaimability: b.Reclaimability}
	if v.Code != RetainLast || b.Pool == nil {
		return v
	}
	if v.Holder = st.holder(b); v.Holder == "" {
		v.Held += ", which takes pods (--last-blocks)"
		return v
	}
	if affinity.AtLeast(st.Cluster.CalicoVersion, 3, 32) {
		v.Code, v.Held = RetainHeals, "it is the last block of its node, and Calico "+st.Cluster.CalicoVersion+
			" gives it to another node by itself: from v3.32 on its allocator takes an empty block that was claimed more than a minute ago"
		return v
	}
	if v.For = slices.Clone(b.Pool.lacking); v.Holder == holderIdle {
		v.For = slices.Clone(b.Pool.busy)
	}
	supply, ok := b.Pool.Slots.Allocatable.Add(b.Pool.Reclaimable).Int()
	if !ok {
		supply = len(v.For)
	}
	before := slices.Index(b.Pool.lastBlocks, b)
	switch lacking := len(v.For) - supply; {
	case len(v.For) == 0:
		v.Held += "; no schedulable node needs it: each can allocate in pool " + b.Pool.Name
	case before >= lacking:
		v.Held += "; other blocks suffice for the nodes that cannot allocate: " + phrase.List(v.For)
	default:
		v.OK, v.Held, v.Code = true, "", ""
	}
	return v
}

const holderCordoned, holderIdle = "cordoned", "idle"

// holder says how a block's node does without its last block; "" if it may need it.
func (st *State) holder(b *Block) string {
	h := st.nodeStates[b.Owner.Node()]
	if h == nil || h.Node == nil {
		return ""
	}
	live := slices.ContainsFunc(h.Workloads, (*blocks.Workload).Live)
	switch {
	case h.Node.Unschedulable && !slices.ContainsFunc(h.Workloads, (*blocks.Workload).Waiting):
		return holderCordoned
	case !live:
		return holderIdle
	}
	return ""
}

// findLastBlocks finds for each pool the nodes that cannot allocate in it, and which last
// blocks of others go first.
func (st *State) findLastBlocks() {
	for _, h := range st.NodeStates {
		for _, n := range h.BlockStatus {
			st.findLacking(n)
		}
	}
	for _, p := range st.Pools {
		if len(p.lacking) == 0 {
			continue
		}
		holders := map[*Block]string{}
		for _, b := range p.Blocks {
			if holder := st.holder(b); b.Reclaimability.Code == RetainLast && holder != "" {
				p.lastBlocks, holders[b] = append(p.lastBlocks, b), holder
			}
		}
		slices.SortFunc(p.lastBlocks, func(a, b *Block) int {
			return cmp.Or(cmp.Compare(holders[a], holders[b]), blocks.ComparePrefixes(a.CIDR, b.CIDR))
		})
	}
}

// findLacking adds a schedulable node to those that cannot allocate in the pools that
// would serve it, for want of a block. A node that could claim the pool's next block, and
// whose pods wait for it, is one of them: the block goes to one node only.
func (st *State) findLacking(n *NodeBlockStatus) {
	lacks := n.CannotAllocate() && (n.Cause == CauseStrict || n.Cause == CauseFull) ||
		st.IPAM.StrictAffinity && n.Unused == 0 && n.Cause == CauseNone && len(n.Waiting) > 0 && !st.HealsItself(n, n.atIssue)
	if !lacks || !n.Host.Schedulable {
		return
	}
	busy := slices.ContainsFunc(n.Host.Workloads, (*blocks.Workload).Live)
	for _, p := range n.atIssue {
		if p.lacking = append(p.lacking, n.Host.Name); busy {
			p.busy = append(p.busy, n.Host.Name)
		}
	}
}
