package state

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
)

// Cause is why a node without a block cannot claim one.
type Cause string

// The causes, in the order in which they are checked. Each hides the causes after it, as in
// Calico's allocator (libcalico-go ipam/ipam.go, autoAssign and findOrClaimBlock).
const (
	// CauseNone: the node can claim a block.
	CauseNone Cause = ""
	// CauseSelector: a pool's selector cannot be parsed, so Calico rejects every assignment of
	// the family.
	CauseSelector Cause = "a pool's selector cannot be parsed"
	// CauseNoPool: no enabled pool of the family that serves workloads selects the node.
	CauseNoPool Cause = "no pool selects the node"
	// CauseUnserved: no pool may serve a waiting pod, because of its namespace. It is the cause of
	// single pods (see [Stuck]).
	CauseUnserved Cause = "no pool may serve it"
	// CauseNoAuto: autoAllocateBlocks is off, so nodes claim no blocks.
	CauseNoAuto Cause = "automatic blocks are off"
	// CauseLimit: the node has as many affinities as maxBlocksPerHost allows.
	CauseLimit Cause = "the block limit is reached"
	// CauseSmall: its pools hold no block and never will.
	CauseSmall Cause = "its pools are smaller than their block size"
	// CauseStrict: its pools have no block left, and strict affinity forbids borrowing.
	CauseStrict Cause = "its pools are out of blocks, and strict affinity forbids borrowing"
	// CauseReserved: as CauseFull, but IPReservations cover blocks that no node holds.
	CauseReserved Cause = "IPReservations cover the rest of its pools"
	// CauseFull: its pools have neither a block nor an address left.
	CauseFull Cause = "its pools are out of blocks and addresses"
	// CauseNoBlocks: its pools have no block left; its pods borrow.
	CauseNoBlocks Cause = "its pools are out of blocks"
)

// PreventsAllocation reports whether pods cannot get an address at all under the cause.
func (c Cause) PreventsAllocation() bool { return c != CauseNone && c != CauseNoBlocks }

// Shortfall reports whether the node cannot claim a block because its pools have none left.
func (c Cause) Shortfall() bool {
	return slices.Contains([]Cause{CauseSmall, CauseStrict, CauseReserved, CauseFull, CauseNoBlocks}, c)
}

// cause returns the most severe reason why the node cannot claim a block, with details.
func (st *State) cause(n *NodeBlockStatus) (Cause, string) {
	if c, detail := st.selectorCause(n); c != CauseNone {
		return c, detail
	}
	if len(n.requests) == 0 {
		return CauseNoPool, st.whyNoPool(n)
	}
	cause, detail := CauseNone, ""
	for _, pools := range n.requests {
		c, d := st.CauseFor(n, pools)
		if c.PreventsAllocation() && !cause.PreventsAllocation() || cause == CauseNone && (c != CauseNone || detail == "") {
			cause, detail = c, d
		}
	}
	return cause, detail
}

// selectorCause returns CauseSelector if a pool's selector cannot be parsed.
func (st *State) selectorCause(n *NodeBlockStatus) (Cause, string) {
	for _, p := range st.Pools {
		if p.Family() == n.Family && p.refuses(n.Host.Node) {
			return CauseSelector, fmt.Sprintf("pool %s: %v", p.Name, p.SelectorError())
		}
	}
	return CauseNone, ""
}

// CauseFor returns why the node cannot claim a block from the given pools. They must be all the
// pools that one assignment may use.
func (st *State) CauseFor(n *NodeBlockStatus, pools []*Pool) (Cause, string) {
	if st.HealsItself(n, pools) {
		return CauseNone, "it has an affinity whose block does not exist: its next assignment creates the block"
	}
	if !st.IPAM.AutoAllocateBlocks {
		return CauseNoAuto, "autoAllocateBlocks is false in the IPAM configuration: blocks must be assigned to nodes by hand"
	}
	if have, limit := st.LimitCount(n, pools), st.IPAM.BlockLimit(); have >= limit {
		return CauseLimit, fmt.Sprintf("the node has %s of %d allowed, and no unused address in a block of its own", phrase.Plural(have, "affinity"), limit)
	}
	if st.Claimable(pools, n.Host) {
		return CauseNone, ""
	}
	available, small, reserved := blocks.Count{}, true, ""
	for _, p := range pools {
		if reserved += st.ReservedBy(p); !p.TooSmall() {
			available, small = available.Add(p.Addrs.Available), false
		}
	}
	names := PoolNames(pools)
	switch {
	case small:
		return CauseSmall, fmt.Sprintf("no block fits into %s: the block size is larger than the pool", names)
	case st.IPAM.StrictAffinity:
		return CauseStrict, fmt.Sprintf("no block is left in %s; %s still unused in other nodes' blocks may not be borrowed%s", names, phrase.PluralCount(available, "address"), reserved)
	case available.IsZero() && reserved != "":
		return CauseReserved, "neither a block nor an address is left in " + names + reserved
	case available.IsZero():
		return CauseFull, "neither a block nor an address is left in " + names
	}
	return CauseNoBlocks, fmt.Sprintf("no block is left in %s; its pods borrow from the %s still unused in other nodes' blocks%s", names, phrase.PluralCount(available, "address"), reserved)
}

// HealsItself reports whether the node has an affinity, in one of the given pools, without an
// existing block: Calico creates the block (libcalico-go ipam/ipam.go, getBlockFromAffinity). A
// block that is marked deleted counts as missing.
func (st *State) HealsItself(n *NodeBlockStatus, pools []*Pool) bool {
	return slices.ContainsFunc(n.Host.Affinities, func(a *blocks.Affinity) bool {
		return st.seen(a) && blocks.FamilyOf(a.CIDR.Addr()) == n.Family && st.created(a.CIDR) && within(pools, a.CIDR) && !st.Reserved.Covers(a.CIDR)
	})
}

// created reports whether Calico creates the block of an affinity.
func (st *State) created(p netip.Prefix) bool {
	b := st.BlockOf(p)
	return b == nil || b.SoftDeleted && st.UnrecordedUser(p) == ""
}

// affinityBar explains why a node keeps an affinity without a block. A pod may ask for an address
// of the block by name. Or the node's next assignment creates the block, and without the affinity
// the node could claim no other block, or only one that others need. An affinity to a fully reserved
// block creates none, but it counts towards the block limit, which keeps the node from those last
// blocks.
func (st *State) affinityBar(a *blocks.Affinity) Bar {
	h, p := st.nodeStates[a.Owner.Node()], st.PoolOf(a.CIDR)
	switch {
	case st.PoolMayCover(a.CIDR):
		return Because(RetainNotRead, unreadPool)
	case h == nil || h.Node == nil || p == nil:
		return Bar{}
	}
	if b, who := st.BlockOf(a.CIDR), st.askedByName(a.CIDR, h.Name); who != "" && (b == nil || b.Owner == a.Owner) {
		return Because(RetainInUse, "%s", who)
	}
	n := &NodeBlockStatus{Host: &NodeState{Affinities: []*blocks.Affinity{a}}, Family: p.Family()}
	supply := Derived(st, countSupply)
	limited := !st.IPAM.AutoAllocateBlocks || st.affinities(h, n.Family)-1+supply.missing[h.Name] >= st.IPAM.BlockLimit()
	var bar Bar
	st.eachPodPools(h, func(pools []*Pool, _ string) {
		left := func(q *Pool) bool { return slices.Contains(pools, q) && !supply.lacking[q] }
		scarce := func(q *Pool) bool {
			return supply.lacking[q] && !st.Relieved(q, left) || st.NeededByOthers(h, q)
		}
		takesLast := !st.hasKeepable(h, pools, func(b *Block) bool { return !supply.mayTake(b) }) && slices.ContainsFunc(pools, scarce)
		switch {
		case bar.Code != "":
		case st.HealsItself(n, pools) && (limited || takesLast):
			bar = Because(RetainHeals, onlyWay, h.Name)
		case takesLast && st.Reserved.Covers(a.CIDR) && st.LimitCount(n, pools) > 0 && st.limitedByMore(h, n.Family, pools):
			bar = Because(RetainLast, holdsBack, h.Name)
		}
	})
	return bar
}

// limitedByMore reports whether a node is at its block limit only because of affinities that none
// of its blocks in use confirms. A plan may delete several of them.
func (st *State) limitedByMore(h *NodeState, f blocks.Family, pools []*Pool) bool {
	inUse := slices.DeleteFunc(slices.Clone(h.Affinities), func(a *blocks.Affinity) bool {
		b := st.BlockOf(a.CIDR)
		return b == nil || b.Owner != a.Owner || b.Used == 0
	})
	count := func(of *NodeState) int { return st.LimitCount(&NodeBlockStatus{Host: of, Family: f}, pools) }
	return count(h)+len(st.Unreadable(blocks.Affinities)) >= st.IPAM.BlockLimit() && count(&NodeState{Affinities: inUse}) < st.IPAM.BlockLimit()
}

// affinities counts a node's affinities of a family that are not marked deleted, and those that may
// be but cannot be read.
func (st *State) affinities(h *NodeState, f blocks.Family) (n int) {
	for _, g := range st.Unreadable(blocks.Affinities) {
		if (!g.OwnerKnown || g.Owner.Node() == h.Name) && (!g.Prefix.IsValid() || blocks.FamilyOf(g.Prefix.Addr()) == f) {
			n++
		}
	}
	for _, a := range h.Affinities {
		if !a.SoftDeleted && blocks.FamilyOf(a.CIDR.Addr()) == f {
			n++
		}
	}
	return n
}

// Claimable reports whether a host could claim a block of any of the pools now. A node cannot
// claim its own empty block again, so those do not count.
func (st *State) Claimable(pools []*Pool, h *NodeState) bool {
	return slices.ContainsFunc(pools, func(p *Pool) bool {
		return p.Slots.Allocatable.Cmp(blocks.CountOf(p.takenFrom[h.Name])) > 0
	})
}

// LimitCount is how many affinities of a family the allocator counts against the limit of a node
// that may use some pools: all affinities in these pools, in any state, with or without a block
// (libcalico-go ipam/ipam.go, prepareAffinityBlocksForHost). If no affinities were read, the input
// lacks them, and the node's blocks count instead.
func (st *State) LimitCount(n *NodeBlockStatus, pools []*Pool) (count int) {
	for _, a := range n.Host.Affinities {
		if st.seen(a) && within(pools, a.CIDR) {
			count++
		}
	}
	if len(st.Affinities)+len(st.Unreadable(blocks.Affinities)) > 0 {
		return count
	}
	for _, b := range n.Host.Blocks {
		if within(pools, b.CIDR) {
			count++
		}
	}
	return count
}

func (st *State) whyNoPool(n *NodeBlockStatus) string {
	var why []string
	for _, p := range st.Pools {
		if p.Family() != n.Family {
			continue
		}
		switch {
		case p.Disabled:
			why = append(why, p.Name+" is disabled")
		case p.NotAllocatable != "":
			why = append(why, fmt.Sprintf("%s is not allocatable (%s)", p.Name, p.NotAllocatable))
		case !p.Deleting.IsZero():
			why = append(why, p.Name+" is being deleted")
		case !p.Allows(blocks.UseWorkload):
			why = append(why, p.Name+" does not allow workloads")
		case !p.Automatic:
			why = append(why, p.Name+" is used only where pods ask for it")
		default:
			why = append(why, fmt.Sprintf("%s selects %q", p.Name, p.NodeSelector))
		}
	}
	if len(why) == 0 {
		return fmt.Sprintf("there is no %s pool", n.Family)
	}
	return strings.Join(why, "; ")
}
