package remedies

import (
	"cmp"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// LastBlock is the verdict on an empty block that is its node's last: whether it may be released
// for a node that cannot allocate.
type LastBlock struct {
	state.Releasability
	// Holder is why the block's node does not need it: "cordoned" or "idle".
	Holder string
	// For lists the nodes that cannot allocate in the block's pool, sorted; not empty if the block
	// may be released.
	For blocks.Names
}

// LastBlock reports whether the last block of a node (RetainLast) may be released for a node that
// cannot allocate in the block's pool. The block's node must be cordoned, or run no pod of the pod
// network. LastBlock releases no more blocks than there are nodes in need, first those of cordoned
// nodes, then by address. If the block's node is idle but can still get pods, only nodes in need
// with pods count; otherwise the release would only shift the shortage to another node's next pod.
// For the same reason, a node that could claim one of the last blocks of another pool keeps its
// block. Calico v3.32 and newer do not need this: their allocator takes another node's empty block
// one minute after it was claimed (findUsableBlock, EmptyBlockMinReclaimAge).
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
		v.Code, v.Reason = state.RetainHeals, "Calico "+st.Cluster.CalicoVersion+
			" gives it to another node without help: from v3.32 on, the allocator also takes the last block of a node, once it is empty and was claimed more than a minute ago"
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
		v.Reason += "; other blocks suffice for the nodes that cannot allocate: " + v.For.String()
	default:
		if q := st.alsoNeeded(b); q != nil {
			v.Reason += "; without it, " + b.Owner.Node() + " could claim one of the last blocks of pool " + q.Name + ", which other nodes need"
			break
		}
		v.OK, v.Reason, v.Code = true, "", ""
	}
	return v
}

// alsoNeeded returns another pool from which a block's node could claim a block that other nodes may
// need; nil if there is none.
func (st *Remedies) alsoNeeded(b *state.Block) *state.Pool {
	owner := st.NodeState(b.Owner.Node())
	for _, q := range st.WorkloadPools(owner.Node, b.Family()) {
		need := 1
		for _, h := range st.NodeStates {
			if h != owner && h.Node != nil && q.SelectsNode(h.Node) && !slices.ContainsFunc(h.Blocks, func(o *state.Block) bool { return o.Pool == q && st.Keepable(o) }) {
				need++
			}
		}
		free, known := q.Slots.Allocatable.Int()
		if q != b.Pool && known && free > 0 && (free < need || st.IsAskedFor(q)) {
			return q
		}
	}
	return nil
}

const holderCordoned, holderIdle = "cordoned", "idle"

// holder explains why a block's node does not need its last block; "" if it may need it.
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

// findLastBlocks finds, for each pool, the nodes that cannot allocate in it and the last blocks to
// release first.
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

// findLacking records a schedulable node that cannot allocate, for lack of a block, in each pool
// that would serve it. A node whose pods wait counts even if it could claim the pool's next block:
// that block goes to one node only.
func (st *Remedies) findLacking(n *state.NodeBlockStatus) {
	lacks := n.CannotAllocate() && n.Cause.Shortfall() ||
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
