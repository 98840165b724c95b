package state

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// eachPodPools calls fn for each set of pools that a pod of a node may use, with the reason to keep
// the node's last empty block there. Per family, these are the sets for pods of any namespace, of a
// namespace without labels and of each namespace with pods on the node, and for each pool that its
// pods ask for or are pinned to. A tunnel address that the node still has to take is one more set.
func (st *State) eachPodPools(h *NodeState, fn func(pools []*Pool, why string)) {
	for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
		pools := st.WorkloadPools(h.Node, f)
		fn(GeneralPools(pools), fmt.Sprintf("it is the last %s block of its node", f))
		selective := slices.ContainsFunc(pools, func(p *Pool) bool { return !p.ServesAllNamespaces() })
		if selective {
			fn(poolsFor(pools, nil), fmt.Sprintf("it is the last %s block of its node for pods of namespaces without labels", f))
		}
		for _, w := range slices.Concat(h.Workloads, st.placeless) {
			if selective {
				fn(poolsFor(pools, st.Namespace(w.Namespace)), fmt.Sprintf("it is the last %s block of its node for pods of namespace %s", f, w.Namespace))
			}
			asked, asks := st.RequestedPools(w, f)
			if asks { // another pod of the namespace may ask for nothing itself
				others, _ := st.RequestedPools(&blocks.Workload{Namespace: w.Namespace}, f)
				asked = append(asked, others...)
			}
			for _, p := range append(asked, st.PinnedPools(w, f)...) {
				fn([]*Pool{p}, fmt.Sprintf("it is the last block of its node in pool %s, which pods of the node ask for", p.Name))
			}
		}
	}
	for _, pools := range (*Derived(st, listTunnelPools))[h] {
		fn(pools, "it is the last block that can give its node a tunnel address")
	}
}

// tunnelPools holds, for each tunnel address that a node still has to take, the pools that give it.
type tunnelPools map[*NodeState][][]*Pool

func listTunnelPools(st *State) *tunnelPools {
	out := tunnelPools{}
	for _, kind := range blocks.TunnelTypes {
		pools := map[*NodeState][]*Pool{}
		for _, p := range slices.DeleteFunc(slices.Clone(st.Pools), func(p *Pool) bool { return !p.GivesTunnel(kind) || !p.HandsOut() }) {
			for _, h := range st.SelectedBy(p) {
				if h.Node.LacksTunnel(kind) {
					pools[h] = append(pools[h], p)
				}
			}
		}
		for h := range pools {
			out[h] = append(out[h], pools[h])
		}
	}
	return &out
}

// poolsFor returns the pools that select a namespace; nil is a namespace without labels.
func poolsFor(pools []*Pool, ns *blocks.Namespace) []*Pool {
	return slices.DeleteFunc(slices.Clone(pools), func(p *Pool) bool { return !p.SelectsNamespace(ns) })
}

// MayStarve returns the nodes whose next pod may get no address if nodes do not borrow: they have
// no free address of their own, and other nodes may claim the last blocks first. It includes
// unschedulable nodes. crowded is true if those other nodes may include Windows nodes.
func (st *State) MayStarve() (out blocks.Names, crowded bool) {
	c := Derived(st, countSupply)
	short := map[bool][]*Pool{} // pools without enough blocks: those of Windows nodes, and of other nodes that may starve
	for _, h := range st.NodeStates {
		if h.Node == nil {
			continue
		}
		starves := false
		st.eachPodPools(h, func(pools []*Pool, _ string) {
			certain := len(pools) == 0 || st.hasKeepable(h, pools, func(b *Block) bool { return !c.mayTake(b) })
			lacking := slices.DeleteFunc(slices.Clone(pools), func(p *Pool) bool { return !c.lacking[p] })
			claims := !certain && st.IPAM.AutoAllocateBlocks && st.LimitCount(&NodeBlockStatus{Host: h, Family: pools[0].Family()}, pools) < st.IPAM.BlockLimit()
			if certain = certain || claims && len(lacking) < len(pools); !certain || claims && h.Node.Windows {
				short[h.Node.Windows] = append(short[h.Node.Windows], lacking...)
			}
			starves = starves || !certain
		})
		if starves {
			out, crowded = append(out, h.Name), crowded || h.Node.Windows
		}
	}
	return out, crowded || slices.ContainsFunc(short[true], func(p *Pool) bool { return slices.Contains(short[false], p) })
}

// hasKeepable reports whether a node has a block of the given pools with an address for its next
// pod that accept also approves.
func (st *State) hasKeepable(h *NodeState, pools []*Pool, accepts func(*Block) bool) bool {
	return slices.ContainsFunc(h.Blocks, func(b *Block) bool { return within(pools, b.CIDR) && st.Keepable(b) && accepts(b) })
}

// limitBar explains why a node must not be given an affinity to its block: it would reach its
// block limit without a free address, so its next pod would get none.
func (st *State) limitBar(b *Block) (bar Bar) {
	h := st.nodeStates[b.Owner.Node()]
	if h == nil || h.Node == nil || st.hasFree(b) {
		return Bar{}
	} else if st.PoolMayCover(b.CIDR) {
		return Because(RetainNotRead, unreadPool)
	}
	supply := Derived(st, countSupply)
	have, limit := st.MayCount(h, b.Family())+supply.missing[h.Name], st.IPAM.BlockLimit()
	stays := func(o *Block) bool {
		return !supply.mayTake(o) && (st.ownAffinity(o) != nil || !st.lostWithAffinity(o))
	}
	st.eachPodPools(h, func(pools []*Pool, _ string) {
		held := slices.DeleteFunc(slices.Clone(h.Blocks), func(o *Block) bool { // those in use that count already
			a := st.ownAffinity(o)
			return a == nil || !st.seen(a) || o.Used == 0 || o.SoftDeleted || !within(pools, o.CIDR)
		})
		if have >= limit && within(pools, b.CIDR) && len(held) < limit && !st.hasKeepable(h, pools, stays) {
			bar = Because(RetainConflict, "with its affinities %s would have %d of at most %d blocks and no free address, so its next pod would get none: raise the limit first", h.Name, have, limit)
		}
	})
	return bar
}

// MayCount returns how many blocks may count against a node's block limit: one per affinity, and
// one per block without an affinity, which a repair may restore.
func (st *State) MayCount(h *NodeState, f blocks.Family) int {
	n := st.affinities(h, f) + st.UnreadOfNode(h.Name)
	for _, b := range h.Blocks {
		if b.Family() == f && st.ownAffinity(b) == nil {
			n++
		}
	}
	return n
}

// supply counts the blocks that nodes can claim in addition to their own.
type supply struct {
	st *State
	// left is, by pool, how many blocks are left once every node without room in the pool has
	// claimed one.
	left map[*Pool]blocks.Count
	// lacking are the pools with fewer blocks than such nodes, or with an unknown number. unlinked
	// are the pools in which a node has a block with room but no affinity.
	lacking, unlinked map[*Pool]bool
	// missing counts, by node, the missing blocks that contain addresses of its pods.
	missing map[string]int
	// promised are, by pool, the nodes at their block limit with an affinity to a slot without a
	// block. If another node claims that slot, they can claim no other.
	promised map[*Pool][]*NodeState
	unknown  bool // blocks, pools or pods were not read
}

// allow reports whether a node may give up its empty block although its other blocks in the given
// pools are full. After every node without room has claimed a block, each of these pools must have
// one more left, not counting the released block.
func (c *supply) allow(h *NodeState, b *Block, pools []*Pool) bool {
	if c == nil {
		return false
	}
	have := c.st.MayCount(h, b.Family()) + c.missing[h.Name] - 1
	unsure := func(p *Pool) bool {
		return c.lacking[p] || !c.useless(h, p).IsZero() || c.st.NeededByOthers(h, p)
	}
	if have >= c.st.IPAM.BlockLimit() || slices.ContainsFunc(pools, unsure) || c.left[b.Pool].IsZero() {
		return false
	}
	c.left[b.Pool] = c.left[b.Pool].Sub(blocks.CountOf(1))
	b.Releasability.Instead = pools
	return true
}

// useless counts the blocks of a pool that a node could claim but that have no address for it.
func (c *supply) useless(h *NodeState, p *Pool) blocks.Count {
	if h != nil && h.Node != nil && h.Node.Windows {
		return blocks.WindowsSlots(p.Pool, c.st.Reservations)
	}
	return blocks.Count{}
}

// NeededByOthers reports whether a block of the pool that a node claims may be the only one that
// another node can claim.
func (st *State) NeededByOthers(h *NodeState, p *Pool) bool {
	unread := func(g blocks.Gap) bool { // the unread affinity may be one of them
		return (!g.OwnerKnown || g.Owner.Node() != h.Name) && (!g.Prefix.IsValid() || p.CIDR.Contains(g.Prefix.Addr()) && st.created(g.Prefix))
	}
	return slices.ContainsFunc(Derived(st, countSupply).promised[p], func(o *NodeState) bool { return o != h }) || slices.ContainsFunc(st.Unreadable(blocks.Affinities), unread)
}

// TakenIfEmpty reports whether Calico may give a block to another node once it is empty.
func (st *State) TakenIfEmpty(b *Block) bool {
	return st.takesBlocks() && Derived(st, countSupply).lacking[b.Pool]
}

// usedTogether reports whether Calico may choose between two pools for one address.
func (st *State) usedTogether(p, q *Pool) bool {
	both := func(asked []*Pool) bool { return slices.Contains(asked, p) && slices.Contains(asked, q) }
	onNode := p.Automatic && q.Automatic && p.selected.Without(q.selected).Len() < p.selected.Len()
	return q.HandsOut() && slices.ContainsFunc(q.Uses, p.Allows) && (onNode || slices.ContainsFunc(st.asked, both))
}

// mayTake reports whether another node may take an empty block because no others are left.
func (c *supply) mayTake(b *Block) bool {
	return c != nil && slices.ContainsFunc(c.st.poolsAt(b.CIDR), func(p *Pool) bool { return c.lacking[p] && slices.Contains(p.takeover, b) })
}

// savedForOthers reports whether an empty block that other nodes may take helps them only while it
// exists. Nodes claim free blocks first, so once released, it may go to nodes that could use a
// second pool, to a node with an affinity to it, or be claimed in place of a block without an
// affinity. Also, its own node may lose its other blocks; if limited, it can then claim no other.
func (c *supply) savedForOthers(b *Block) bool {
	limited := func(h *NodeState) bool {
		left := slices.DeleteFunc(slices.Clone(h.Blocks), func(o *Block) bool { return !c.mayTake(o) || c.st.UnrecordedUser(o.CIDR) != "" })
		return h.Node != nil && c.st.MayCount(h, b.Family())+c.missing[h.Name]-len(left) >= c.st.IPAM.BlockLimit()
	}
	h := c.st.nodeStates[b.Owner.Node()]
	linked := func(a *blocks.Affinity) bool {
		return a.Owner != b.Owner && c.st.seen(a) && !c.st.Vanished(a.Owner.Node())
	}
	return c.mayTake(b) && (h != nil && limited(h) || c.st.firstGap(false, ReleaseReads...) != nil || slices.ContainsFunc(c.st.AffinitiesOf(b.CIDR), linked) || slices.ContainsFunc(c.st.Pools, func(q *Pool) bool {
		p := b.Pool
		return q == p && c.unlinked[p] || q != p && q.Family() == p.Family() && c.st.usedTogether(p, q) &&
			(c.unlinked[q] || c.st.IsAskedFor(p) || c.st.IsAskedFor(q) || q.NodeSelector != p.NodeSelector || q.NamespaceSelector != p.NamespaceSelector || c.st.TunnelOfOne(p.Pool, q.Pool))
	}))
}

// countSupply counts the blocks left in each pool.
func countSupply(st *State) *supply {
	c := &supply{st: st, left: map[*Pool]blocks.Count{}, lacking: map[*Pool]bool{}, unlinked: map[*Pool]bool{}, missing: map[string]int{}, promised: map[*Pool][]*NodeState{}}
	c.unknown = len(st.Unreadable(blocks.Pools))+len(st.Unreadable(blocks.Pods)) > 0 || st.SlotBar().Code != ""
	used := map[netip.Prefix][]string{} // the nodes by block
	st.EachUnrecorded(func(u UnrecordedIP) {
		if slot := st.SlotOf(u.Addr); u.Block == nil && slot.IsValid() {
			for _, x := range u.Users {
				if !slices.Contains(used[slot], x.Node) {
					used[slot] = append(used[slot], x.Node)
					c.missing[x.Node]++
				}
			}
		}
	})
	asking, pinned := map[*Pool][]string{}, []*Pool(nil) // nodes with a pod that asks for the pool, selected by it or not
	for _, w := range st.Workloads {
		for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
			asked, _ := st.RequestedPools(w, f)
			for _, p := range asked {
				asking[p] = append(asking[p], w.Node)
			}
			for _, p := range st.PinnedPools(w, f) { // the CNI configuration of any node may name them
				if !slices.Contains(pinned, p) {
					pinned = append(pinned, p)
				}
			}
		}
	}
	for _, b := range st.IPBlocks {
		h := st.nodeStates[b.Owner.Node()]
		c.unlinked[b.Pool] = c.unlinked[b.Pool] || h != nil && h.Node != nil && b.Usable() && !st.HasAffinityOrNone(b) && st.hasFree(b)
	}
	for _, h := range st.NodeStates {
		for _, p := range st.Pools {
			n := &NodeBlockStatus{Host: h, Family: p.Family()}
			if h.Node != nil && st.affinities(h, n.Family) >= st.IPAM.BlockLimit() && st.HealsItself(n, []*Pool{p}) {
				c.promised[p] = append(c.promised[p], h)
			}
		}
	}
	for _, p := range st.Pools {
		overlaps := func(q *Pool) bool { return q != p && q.CIDR.Overlaps(p.CIDR) }
		vanishes := func(b *Block) bool { return b.SoftDeleted && b.CIDR.Bits() != p.BlockSize }
		if c.unknown || slices.Contains(pinned, p) || slices.ContainsFunc(st.Pools, overlaps) || slices.ContainsFunc(p.Blocks, vanishes) {
			c.lacking[p] = true
			continue
		}
		holds := map[string]bool{"": true} // a pod without a node claims nothing
		for _, b := range p.Blocks {
			if b.Pool == p && st.Keepable(b) {
				holds[b.Owner.Node()] = true
			}
		}
		need, claims, useless := 0, asking[p], blocks.Count{}
		for i := range p.selected.All() {
			claims = append(claims, st.NodeStates[i].Name)
		}
		for _, name := range claims {
			if !holds[name] {
				holds[name], useless = true, cmp.Or(useless, c.useless(st.nodeStates[name], p))
				need++
			}
		}
		for slot := range used { // a claim there would assign addresses in use
			if p.CIDR.Contains(slot.Addr()) {
				need++
			}
		}
		free, needed := p.Slots.Allocatable.Sub(blocks.CountOf(len(p.takeover))), useless.Add(blocks.CountOf(need))
		if c.lacking[p] = free.Cmp(needed) < 0; !c.lacking[p] {
			c.left[p] = free.Sub(needed)
		}
	}
	return c
}
