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
	// Unused is how many addresses of Blocks could still be assigned.
	Unused int
	// Cause is why the node cannot claim a block now; judged only where it would
	// have to, because Blocks have no unused address.
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

// Starves is true if the node's next pod would get no address.
func (n *Need) Starves() bool { return n.Unused == 0 && n.Cause.starves() }

// needsBlocks is true if the node's next pod would have to come from a new block
// or from a borrowed address, and there is no block to be had.
func (n *Need) needsBlocks() bool { return n.Unused == 0 && n.Cause != CauseNone }

// judgeHosts settles, for each node, whether it is schedulable and how it stands
// with blocks of each family that counts.
func (st *State) judgeHosts() {
	for _, h := range st.Hosts {
		if h.Node == nil {
			continue
		}
		runs := slices.ContainsFunc(h.Workloads, func(w *blocks.Workload) bool {
			return w.Live() && (len(w.StatusIPs) > 0 || len(w.AnnotationIPs) > 0)
		})
		h.Schedulable = !h.Node.OutOfService && (runs || !h.Node.Unschedulable && len(h.Node.KeepsAway()) == 0)
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
		case b.Usable() && inPools(b, mine) && !st.reserved.Covers(b.CIDR):
			n.Blocks = append(n.Blocks, b)
			n.Unused += b.unused(st.reserved)
		default:
			n.Elsewhere = append(n.Elsewhere, b)
		}
	}
	for _, b := range h.Borrowed {
		if blocks.FamilyOf(b.Addr) == f {
			n.Borrowed = append(n.Borrowed, b)
		}
	}
	if n.Unused == 0 {
		n.Cause, n.Detail = st.cause(n)
	}
	return n
}

// poolsAtIssue returns the pools that the node could claim a block from: those
// of the pods that borrow or wait or, where there are none, those that serve any
// pod.
func (st *State) poolsAtIssue(n *Need) []*Pool {
	var out []*Pool
	add := func(w *blocks.Workload) {
		for _, p := range st.PodPools(w, n.Host.Node, n.Family) {
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
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
	if len(out) == 0 {
		return generalPools(n.Pools)
	}
	return out
}

func (st *State) cause(n *Need) (Cause, string) {
	for _, p := range st.Pools {
		if p.Family() == n.Family && p.refuses(n.Host.Node) {
			return CauseSelector, fmt.Sprintf("pool %s: %v", p.Name, p.SelectorError())
		}
	}
	pools := st.poolsAtIssue(n)
	if len(pools) == 0 {
		return CauseNoPool, st.whyNoPool(n)
	}
	if st.healsItself(n) {
		return CauseNone, "it has an affinity whose block does not exist: its next assignment makes the block"
	}
	if !st.IPAM.AutoAllocateBlocks {
		return CauseNoAuto, "autoAllocateBlocks is false in the IPAM configuration: blocks must be given to nodes by hand"
	}
	if have, limit := st.limitCount(n), st.IPAM.BlockLimit(); have >= limit {
		return CauseLimit, fmt.Sprintf("the node has %s of %d allowed, and no unused address in a block of its own", plural(have, "affinity"), limit)
	}
	if st.claimable(pools, n.Host) {
		return CauseNone, ""
	}
	available := blocks.Count{}
	for _, p := range pools {
		available = available.Add(p.Addrs.Available)
	}
	names := poolNames(pools)
	switch {
	case st.IPAM.StrictAffinity:
		return CauseStrict, fmt.Sprintf("no block is left in %s; %s still unused in other nodes' blocks may not be borrowed", names, pluralCount(available, "address"))
	case available.IsZero():
		return CauseFull, "neither a block nor an address is left in " + names
	}
	return CauseNoBlocks, fmt.Sprintf("no block is left in %s; its pods borrow from the %s still unused in other nodes' blocks", names, pluralCount(available, "address"))
}

// healsItself tells whether the node has an affinity, in a pool that it may use,
// whose block does not exist. Calico's allocator walks a node's affinities
// before anything else and makes such a block (libcalico-go ipam/ipam.go,
// getBlockFromAffinity).
func (st *State) healsItself(n *Need) bool {
	return slices.ContainsFunc(n.Host.Affinities, func(a *blocks.Affinity) bool {
		return !a.SoftDeleted && blocks.FamilyOf(a.CIDR.Addr()) == n.Family && st.BlockOf(a.CIDR) == nil &&
			slices.Contains(n.Pools, st.PoolOf(a.CIDR)) && !st.reserved.Covers(a.CIDR)
	})
}

// claimable tells whether a host could claim a block of any of the pools now.
func (st *State) claimable(pools []*Pool, h *Host) bool {
	for _, p := range pools {
		if !p.Slots.Allocatable.IsZero() {
			return true
		}
	}
	return st.reclaimedByAllocator(pools, h) > 0
}

// emptyBlockMinAge is how long ago a block must have been claimed before Calico
// v3.32 and newer let another node take it over empty.
const emptyBlockMinAge = time.Minute

// reclaimedByAllocator counts the empty blocks of other nodes that the allocator
// would take for a host: Calico v3.32 and newer release such a block when a
// pool has none left.
func (st *State) reclaimedByAllocator(pools []*Pool, h *Host) int {
	if !affinity.AtLeast(st.Cluster.CalicoVersion, 3, 32) {
		return 0
	}
	count := 0
	for _, p := range pools {
		for _, b := range p.Blocks {
			claimed := cmp.Or(b.Claimed, b.Created)
			if b.Used == 0 && b.Usable() && b.Owner.Kind == blocks.HostOwner && b.Owner.Name != h.Name &&
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

// rememberHoarders returns Hoarders with a memory, for asking it of many nodes
// that use the same few sets of pools.
func (st *State) rememberHoarders() func([]*Pool) []string {
	known := map[string][]string{}
	return func(pools []*Pool) []string {
		key := poolNames(pools)
		if _, ok := known[key]; !ok {
			known[key] = st.Hoarders(pools)
		}
		return known[key]
	}
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
