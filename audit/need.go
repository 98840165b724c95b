package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/blocks"
)

// Cause is why a node without a block cannot claim one.
type Cause string

// The causes, in the order in which they are looked for: each hides the ones
// after it, as it does in Calico's allocator (libcalico-go ipam/ipam.go,
// autoAssign and findOrClaimBlock).
const (
	// CauseNone: nothing keeps the node from claiming a block.
	CauseNone Cause = ""
	// CauseSelector: a pool has a selector that cannot be parsed, and Calico then
	// refuses every assignment of the family.
	CauseSelector Cause = "a pool's selector cannot be parsed"
	// CauseNoPool: no enabled pool of the family that serves workloads selects
	// the node.
	CauseNoPool Cause = "no pool selects the node"
	// CauseNoAuto: autoAllocateBlocks is off, so that nodes claim no blocks.
	CauseNoAuto Cause = "automatic blocks are off"
	// CauseLimit: the node has as many affinities as maxBlocksPerHost allows.
	CauseLimit Cause = "the block limit is reached"
	// CauseStrict: its pools have no block left, and strict affinity forbids
	// borrowing.
	CauseStrict Cause = "its pools are out of blocks, and strict affinity forbids borrowing"
	// CauseFull: its pools have neither a block nor an address left.
	CauseFull Cause = "its pools are out of blocks and addresses"
	// CauseNoBlocks: its pools have no block left; its pods borrow.
	CauseNoBlocks Cause = "its pools are out of blocks"
)

// starves tells whether pods cannot get an address at all under the cause.
func (c Cause) starves() bool { return c != CauseNone && c != CauseNoBlocks }

// Need is how a node stands with blocks of one family.
type Need struct {
	Host   *Host
	Family blocks.Family
	// Pools are the pools that serve the node's workloads automatically.
	Pools []*Pool
	// Blocks are the usable blocks that the node owns in these pools, and in
	// pools that its pods ask for; Elsewhere are its other blocks of the family.
	Blocks, Elsewhere []*Block
	// Cause is why the node cannot claim a block now.
	Cause Cause
	// Detail says more about the cause.
	Detail string
	// Borrowed are the node's borrowed addresses of the family.
	Borrowed []*Borrow
	// Waiting are pods of the node that have no address yet.
	Waiting []*blocks.Workload
	// Addressed is true if a pod of the node has an address of the family.
	Addressed bool
}

// NoBlock is true if the node owns no usable block in its pools.
func (n *Need) NoBlock() bool { return len(n.Blocks) == 0 }

// judgeHosts settles, for each node, whether it is schedulable and how it stands
// with blocks of each family that counts.
func (st *State) judgeHosts() {
	for _, h := range st.Hosts {
		if h.Node == nil {
			continue
		}
		h.Schedulable = !h.Node.Unschedulable && h.Node.Untainted() || slices.ContainsFunc(h.Workloads, func(w *blocks.Workload) bool {
			return w.Live() && (len(w.StatusIPs) > 0 || len(w.AnnotationIPs) > 0)
		})
		for _, f := range st.Families {
			h.Needs = append(h.Needs, st.need(h, f))
		}
	}
}

func (st *State) need(h *Host, f blocks.Family) *Need {
	n := &Need{Host: h, Family: f, Pools: st.WorkloadPools(h.Node, f)}
	mine := n.Pools
	for _, w := range h.Workloads {
		if !w.Live() {
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
	for _, b := range h.Blocks {
		switch {
		case b.Family() != f:
		case b.Usable() && inPools(b, mine):
			n.Blocks = append(n.Blocks, b)
		default:
			n.Elsewhere = append(n.Elsewhere, b)
		}
	}
	for _, b := range h.Borrowed {
		if blocks.FamilyOf(b.Addr) == f {
			n.Borrowed = append(n.Borrowed, b)
		}
	}
	if n.NoBlock() {
		n.Cause, n.Detail = st.cause(n)
	}
	return n
}

func (st *State) cause(n *Need) (Cause, string) {
	for _, p := range st.Pools {
		if err := p.SelectorError(); err != nil && !p.Disabled && p.Family() == n.Family {
			return CauseSelector, fmt.Sprintf("pool %s: %v", p.Name, err)
		}
	}
	if len(n.Pools) == 0 {
		return CauseNoPool, st.whyNoPool(n)
	}
	if !st.IPAM.AutoAllocateBlocks {
		return CauseNoAuto, "autoAllocateBlocks is false in IPAMConfig \"default\": blocks must be assigned to nodes by hand"
	}
	if have, limit := st.limitCount(n), st.IPAM.BlockLimit(); have >= limit {
		return CauseLimit, fmt.Sprintf("the node has %d affinities of %d allowed, and none leads to a block of its own", have, limit)
	}
	available := blocks.Count{}
	for _, p := range n.Pools {
		if !p.Slots.Allocatable.IsZero() {
			return CauseNone, ""
		}
		available = available.Add(p.Addrs.Available)
	}
	if empty := st.reclaimedByAllocator(n); empty > 0 {
		return CauseNone, ""
	}
	names := poolNames(n.Pools)
	switch {
	case st.IPAM.StrictAffinity:
		return CauseStrict, fmt.Sprintf("no block is left in %s; %s addresses are still unused in other nodes' blocks", names, available)
	case available.IsZero():
		return CauseFull, "neither a block nor an address is left in " + names
	}
	return CauseNoBlocks, fmt.Sprintf("no block is left in %s; its pods borrow from the %s addresses still unused in other nodes' blocks", names, available)
}

// emptyBlockMinAge is how long ago a block must have been claimed before Calico
// v3.32 and newer let another node take it over empty.
const emptyBlockMinAge = time.Minute

// reclaimedByAllocator counts the empty blocks of other nodes that the allocator
// would take for this node: Calico v3.32 and newer release such a block when a
// pool has none left.
func (st *State) reclaimedByAllocator(n *Need) int {
	if !affinity.AtLeast(st.Cluster.CalicoVersion, 3, 32) {
		return 0
	}
	count := 0
	for _, p := range n.Pools {
		for _, b := range p.Blocks {
			claimed := cmp.Or(b.Claimed, b.Created)
			if b.Used == 0 && b.Usable() && b.Owner.Kind == blocks.HostOwner && b.Owner.Name != n.Host.Name &&
				!claimed.IsZero() && st.Cluster.TakenAt.Sub(claimed) > emptyBlockMinAge {
				count++
			}
		}
	}
	return count
}

// limitCount is how many affinities of a family the allocator would count
// against a node's limit: those in pools that the node may use, whatever their
// state (libcalico-go ipam/ipam.go, prepareAffinityBlocksForHost). Where no
// affinity was read, its blocks are counted.
func (st *State) limitCount(n *Need) int {
	inUsable := func(p *Pool) bool { return p != nil && slices.Contains(n.Pools, p) }
	affinities, owned := 0, 0
	for _, a := range n.Host.Affinities {
		if !a.SoftDeleted && blocks.FamilyOf(a.CIDR.Addr()) == n.Family && inUsable(st.PoolOf(a.CIDR)) {
			affinities++
		}
	}
	for _, b := range n.Host.Blocks {
		if b.Family() == n.Family && inUsable(b.Pool) {
			owned++
		}
	}
	return max(affinities, owned)
}

func (st *State) whyNoPool(n *Need) string {
	var why []string
	for _, p := range st.Pools {
		if p.Family() != n.Family {
			continue
		}
		switch {
		case p.Disabled:
			why = append(why, p.Name+" is disabled")
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

// Hoarders lists the hosts that hold several blocks of the given pools, those
// with the most first, and the blocks of hosts that are no node.
func (st *State) Hoarders(pools []*Pool) []string {
	type hoard struct {
		host  *Host
		cidrs []string
	}
	var all []hoard
	for _, h := range st.Hosts {
		var cidrs []string
		for _, b := range h.Blocks {
			if inPools(b, pools) {
				cidrs = append(cidrs, fmt.Sprintf("%s (%s)", b.CIDR, inUseText(b)))
			}
		}
		if len(cidrs) > 1 || h.Node == nil && len(cidrs) > 0 {
			all = append(all, hoard{h, cidrs})
		}
	}
	slices.SortStableFunc(all, func(a, b hoard) int { return len(b.cidrs) - len(a.cidrs) })
	out := make([]string, len(all))
	for i, x := range all {
		gone := ""
		if x.host.Node == nil {
			gone = ", which is no node,"
		}
		out[i] = fmt.Sprintf("%s%s holds %d: %s", x.host.Name, gone, len(x.cidrs), strings.Join(x.cidrs, ", "))
	}
	return out
}

func inUseText(b *Block) string {
	if b.Used == 0 {
		return "empty"
	}
	return fmt.Sprintf("%d in use", b.Used)
}

func poolNames(ps []*Pool) string {
	names := make([]string, len(ps))
	for i, p := range ps {
		names[i] = p.Name
	}
	if len(names) == 1 {
		return "pool " + names[0]
	}
	return "pools " + strings.Join(names, ", ")
}
