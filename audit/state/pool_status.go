package state

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
)

// OutOfBlocks reports whether a pool for workloads has no block left to claim.
func (p *Pool) OutOfBlocks() bool {
	return p.ServesWorkloads() && !p.unused && p.Slots.Allocatable.IsZero()
}

// TooSmall reports whether a pool can never hold a block, because it is smaller than its block
// size.
func (p *Pool) TooSmall() bool { return p.Slots.Capacity.IsZero() && len(p.Blocks) == 0 }

// ReservedBy names, after a semicolon, the IPReservations that each cover a block which no node holds.
func (st *State) ReservedBy(p *Pool) string {
	var by blocks.Names
	for _, r := range st.Reservations {
		if r.Ours == "" && r.CoversBlockOf(p.Pool) {
			by = append(by, r.Name)
		}
	}
	if p.Slots.Reserved.IsZero() || len(by) == 0 {
		return ""
	}
	return fmt.Sprintf("; IPReservation %s covers %s of %s", by, phrase.PluralCount(p.Slots.Reserved, "block"), p.Name)
}

// BlocksLeft counts the blocks of a pool that can be claimed now, or after the releasable blocks
// are released. Each block counts once.
func (p *Pool) BlocksLeft() blocks.Count {
	both := 0
	for _, b := range p.takeover {
		if b.Releasability.OK {
			both++
		}
	}
	return p.Slots.Allocatable.Add(p.Releasable).Sub(blocks.CountOf(both))
}

// LowOnBlocks reports whether a workload pool has fewer than 2 blocks, or fewer than 10 % of its
// blocks, left.
func (p *Pool) LowOnBlocks() bool {
	left := p.BlocksLeft()
	return p.ServesWorkloads() && !p.unused && (left.Cmp(blocks.CountOf(2)) < 0 || left.Times(10).Cmp(p.Slots.Capacity) < 0)
}

// LowOnAddresses reports whether a pool that assigns automatically has less than 10 % of its
// addresses left.
func (p *Pool) LowOnAddresses() bool {
	return !p.Disabled && p.Automatic && !p.unused && p.Addrs.Available.Times(10).Cmp(p.Addrs.Capacity) < 0
}

// ReleasableBlocks returns the blocks of a pool that may be released now.
func (p *Pool) ReleasableBlocks() []*Block {
	return slices.DeleteFunc(slices.Clone(p.Blocks), func(b *Block) bool { return !b.Releasability.OK })
}

// Relieved reports whether each node that a pool selects may use another pool that satisfies
// enough, for pods of the same namespaces. Pods that ask for this pool by name get no help from
// other pools.
func (st *State) Relieved(p *Pool, enough func(*Pool) bool) bool {
	helps := func(q *Pool) bool {
		return q != p && enough(q) && p.sharesNamespaces(q)
	}
	if p.ForServices() {
		return slices.ContainsFunc(st.Pools, func(q *Pool) bool {
			return q != p && q.HandsOut() && q.Allows(blocks.UseLoadBalancer) && q.Family() == p.Family() && !q.Addrs.Available.IsZero()
		})
	}
	if st.FirstMissing(AllocationReads) != nil || !slices.ContainsFunc(st.Pools, helps) {
		return false
	}
	for _, asked := range st.asked {
		if slices.Contains(asked, p) && !slices.ContainsFunc(asked, helps) {
			return false
		}
	}
	if !p.Automatic {
		return st.IsAskedFor(p) // it serves only pods that ask for it
	}
	for i := range p.selected.All() {
		if !slices.ContainsFunc(st.NodeStates[i].workloadPools, func(q *Pool) bool { return q.Family() == p.Family() && helps(q) }) {
			return false
		}
	}
	return p.selected.Len() > 0
}

// ForServices reports whether only LoadBalancer Services get addresses of a pool: it has no nodes.
func (p *Pool) ForServices() bool { return len(p.Uses) == 1 && p.Allows(blocks.UseLoadBalancer) }

// HasBlocks reports whether a workload pool has a block left to claim.
func (p *Pool) HasBlocks() bool { return p.ServesWorkloads() && !p.Slots.Allocatable.IsZero() }

// AllocationReads are the reads, in addition to a pool's own numbers, that show which nodes cannot
// allocate.
var AllocationReads = []blocks.Resource{blocks.Nodes, blocks.Pods, blocks.Namespaces, blocks.IPAMConfigs}

// cutOff holds the nodes that [State.CutOff] returns. doubt is true if it may be incomplete; unsure,
// if the pool may have blocks left.
type cutOff struct {
	now, next     []string
	doubt, unsure bool
}

// CutOff returns the schedulable nodes that a pool selects, that have no block, and that no other
// pool can help. now are those with pods that borrow or wait, and next those whose next pod would.
// Under strict affinity, a node with full blocks counts, too, once one of its pods waits.
func (st *State) CutOff(p *Pool) (now, next blocks.Names) {
	if p.cutOff.unsure {
		return nil, nil
	}
	return p.cutOff.now, p.cutOff.next
}

// MayCutOff reports whether it is not known whether some node is cut off, or whether the pool has
// blocks left.
func (p *Pool) MayCutOff() bool { return p.cutOff.doubt }

// findCutOff finds, for each pool, the nodes without a block of it and the pods without an address
// of it.
func (st *State) findCutOff() {
	for _, p := range st.Pools {
		p.cutOff.unsure = st.slotDoubt(p) != ""
		p.cutOff.doubt = p.cutOff.unsure
	}
	for _, h := range st.NodeStates {
		for _, n := range h.BlockStatus {
			st.findWithoutAddress(n)
			if !h.Schedulable || !n.NoBlock() && len(n.Stuck) == 0 {
				continue
			}
			if st.DoubtOf(n) != "" {
				for _, p := range st.selecting(n) {
					p.cutOff.doubt = true
				}
				continue
			}
			now := st.cutOffNow(n)
			for _, p := range now {
				p.cutOff.now = append(p.cutOff.now, h.Name)
			}
			if !n.NoBlock() || st.Claimable(GeneralPools(n.Pools), h) {
				continue
			}
			unsure := slices.ContainsFunc(GeneralPools(n.Pools), func(q *Pool) bool { return q.cutOff.unsure })
			for _, p := range st.selecting(n) {
				if p.cutOff.doubt = p.cutOff.doubt || unsure; !unsure && !slices.Contains(now, p) {
					p.cutOff.next = append(p.cutOff.next, h.Name)
				}
			}
		}
	}
}

// cutOffNow returns the pools that a waiting or borrowing pod (or tunnel) of a node may use and
// that have no block left for it.
func (st *State) cutOffNow(n *NodeBlockStatus) (out []*Pool) {
	add := func(pools []*Pool) {
		for _, p := range pools {
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	concerns := func(w *blocks.Workload) {
		if pools := st.PodPools(w, n.Host.Node, n.Family); !st.Claimable(pools, n.Host) {
			add(pools)
		}
	}
	if !n.NoBlock() {
		for _, s := range n.Stuck {
			if s.Cause == CauseStrict {
				add(st.PodPools(s.Pod, n.Host.Node, n.Family))
			}
		}
		return out
	}
	for _, w := range n.Waiting {
		concerns(w)
	}
	for _, b := range n.Borrowed {
		if b.Workload != nil {
			concerns(b.Workload)
		} else if len(st.Unreadable(blocks.Pods)) == 0 && !st.Claimable(n.Pools, n.Host) { // of a tunnel
			add(st.selecting(n))
		}
	}
	return out
}

// selecting returns the automatic pools of a family that select a node, regardless of their
// allowed uses.
func (st *State) selecting(n *NodeBlockStatus) (out []*Pool) {
	for _, p := range st.Pools {
		if p.Automatic && p.Family() == n.Family && p.selected.Has(n.Host.place) {
			out = append(out, p)
		}
	}
	return out
}

// PodsWithoutAddress returns the waiting pods that may use a pool without free addresses, and no
// pool that has any.
func (st *State) PodsWithoutAddress(p *Pool) []*blocks.Workload { return p.waiting }

func (st *State) findWithoutAddress(n *NodeBlockStatus) {
	for _, w := range n.Waiting {
		pools := st.PodPools(w, n.Host.Node, n.Family)
		if st.MayBeServed(w) == "" && !slices.ContainsFunc(pools, func(q *Pool) bool { return !q.Addrs.Available.IsZero() }) {
			for _, p := range pools {
				p.waiting = append(p.waiting, w)
			}
		}
	}
}

// Demand compares the blocks that a pool's nodes will need with the blocks that it and others have.
type Demand struct {
	// Nodes is how many nodes the pool selects.
	Nodes int
	// Usable is how many blocks the pool can have in use at once. Short is how many more its nodes
	// will need when they run as many pods as they may.
	Usable, Short blocks.Count
	// Elsewhere is how many addresses, in whole blocks, other pools can spare for all these
	// nodes. It counts addresses because block sizes may differ.
	Elsewhere blocks.Count
}

// Covered reports whether other pools cover the shortage.
func (d *Demand) Covered(p *Pool) bool { return d.Elsewhere.Cmp(d.Short.Mul(p.BlockAddresses())) >= 0 }

// DemandOf returns the demand on a pool; nil if it has enough blocks for its nodes.
func (st *State) DemandOf(p *Pool) *Demand { return p.demand }

func (st *State) demandOf(p *Pool) *Demand {
	d := &Demand{Usable: st.usableSlots(p)}
	if p.Needed.Cmp(d.Usable) <= 0 {
		return nil
	}
	d.Nodes, d.Short = p.selected.Len(), p.Needed.Sub(d.Usable)
	for _, q := range st.Pools {
		if q == p || q.Family() != p.Family() || !q.ServesWorkloads() || !q.Automatic || !p.sharesNamespaces(q) || d.Nodes == 0 || !q.SelectsNodesOf(p) {
			continue
		}
		if left := st.usableSlots(q).Sub(st.demandBeside(q, p)); left.Cmp(blocks.Count{}) > 0 {
			d.Elsewhere = d.Elsewhere.Add(left.Mul(q.BlockAddresses()))
		}
	}
	return d
}

// demandBeside is the number of blocks of q that nodes outside p will need.
func (st *State) demandBeside(q, p *Pool) (n blocks.Count) {
	for i := range q.selected.Without(p.selected).All() {
		n = n.Add(NodeDemand(st.NodeStates[i].Node, q))
	}
	return n
}

// LackingBeside is how many blocks an additional pool like the given one needs to cover p's
// shortage. It is zero if p has no shortage, or if such a pool would not serve p's nodes.
func (st *State) LackingBeside(p, like *Pool) blocks.Count {
	d := st.DemandOf(p)
	if d == nil || d.Covered(p) || !like.SelectsNodesOf(p) {
		return blocks.Count{}
	}
	lack, size := d.Short.Mul(p.BlockAddresses()).Sub(d.Elsewhere), like.BlockAddresses()
	return lack.Add(size).Sub(blocks.CountOf(1)).Div(size).Add(st.demandBeside(like, p))
}

// SelectsNodesOf reports whether the pool selects every node that q selects.
func (p *Pool) SelectsNodesOf(q *Pool) bool { return q.selected.Within(p.selected) }

// sharesNamespaces reports whether q serves the pods of all namespaces that p serves.
func (p *Pool) sharesNamespaces(q *Pool) bool {
	return q.ServesAllNamespaces() || q.NamespaceSelector == p.NamespaceSelector
}

// usableSlots is the maximum number of a pool's blocks that can be in use.
func (st *State) usableSlots(p *Pool) blocks.Count {
	return blocks.PoolSlots(p.Pool, nil, st.Reserved).Free
}
