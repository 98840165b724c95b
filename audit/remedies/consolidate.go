package remedies

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

// ReservationName is the name of the IPReservation that keeps new pods out of a block that is being
// emptied.
func ReservationName(cidr netip.Prefix) string { return "calico-audit-" + blocks.BlockName(cidr) }

// parseConsolidation parses a Name.
func parseConsolidation(s string) (c Consolidation, ok bool) {
	words := strings.Fields(s)
	if len(words) != 5 || words[1] != "from" || words[3] != "for" {
		return c, false
	}
	p, err := netip.ParsePrefix(words[0])
	c.CIDR, c.Holder, c.For = p, words[2], words[4]
	return c, err == nil
}

// Claimed reports whether the node in need has claimed the block.
func (c *Consolidation) Claimed() bool { return c.Block != nil && c.Block.Owner.Node() == c.For }

// Over reports whether only the reservation and the cordons remain to be removed, because the node
// in need, or some other owner, has the block.
func (c *Consolidation) Over() bool {
	return c.Block != nil && c.Block.Owner.Node() != c.Holder
}

// NodesWithoutBlock returns the status of nodes that have no usable block of a family and cannot
// claim one. A node is left out if one of its pools has an empty block that may be released, or
// that could be if its age were known. Nodes with the most borrowed addresses and waiting pods come
// first.
func (st *Remedies) NodesWithoutBlock() []*state.NodeBlockStatus { return st.blockless() }

func (st *Remedies) findBlockless() []*state.NodeBlockStatus {
	var out []*state.NodeBlockStatus
	for _, h := range st.NodeStates {
		for _, n := range h.BlockStatus {
			if st.lacksBlock(n) && !slices.ContainsFunc(st.PoolsAtIssue(n), func(p *state.Pool) bool { return !p.Releasable.IsZero() || st.ageless(p) }) {
				out = append(out, n)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *state.NodeBlockStatus) int {
		return cmp.Compare(len(b.Borrowed)+len(b.Waiting), len(a.Borrowed)+len(a.Waiting))
	})
	return out
}

// ageless reports whether a pool has an empty block that would be releasable if its age were known.
// Reading the age is cheaper than moving pods.
func (st *Remedies) ageless(p *state.Pool) bool {
	return slices.ContainsFunc(p.Blocks, func(b *state.Block) bool {
		return b.Pool == p && b.Used == 0 && b.Releasability.Code == state.RetainUnknownAge && b.Releasability.After == nil
	})
}

// LackingBlocks returns the names of the nodes that take pods, have no usable block of a family and
// cannot claim one. Releasable blocks are ignored.
func (st *Remedies) LackingBlocks() (out blocks.Names) {
	for _, h := range st.NodeStates {
		if slices.ContainsFunc(h.BlockStatus, st.lacksBlock) {
			out = append(out, h.Name)
		}
	}
	return out
}

// lacksBlock reports whether a node takes pods, has no usable block of a family, and cannot claim
// one. Pods of a node that is not ready would not start with a block either.
func (st *Remedies) lacksBlock(n *state.NodeBlockStatus) bool {
	if n == nil {
		return false
	}
	node := n.Host.Node
	takesPods := n.Host.Schedulable && !node.Unschedulable || node.Ours != "" && !node.OutOfService && len(node.KeepsAway()) == 0
	if !takesPods || node.NotReady || node.Windows || leaving(node) || !n.NoBlock() || st.DoubtOf(n) != "" {
		return false
	}
	return n.Cause.Shortfall()
}

// Consolidations returns the ways to free a block for a node. Those with the fewest bars come
// first, then those with the fewest unguarded pods, moved pods and pods with emptyDir volumes, then
// by CIDR. Barred explains what prevents a consolidation.
func (st *Remedies) Consolidations(n *state.NodeBlockStatus) []*Consolidation {
	var out []*Consolidation
	for _, p := range st.PoolsAtIssue(n) {
		for _, b := range st.spareable()[p] {
			if holder := b.Owner.Node(); holder != n.Host.Name {
				c := &Consolidation{For: n.Host.Name, Holder: holder, CIDR: b.CIDR, Pool: p, Block: b}
				st.evaluate(c)
				out = append(out, c)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *Consolidation) int {
		return cmp.Or(cmp.Compare(len(a.Barred), len(b.Barred)), cmp.Compare(len(a.Unguarded), len(b.Unguarded)),
			cmp.Compare(len(a.Moves), len(b.Moves)), cmp.Compare(len(Scratch(a.Moves)), len(Scratch(b.Moves))), blocks.ComparePrefixes(a.CIDR, b.CIDR))
	})
	return out
}

// findSpareable finds, by pool, the blocks whose nodes have another block with a free address.
func (st *Remedies) findSpareable() map[*state.Pool][]*state.Block {
	out := map[*state.Pool][]*state.Block{}
	for _, h := range st.NodeStates {
		for _, b := range h.Blocks {
			if h.Node == nil || b.Pool == nil || b.CIDR.Bits() != b.Pool.BlockSize || !b.Usable() || st.Reserved.Overlaps(b.CIDR) {
				continue
			}
			if slices.ContainsFunc(h.Blocks, func(o *state.Block) bool {
				return o != b && o.Family() == b.Family() && st.Keepable(o) && st.Unused(o) > 0 && slices.Contains(st.WorkloadPools(h.Node, o.Family()), o.Pool)
			}) {
				out[b.Pool] = append(out[b.Pool], b)
			}
		}
	}
	return out
}

// Begun returns the consolidations that the IPReservations of this program record, by CIDR.
func (st *Remedies) Begun() []*Consolidation {
	var out []*Consolidation
	for i := range st.Reservations {
		r := &st.Reservations[i]
		c, ok := parseConsolidation(r.Ours)
		if !ok || r.Name != ReservationName(c.CIDR) || len(r.CIDRs) != 1 || r.CIDRs[0] != c.CIDR {
			continue
		}
		c.Reservation, c.Pool, c.Block = r, st.PoolOf(c.CIDR), st.BlockOf(c.CIDR)
		st.evaluate(&c)
		out = append(out, &c)
	}
	slices.SortFunc(out, func(a, b *Consolidation) int { return blocks.ComparePrefixes(a.CIDR, b.CIDR) })
	return out
}

// evaluate finds the steps that a consolidation needs and the obstacles to it.
func (st *Remedies) evaluate(c *Consolidation) {
	c.Cordoned = slices.Clone(st.cordoned[c.Name()])
	if c.Over() {
		return
	}
	node, holder := st.NodeState(c.For), st.NodeState(c.Holder)
	switch {
	case node == nil || node.Node == nil || holder == nil || holder.Node == nil:
		c.bar(netip.Addr{}, "%s or %s no longer exists", c.For, c.Holder)
		return
	case c.Block == nil:
		if who := st.UnrecordedUser(c.CIDR); who != "" {
			c.bar(netip.Addr{}, "%s, and no block records it: the block's next owner would assign it again", who)
		}
		return // only the claim remains
	case node.Node.NotReady:
		c.bar(netip.Addr{}, "%s is not ready, so none of its pods would start with the block", c.For)
		return
	case !st.lacksBlock(node.StatusOf(blocks.FamilyOf(c.CIDR.Addr()))):
		c.bar(netip.Addr{}, "%s does not need a block any more", c.For)
		return
	case st.reservedFor(c) != "":
		c.bar(netip.Addr{}, "IPReservation %s covers it, so %s would get no address of it", st.reservedFor(c), c.For)
		return
	case holder.Node.Windows:
		c.bar(netip.Addr{}, "%s is a Windows node", c.Holder)
	case !st.answers(c.Holder):
		c.bar(netip.Addr{}, "%s is not ready, so its pods may still run", c.Holder)
	case len(c.Block.Faults) > 0 || c.Block.SoftDeleted:
		c.bar(netip.Addr{}, "the block is corrupt or marked deleted")
	}
	if then := st.IfEmptied(c.Block); then.Code == state.RetainLast {
		c.bar(netip.Addr{}, "%s", then.Reason)
	}
	if st.IPAM.Cooldown > 0 {
		c.bar(netip.Addr{}, "released addresses have a cooldown (ipCooldownSeconds, %s): the block would not be empty once its pods have moved", phrase.Duration(st.IPAM.Cooldown))
	}
	if c.Block.Used == 0 && c.Reservation == nil {
		c.bar(netip.Addr{}, "it is empty: use \"repair --empty-blocks\" (%s)", cmp.Or(c.Block.Releasability.Reason, "it releases it"))
	}
	if why := st.unrecorded(); why != "" {
		c.bar(netip.Addr{}, "%s", why)
	}
	var r state.Releasability
	if st.RetainForOthers(c.Block, st.hostUsesBeside(c), &r); r.Reason != "" {
		c.bar(netip.Addr{}, "%s", r.Reason)
	}
	for i, o := range c.Block.Ordinals {
		ref := state.AllocationRef{Block: c.Block, Ordinal: i}
		if o != blocks.Free {
			st.evaluateMove(c, ref)
		} else if who := st.UnrecordedUser(state.IPPrefix(ref.Addr())); who != "" {
			c.bar(ref.Addr(), "%s, although the block does not record it: \"repair --unrecorded-ips\" comes first", who)
		}
	}
	slices.SortStableFunc(c.Moves, func(a, b Move) int { return strings.Compare(a.Pod.FullName(), b.Pod.FullName()) })
	st.evaluateReplacements(c)
}

// reservedFor names an IPReservation, other than the consolidation's own, that covers its block.
func (st *Remedies) reservedFor(c *Consolidation) string {
	covers := func(p netip.Prefix) bool { return p.Bits() <= c.CIDR.Bits() && p.Contains(c.CIDR.Addr()) }
	for i := range st.Reservations {
		if r := &st.Reservations[i]; r != c.Reservation && slices.ContainsFunc(r.CIDRs, covers) {
			return r.Name
		}
	}
	return ""
}

// hostUsesBeside returns the addresses that host views show in use although the consolidation's
// block records them as free. After the start, it ignores views older than the block's last write:
// they may show addresses that were released since. Before the start, every view counts.
func (st *Remedies) hostUsesBeside(c *Consolidation) []hosts.Use {
	uses := st.Views.ContradictFree(c.Block.Block)
	written, known := c.Block.LastWrite()
	if c.Reservation == nil || !known {
		return uses
	}
	return slices.DeleteFunc(uses, func(u hosts.Use) bool { return u.View.TakenBefore(written.Std()) })
}

// evaluateMove adds the pod that has to move to free an address, or the bar that keeps the address.
func (st *Remedies) evaluateMove(c *Consolidation, ref state.AllocationRef) {
	attr, addr := ref.Attributes(), ref.Addr()
	kind := state.UseKindOf(c.Block, attr)
	if kind != state.UsePod {
		c.bar(addr, "%s", notAPods[kind])
		return
	}
	w := st.LiveUser(addr, attr)
	switch {
	case !st.Classify(ref).Owned:
		c.bar(addr, "it is leaked: \"repair --leaked-ips\" comes first")
	case w == nil:
		c.bar(addr, "no running pod was seen with it")
	case len(st.TunnelsAt(addr)) > 0:
		c.bar(addr, "%s", notAPods[state.UseTunnel])
	case slices.ContainsFunc(st.Users(addr), func(o *blocks.Workload) bool { return o.Live() && o.Key() != w.Key() }):
		c.bar(addr, "several pods use it")
	case !st.answers(w.Node):
		c.bar(addr, "node %s of pod %s is not ready: its kubelet would not end the pod", w.Node, w.FullName())
	default:
		m := Move{Pod: w, Addr: addr}
		if why := st.EvictionBar(w); why != "" {
			c.bar(addr, "pod %s %s", w.FullName(), why)
		} else if why := st.asksForPools(m); why != "" {
			c.bar(addr, "%s", why)
		} else if b := st.exhausted(w); b != nil && c.Reservation == nil {
			c.bar(addr, "pod %s may not be evicted now: PodDisruptionBudget %s allows no disruption", w.FullName(), b.Key())
		}
		if st.Unguarded(w) {
			c.Unguarded = append(c.Unguarded, m)
		}
		c.Moves = append(c.Moves, m)
	}
}

// notAPods explains, by kind, why an address that no pod uses cannot be moved.
var notAPods = map[state.UseKind]string{
	state.UseUnknown: "its user is not known", state.UseTunnel: "it is a tunnel's", state.UseService: "it serves a LoadBalancer service",
	state.UseWindows: "it is reserved by a Windows node", state.UseVM: "it belongs to a virtual machine, which keeps it wherever it runs", state.UseCooling: "it waits out its cooldown",
}

// findSpare returns, by family, how many addresses nodes that take pods have free in their own
// blocks for pods of other nodes.
func (st *Remedies) findSpare() map[blocks.Family]int {
	out := map[blocks.Family]int{}
	for _, h := range st.NodeStates {
		for _, n := range h.BlockStatus {
			if takesPods(h) {
				out[n.Family] += st.spareOf(n)
			}
		}
	}
	return out
}

// evaluateReplacements finds the nodes that lack an address of their own for a moved pod, in any of
// its families. It then checks whether the other nodes have enough addresses outside the emptied
// block. The scheduler ignores free addresses: it may put a pod on any uncordoned node if the pod
// tolerates the node's taints.
func (st *Remedies) evaluateReplacements(c *Consolidation) {
	daemons, needed := map[string]int{}, map[demand]int{}
	for _, m := range c.Moves {
		if m.Pod.OfDaemonSet() {
			daemons[m.Pod.Node]++
			st.evaluateDaemon(c, m, daemons[m.Pod.Node])
			continue
		}
		if needed[m.demand()]++; needed[m.demand()] > 1 {
			continue
		}
		crowded := st.crowded(m.demand())
		if why := st.ignoresCordons(m.Pod, crowded); why != "" {
			c.bar(m.Addr, "%s", why)
		}
		c.Cordon = append(c.Cordon, crowded...)
	}
	slices.Sort(c.Cordon)
	c.Cordon = slices.Compact(c.Cordon)
	spare := maps.Clone(st.spare())
	for _, name := range c.Cordon { // a node that is full in one family has none in the other, either
		for _, n := range st.NodeState(name).BlockStatus {
			if takesPods(n.Host) && (name != c.Holder || n.Family != c.Block.Family()) {
				spare[n.Family] -= st.spareOf(n)
			}
		}
	}
	st.evaluateHolder(c, spare, daemons[c.Holder])
	slices.Sort(c.Cordon)
	c.Cordon = slices.Compact(c.Cordon)
	st.evaluatePlacements(c, daemons)
	for _, f := range st.Families {
		if need := st.takenOf(c, f); spare[f] < need {
			c.bar(netip.Addr{}, "%s addresses to move: %d, but the nodes that take pods have room for %d", f, need, spare[f])
		}
	}
	c.Spare = spare[c.Block.Family()]
}

// evaluateHolder makes sure that the holder keeps a free address of its own, whichever pods return.
// If the next pod could take the last address, it cordons the holder. If only all pods together
// could, it cordons the holder as a precaution, provided that other nodes have room for them.
func (st *Remedies) evaluateHolder(c *Consolidation, spare map[blocks.Family]int, daemons int) {
	f, h := c.Block.Family(), st.NodeState(c.Holder)
	n := h.StatusOf(f)
	if n == nil {
		return
	}
	fits := st.unusedOfAnyPod(n, c.Block)
	if takesPods(h) {
		spare[f] -= st.spareOf(n)
	}
	if !st.noneLeft(n) {
		daemons = min(daemons, fits-1) // the node claims a block when its own blocks are full
	} else if fits -= 1; fits < daemons {
		c.bar(netip.Addr{}, "%s keeps no other block with a free address", c.Holder)
	}
	var comes *Move
	for i := range c.Moves {
		if m := &c.Moves[i]; !m.Pod.OfDaemonSet() && m.demand().mayStart()(h) {
			comes = m
			break
		}
	}
	last := fits <= daemons
	switch {
	case comes == nil || !last && (fits >= len(c.Moves) || spare[f] < len(c.Moves)):
		if takesPods(h) && !slices.Contains(c.Cordon, c.Holder) {
			spare[f] += fits
		}
	case comes.Pod.Placement.ToleratesCordon():
		c.bar(comes.Addr, "%s", st.ignoresCordons(comes.Pod, []string{c.Holder}))
	default:
		if c.Cordon = append(c.Cordon, c.Holder); !last {
			c.Precaution = c.Holder
		}
	}
}

// evaluateDaemon makes sure that a DaemonSet's pod, which restarts on the same node, finds an
// address there. number is its rank among the DaemonSet pods that restart on this node.
func (st *Remedies) evaluateDaemon(c *Consolidation, m Move, number int) {
	h := st.NodeState(m.Pod.Node)
	for f := range m.demand().families {
		if n := h.StatusOf(f); n != nil && st.noneLeft(n) {
			if fits := st.unusedOfAnyPod(n, c.Block); f == c.Block.Family() && number > fits || fits == 0 && st.lender(m, f) != h.Name {
				c.bar(m.Addr, "pod %s of a DaemonSet starts on %s again, where too few %s addresses are free in the other blocks (%d)", m.Pod.FullName(), h.Name, f, fits)
			}
		}
	}
}

// takenOf counts the addresses of family f that a consolidation's pods take. An address that the
// next pod can use again does not count.
func (st *Remedies) takenOf(c *Consolidation, f blocks.Family) (need int) {
	back := 0
	for _, m := range c.Moves {
		switch x := m.demand(); {
		case f == blocks.IPv4 && !x.v4 || f == blocks.IPv6 && !x.v6:
		case f != c.Block.Family() && st.givesBackTo(m, f) != nil:
			back = 1
		default:
			need++
		}
	}
	return need + back
}

// givesBackTo returns the node whose next pod can immediately use the address of a family that a
// moved pod frees; nil if there is none. That node owns the block, assigns from it and takes pods
// while others move. Released addresses must have no cooldown.
func (st *Remedies) givesBackTo(m Move, f blocks.Family) *state.NodeBlockStatus {
	owner := st.lender(m, f)
	if !st.takers()[owner] || st.IPAM.Cooldown > 0 {
		return nil
	}
	if n := st.NodeState(owner).StatusOf(f); n != nil && st.servesAnyPod(n, st.lent(m, f)) {
		return n
	}
	return nil
}

// findTakers returns the nodes that take pods while others move. A node that is full in any family
// is cordoned meanwhile.
func (st *Remedies) findTakers() map[string]bool {
	out := map[string]bool{}
	for _, h := range st.NodeStates {
		out[h.Name] = takesPods(h) && !slices.ContainsFunc(h.BlockStatus, st.isFull)
	}
	return out
}

// lender returns the node whose block holds the pod's address of a family; "" if there is none.
func (st *Remedies) lender(m Move, f blocks.Family) string {
	if b := st.lent(m, f); b != nil {
		return b.Owner.Node()
	}
	return ""
}

// lent returns the block that holds the pod's address of a family, the moved one first; nil if there
// is none.
func (st *Remedies) lent(m Move, f blocks.Family) *state.Block {
	if blocks.FamilyOf(m.Addr) == f {
		return st.CoveringBlock(m.Addr)
	}
	for _, a := range slices.SortedFunc(m.Pod.Addresses, netip.Addr.Compare) {
		if b := st.CoveringBlock(a); b != nil && blocks.FamilyOf(a) == f {
			return b
		}
	}
	return nil
}

// LeavesTooFew returns a pool in which fewer than half of the nodes would take pods after cordoning
// the given nodes, in addition to those that --rehome has cordoned. It returns how many nodes would
// remain, and of how many; the name is empty if no pool is affected. Nodes that are not ready or
// are cordoned by anyone count as not taking pods. Nodes with taints that keep pods away are
// ignored.
func (st *Remedies) LeavesTooFew(cordon []string) (pool string, left, of int) {
	type share struct{ cut, left, of int }
	shares, cordoned := map[string]*share{}, map[string]bool{}
	for _, name := range cordon {
		cordoned[name] = true
	}
	for _, h := range st.NodeStates {
		if h.Node == nil || h.Node.OutOfService || len(h.Node.KeepsAway()) > 0 {
			continue
		}
		for _, n := range h.BlockStatus {
			for _, p := range n.Pools {
				x := shares[p.Name]
				if x == nil {
					x = &share{}
					shares[p.Name] = x
				}
				x.of++
				switch {
				case cordoned[h.Name], h.Node.Unschedulable && h.Node.Ours == Rehoming:
					x.cut++
				case takesPods(h):
					x.left++
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		if x := shares[name]; x.cut > 0 && 2*x.left < x.of {
			return name, x.left, x.of
		}
	}
	return "", 0, 0
}

func (st *Remedies) findTooFew() (x tooFew) {
	x.pool, x.left, x.of = st.LeavesTooFew(st.Full())
	return x
}

// Takers counts the nodes that the scheduler puts pods on now, and the nodes that calico-audit has
// cordoned.
func (st *Remedies) Takers() (now, cordoned int) {
	for _, h := range st.NodeStates {
		if takesPods(h) {
			now++
		} else if h.Node != nil && h.Node.Unschedulable && h.Node.Ours != "" {
			cordoned++
		}
	}
	return now, cordoned
}
