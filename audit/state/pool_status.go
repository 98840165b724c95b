package state

import (
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// OutOfBlocks reports whether a pool for workloads has no block left to claim.
func (p *Pool) OutOfBlocks() bool { return p.ServesWorkloads() && p.Slots.Allocatable.IsZero() }

// BlocksLeft counts the blocks of a pool that can be claimed, or could once what may be
// released is: each once.
func (p *Pool) BlocksLeft() blocks.Count {
	both := 0
	for _, b := range p.takeover {
		if b.Reclaimability.OK {
			both++
		}
	}
	return p.Slots.Allocatable.Add(p.Reclaimable).Sub(blocks.CountOf(both))
}

// LowOnBlocks reports whether under 2 or under 10 % of a workload pool's blocks are left.
func (p *Pool) LowOnBlocks() bool {
	left := p.BlocksLeft()
	return p.ServesWorkloads() && (left.Cmp(blocks.CountOf(2)) < 0 || left.Times(10).Cmp(p.Slots.Capacity) < 0)
}

// LowOnAddresses reports whether under 10 % of the addresses of a pool that assigns
// automatically are left to hand out.
func (p *Pool) LowOnAddresses() bool {
	return !p.Disabled && p.Automatic && p.Addrs.Available.Times(10).Cmp(p.Addrs.Capacity) < 0
}

// Releasable returns the blocks of a pool that may be released now.
func (p *Pool) Releasable() (out []*Block) {
	for _, b := range p.Blocks {
		if b.Reclaimability.OK {
			out = append(out, b)
		}
	}
	return out
}

// Relieved reports whether each node that a pool selects may use another pool instead,
// for pods of the same namespaces, that fulfils a condition. Pods that ask for the pool
// by name are not helped by others.
func (st *State) Relieved(p *Pool, enough func(*Pool) bool) bool {
	helps := func(q *Pool) bool {
		return q != p && enough(q) && (q.ServesAllNamespaces() || q.NamespaceSelector == p.NamespaceSelector)
	}
	if !p.Automatic || st.FirstMissing(AllocationReads) != nil || !slices.ContainsFunc(st.Pools, helps) {
		return false
	}
	for i := range st.Workloads {
		w := &st.Workloads[i]
		if asked, _ := st.RequestedPools(w, p.Family()); w.Live() && slices.Contains(asked, p) && !slices.ContainsFunc(asked, helps) {
			return false
		}
	}
	selected := false
	for _, h := range st.NodeStates {
		if h.Node == nil || !p.SelectsNode(h.Node) {
			continue
		}
		if selected = true; !slices.ContainsFunc(st.WorkloadPools(h.Node, p.Family()), helps) {
			return false
		}
	}
	return selected
}

// Scarce reports whether a pool for workloads has no block left to claim, and no other
// helps all nodes that it serves.
func (st *State) Scarce(p *Pool) bool {
	return p != nil && p.OutOfBlocks() && !st.Relieved(p, (*Pool).HasBlocks)
}

// HasBlocks reports whether a workload pool has a block left to claim.
func (p *Pool) HasBlocks() bool { return p.ServesWorkloads() && !p.Slots.Allocatable.IsZero() }

// AllocationReads is what it takes, beside a pool's own numbers, to say which nodes
// cannot allocate.
var AllocationReads = []blocks.Resource{blocks.Nodes, blocks.Pods, blocks.Namespaces, blocks.IPAMConfigs}

// CutOff returns the schedulable nodes without a block that a pool selects and no other
// pool can help: those whose pods borrow or wait, and those whose next pod would. Under
// strict affinity a node whose blocks are full is as badly off once a pod of it waits.
func (st *State) CutOff(p *Pool) (now, next []string) {
	for _, h := range st.NodeStates {
		for _, n := range h.BlockStatus {
			if !h.Schedulable || n.Family != p.Family() || st.BlockMayExist(n) {
				continue
			}
			switch {
			case !n.NoBlock():
				if slices.ContainsFunc(n.Stuck, func(s Stuck) bool {
					return s.Cause == CauseStrict && slices.Contains(st.PodPools(s.Pod, h.Node, n.Family), p)
				}) {
					now = append(now, h.Name)
				}
			case st.podsCutOff(n, p):
				now = append(now, h.Name)
			case p.Automatic && p.SelectsNode(h.Node) && !st.Claimable(GeneralPools(n.Pools), h):
				next = append(next, h.Name)
			}
		}
	}
	return now, next
}

// podsCutOff reports whether a pod (or the tunnel) of a node borrows or waits, may use
// the pool, and has no other pool with a block left.
func (st *State) podsCutOff(n *NodeBlockStatus, p *Pool) bool {
	concerns := func(w *blocks.Workload) bool {
		pools := st.PodPools(w, n.Host.Node, n.Family)
		return slices.Contains(pools, p) && !st.Claimable(pools, n.Host)
	}
	return slices.ContainsFunc(n.Waiting, concerns) || slices.ContainsFunc(n.Borrowed, func(b *Borrow) bool {
		if b.Workload != nil {
			return concerns(b.Workload)
		}
		return p.Automatic && p.SelectsNode(n.Host.Node) && !st.Claimable(n.Pools, n.Host)
	})
}

// BlockMayExist reports whether a block that could not be understood may be one that
// the node owns.
func (st *State) BlockMayExist(n *NodeBlockStatus) bool {
	return slices.ContainsFunc(st.Unreadable(blocks.Blocks), func(g blocks.Gap) bool {
		return (!g.OwnerKnown || g.Owner.Node() == n.Host.Name) &&
			(!g.Prefix.IsValid() || blocks.FamilyOf(g.Prefix.Addr()) == n.Family)
	})
}

// PodsWithoutAddress returns the pods that wait, may use a pool that has no address
// left, and no other that has one.
func (st *State) PodsWithoutAddress(p *Pool) (out []*blocks.Workload) {
	for _, h := range st.NodeStates {
		for _, n := range h.BlockStatus {
			for _, w := range n.Waiting {
				pools := st.PodPools(w, h.Node, n.Family)
				if slices.Contains(pools, p) && !slices.ContainsFunc(pools, func(q *Pool) bool { return !q.Addrs.Available.IsZero() }) {
					out = append(out, w)
				}
			}
		}
	}
	return out
}

// Demand is how many blocks the nodes that a pool selects will need, and how they are
// to be had.
type Demand struct {
	// Nodes is how many nodes the pool selects.
	Nodes int
	// Usable is how many blocks the pool can have in use at once; Short how many its
	// nodes will need beyond these, when full.
	Usable, Short blocks.Count
	// Elsewhere is how many addresses, in whole blocks, other pools have to spare for
	// all these nodes; block sizes may differ, so that blocks cannot be compared.
	Elsewhere blocks.Count
}

// Covered reports whether other pools make up for what is short.
func (d *Demand) Covered(p *Pool) bool { return d.Elsewhere.Cmp(d.Short.Mul(p.BlockAddresses())) >= 0 }

// DemandOf returns how a pool stands to what its nodes will need; nil if it has enough.
func (st *State) DemandOf(p *Pool) *Demand {
	d := &Demand{Usable: st.usableSlots(p)}
	if p.Needed.Cmp(d.Usable) <= 0 {
		return nil
	}
	mine := st.selected(p)
	d.Nodes, d.Short = len(mine), p.Needed.Sub(d.Usable)
	for _, q := range st.Pools {
		if q == p || q.Family() != p.Family() || !q.ServesWorkloads() || !q.Automatic || !q.ServesAllNamespaces() {
			continue
		}
		theirs := st.selected(q)
		left := st.usableSlots(q)
		all := len(mine) > 0
		for h := range mine {
			all = all && theirs[h]
		}
		for h := range theirs {
			if all && !mine[h] {
				left = left.Sub(NodeDemand(h.Node, q))
			}
		}
		if all && left.Cmp(blocks.Count{}) > 0 {
			d.Elsewhere = d.Elsewhere.Add(left.Mul(q.BlockAddresses()))
		}
	}
	return d
}

// usableSlots is how many blocks a pool can have in use at once.
func (st *State) usableSlots(p *Pool) blocks.Count {
	return blocks.PoolSlots(p.Pool, nil, st.Reserved).Free
}

// selected returns the nodes that a pool selects.
func (st *State) selected(p *Pool) map[*NodeState]bool {
	out := map[*NodeState]bool{}
	for _, h := range st.NodeStates {
		if h.Node != nil && p.SelectsNode(h.Node) {
			out[h] = true
		}
	}
	return out
}

// CachedScarce returns Scarce with a memory, for asking it of many blocks.
func (st *State) CachedScarce() func(*Pool) bool {
	known := map[*Pool]bool{nil: false}
	return func(p *Pool) bool {
		if _, ok := known[p]; !ok {
			known[p] = st.Scarce(p)
		}
		return known[p]
	}
}
