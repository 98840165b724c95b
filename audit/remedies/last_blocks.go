package remedies

import (
	"cmp"
	"slices"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// LastBlock is the verdict on an empty block that its node would otherwise keep as its
// last: whether it may be released for a node that cannot allocate.
type LastBlock struct {
	state.Releasability
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
func (st *Remedies) LastBlock(b *state.Block) LastBlock {
	v := LastBlock{Releasability: b.Releasability}
	if v.Code != state.RetainLast || b.Pool == nil {
		return v
	}
	if v.Holder = st.holder(b); v.Holder == "" {
		v.Reason += ", which takes pods (--last-blocks)"
		return v
	}
	if blocks.CalicoAtLeast(st.Cluster.CalicoVersion, 3, 32) {
		v.Code, v.Reason = state.RetainHeals, "it is the last block of its node, and Calico "+st.Cluster.CalicoVersion+
			" gives it to another node by itself: from v3.32 on its allocator takes an empty block that was claimed more than a minute ago"
		return v
	}
	last := st.lasts[b.Pool]
	if last == nil {
		last = &lastBlocks{}
	}
	if v.For = slices.Clone(last.lacking); v.Holder == holderIdle {
		v.For = slices.Clone(last.busy)
	}
	supply, ok := b.Pool.Slots.Allocatable.Add(b.Pool.Releasable).Int()
	if !ok {
		supply = len(v.For)
	}
	before := slices.Index(last.blocks, b)
	switch lacking := len(v.For) - supply; {
	case len(v.For) == 0:
		v.Reason += "; no schedulable node needs it: each can allocate in pool " + b.Pool.Name
	case before >= lacking:
		v.Reason += "; other blocks suffice for the nodes that cannot allocate: " + phrase.List(v.For)
	default:
		v.OK, v.Reason, v.Code = true, "", ""
	}
	return v
}

// lastBlocks is what may go, and for whom, of a pool in which nodes cannot allocate.
type lastBlocks struct {
	// lacking are the nodes that cannot allocate in the pool for want of a block, sorted,
	// and busy those of them that have pods.
	lacking, busy []string
	// blocks are the empty blocks that are their nodes' last and that these could do
	// without, in the order in which they go.
	blocks []*state.Block
}

const holderCordoned, holderIdle = "cordoned", "idle"

// holder says how a block's node does without its last block; "" if it may need it.
func (st *Remedies) holder(b *state.Block) string {
	h := st.NodeState(b.Owner.Node())
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
func (st *Remedies) findLastBlocks() {
	for _, h := range st.NodeStates {
		for _, n := range h.BlockStatus {
			st.findLacking(n)
		}
	}
	for p, last := range st.lasts {
		holders := map[*state.Block]string{}
		for _, b := range p.Blocks {
			if holder := st.holder(b); b.Releasability.Code == state.RetainLast && holder != "" {
				last.blocks, holders[b] = append(last.blocks, b), holder
			}
		}
		slices.SortFunc(last.blocks, func(a, b *state.Block) int {
			return cmp.Or(cmp.Compare(holders[a], holders[b]), blocks.ComparePrefixes(a.CIDR, b.CIDR))
		})
	}
}

// findLacking adds a schedulable node to those that cannot allocate in the pools that
// would serve it, for want of a block. A node that could claim the pool's next block, and
// whose pods wait for it, is one of them: the block goes to one node only.
func (st *Remedies) findLacking(n *state.NodeBlockStatus) {
	lacks := n.CannotAllocate() && (n.Cause == state.CauseStrict || n.Cause == state.CauseFull) ||
		st.IPAM.StrictAffinity && n.Unused == 0 && n.Cause == state.CauseNone && len(n.Waiting) > 0 && !st.HealsItself(n, st.PoolsAtIssue(n))
	if !lacks || !n.Host.Schedulable {
		return
	}
	busy := slices.ContainsFunc(n.Host.Workloads, (*blocks.Workload).Live)
	for _, p := range st.PoolsAtIssue(n) {
		last := st.lasts[p]
		if last == nil {
			last = &lastBlocks{}
			st.lasts[p] = last
		}
		if last.lacking = append(last.lacking, n.Host.Name); busy {
			last.busy = append(last.busy, n.Host.Name)
		}
	}
}
