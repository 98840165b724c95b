package remedies

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/identity"
	"github.com/calico-audit/calico-audit/blocks"
)

// Rehomes returns the pods that borrow and could restart with an address from their node's own
// blocks. If the pod's own node has free addresses, that node counts, for at most as many pods as
// it has addresses. Other pods count if nodes that take pods have addresses left for them. later
// holds the remaining pods, each with the reason why it stays. Pods that must not be evicted use up
// no address. Virtual machines keep their addresses and are left out.
func (st *Remedies) Rehomes() (now, later []Move) { return st.rehomes() }

func (st *Remedies) findRehomes() (now, later []Move) {
	spares, returns := map[blocks.Family]int{}, map[*state.NodeBlockStatus]int{}
	seats := st.seating(nil, st.filled(), nil) // those are cordoned meanwhile
	leave := st.countLeaving()
	var away []Move
	for _, h := range st.NodeStates {
		open := st.takers()[h.Name]
		for _, n := range h.BlockStatus {
			spare := st.unusedOfAnyPod(n, nil)
			if open {
				spares[n.Family] += st.spareOf(n)
			}
			var here []Move
			for _, b := range n.Borrowed {
				if b.Workload == nil || b.Tunnel || b.VM || b.Workload.Extras().VM != "" {
					continue
				}
				m := Move{Pod: b.Workload, Addr: b.Addr}
				if m.Stays = cmp.Or(st.unrecorded(), st.doubtful(b.User), st.asksForPools(m), st.losesBlock(m, leave), st.ignoresCordons(m.Pod, st.crowded(m.demand()))); m.Stays != "" {
					later = append(later, m)
				} else {
					here = append(here, m)
				}
			}
			if !open {
				away = append(away, here...)
				continue
			}
			spare += st.claimable(n)
			slices.SortStableFunc(here, func(a, b Move) int {
				return cmp.Compare(min(len(st.EvictionBar(a.Pod)), 1), min(len(st.EvictionBar(b.Pod)), 1))
			})
			own := min(spare, len(here))
			now, away = append(now, here[:own]...), append(away, here[own:]...)
		}
	}
	take := func(m Move) {
		for f := range m.demand().families {
			if to := st.givesBackTo(m, f); to != nil && returns[to] < st.admits(to.Host)-st.spareOf(to) {
				returns[to]++ // one at a time: the next pod can use the address that this one frees
			} else {
				spares[f]--
			}
		}
	}
	for i, m := range now {
		if now[i].Stays = seats.take(m.Pod, m.demand(), true); now[i].Stays == "" {
			seats.taken[m.Pod.Node]++
			take(m)
		}
	}
	stays := func(m Move) bool { return m.Stays != "" }
	for _, m := range now {
		if stays(m) {
			later = append(later, m)
		}
	}
	now = slices.DeleteFunc(now, stays)
	for _, m := range away {
		f := blocks.FamilyOf(m.Addr)
		if m.Stays = st.staysAway(m.Pod, f); m.Stays == "" {
			m.Stays = seats.take(m.Pod, m.demand(), m.Pod.Placement == nil && !m.demand().both())
		}
		for f := range m.demand().families {
			if m.Stays == "" && spares[f] <= 0 {
				m.Stays = fmt.Sprintf("no node that takes pods has an address of its own left for pod %s", m.Pod.FullName())
			}
		}
		if m.Stays != "" {
			later = append(later, m)
			continue
		}
		take(m)
		m.Elsewhere = true
		now = append(now, m)
	}
	return now, later
}

// doubtful explains why pods of a node must not restart: the new pods may be recorded for, or
// routed to, another node.
func (st *Remedies) doubtful(node string) string {
	if why := identity.Doubt(st.State, node); why != "" {
		return why + ": that comes first (node/duplicate-address, ip/wrong-node)"
	}
	return ""
}

// findUnrecorded names a live pod with an address in no block, in a block marked deleted, or in a
// block that records no address and that Calico may take from its node; empty if there is none. A
// node that claims a block for a moved pod could claim that one and assign the address again.
func (st *Remedies) findUnrecorded() string {
	for _, w := range st.Workloads {
		if !w.Live() {
			continue
		}
		for _, a := range slices.SortedFunc(w.Addresses, netip.Addr.Compare) {
			b := st.CoveringBlock(a)
			taken := b != nil && b.Used == 0 && blocks.CalicoAtLeast(st.Cluster.CalicoVersion, 3, 32)
			if slot := st.SlotOf(a); slot.IsValid() && (b == nil || b.SoftDeleted || taken) {
				return fmt.Sprintf("pod %s uses %s, and a node that claims %s for a moved pod would assign it again: run \"repair --unrecorded-ips\" first", w.FullName(), a, slot)
			}
		}
	}
	return ""
}

// claimable counts the addresses of the next block that a node could claim for pods of any
// namespace. It returns 0 if the node can claim no block, and at least 1 if it can.
func (st *Remedies) claimable(n *state.NodeBlockStatus) (least int) {
	switch {
	case st.noneLeft(n):
		return 0
	case st.MayCount(n.Host, n.Family) >= st.IPAM.BlockLimit():
		return 1 // MayCount includes a block of its own without an affinity
	}
	for _, p := range n.Pools {
		if !p.ServesAllNamespaces() || p.Slots.Allocatable.IsZero() {
			continue
		}
		size := 1
		if bits := p.CIDR.Addr().BitLen() - p.BlockSize; bits < 16 && !st.Reserved.Overlaps(p.CIDR) {
			size = 1 << bits
		}
		if least == 0 || size < least {
			least = size
		}
	}
	return max(least, 1)
}

// countLeaving counts, by block, the borrowed addresses, and those of the other family that their pods
// have. Leaks count, because Calico's collector frees them.
func (st *Remedies) countLeaving() map[*state.Block]int {
	leaving := map[netip.Addr]bool{}
	for _, br := range st.Borrows {
		leaving[br.Addr] = true
		if br.Workload != nil {
			for a := range br.Workload.Addresses {
				leaving[a] = true
			}
		}
	}
	out := map[*state.Block]int{}
	for a := range leaving {
		out[st.CoveringBlock(a)]++
	}
	return out
}

// losesBlock explains that a node may lose a block in which a moved pod has an address: once the
// block is empty, Calico may give it to another node, and the node has no other block with room.
// leave counts, by block, the addresses that may be released.
func (st *Remedies) losesBlock(m Move, leave map[*state.Block]int) string {
	for _, a := range slices.SortedFunc(m.Pod.Addresses, netip.Addr.Compare) {
		b := st.CoveringBlock(a)
		if b == nil || !st.TakenIfEmpty(b) {
			continue
		}
		owner := st.NodeState(b.Owner.Node())
		stays := func(o *state.Block) bool {
			return leave[o] < o.Used && (o == b || o.Pool == b.Pool && st.Keepable(o))
		}
		if owner != nil && owner.Node != nil && !slices.ContainsFunc(owner.Blocks, stays) {
			return fmt.Sprintf("block %s holds only borrowed addresses, and others of their pods: once these are released, Calico %s may take the block from %s, which has no other block with room", b.CIDR, st.Cluster.CalicoVersion, b.Owner)
		}
	}
	return ""
}

// staysAway explains why a pod whose own node has no address for it might borrow again on another
// node; empty if it would not.
func (st *Remedies) staysAway(w *blocks.Workload, f blocks.Family) string {
	switch {
	case st.EvictionBar(w) != "":
		return "it " + st.EvictionBar(w)
	case w.OfDaemonSet():
		return fmt.Sprintf("pod %s of DaemonSet %s starts on %s again, which has no address of its own for it", w.FullName(), w.Controller.Name, w.Node)
	case !st.answers(w.Node):
		return fmt.Sprintf("node %s of pod %s is not ready: its kubelet would not end the pod", w.Node, w.FullName())
	case st.IPAM.StrictAffinity:
		return fmt.Sprintf("%s has no address of its own for pod %s, and strict affinity is on: a replacement on that node would get no address. Its controller's template, which may name the node (spec.nodeName), is not read", w.Node, w.FullName())
	case slices.ContainsFunc(st.Pools, func(p *state.Pool) bool { return p.Family() == f && p.ServesWorkloads() && !p.ServesAllNamespaces() }):
		return fmt.Sprintf("%s has no address of its own for pod %s, and some pools serve only some namespaces, so it is not known which addresses of other nodes the pod may get", w.Node, w.FullName())
	}
	return ""
}

// rehome is the remedy that moves borrowing pods to their own nodes' blocks, for the given pools or
// for all.
func (st *Remedies) rehome(pools []*state.Pool, borrows []*state.Borrow) Remedy {
	concerns := func(b *state.Borrow) bool { return len(pools) == 0 || slices.Contains(pools, b.Block.Pool) }
	r, consents := st.rehomePlan(pools, borrows, concerns)
	if r.Manual {
		return r
	}
	moving, bar := st.rehoming(concerns, consents)
	r.Yield, r.Effect = &Yield{Pods: len(moving)}, st.rehomeEffect(concerns, moving)
	if len(moving) == 0 && bar.Code != "" {
		return r.Unless(bar)
	}
	return r
}

// rehomePlan returns the rehoming command with the consents that it needs, regardless of how many
// pods it moves. If none of the pods with these borrowed addresses may be evicted without consent,
// the command includes the consent, which then covers every borrowing pod of these pools. If the
// eviction would end one of them for good, the remedy is manual.
func (st *Remedies) rehomePlan(pools []*state.Pool, borrows []*state.Borrow, concerns func(*state.Borrow) bool) (Remedy, Consents) {
	r := Rehome
	r.Risk = st.evictionRisk()
	var all, alone blocks.Names
	bare, guarded := false, false
	for _, b := range borrows {
		w := b.Workload
		if w == nil || b.Tunnel || staysBorrowed(b) || asksByName(b) || !concerns(b) {
			continue
		}
		all = append(all, w.FullName())
		if st.EvictionBar(w) != "" {
			continue
		}
		if guarded = !st.Unguarded(w); guarded {
			break
		}
		alone, bare = append(alone, w.FullName()), bare || w.Controller == nil
	}
	if !guarded && len(alone) > 0 {
		for _, b := range st.singletons() {
			if name := b.Workload.FullName(); concerns(b) && !slices.Contains(alone, name) {
				alone, bare = append(alone, name), bare || b.Workload.Controller == nil
			}
		}
	}
	consents := Consents{CordonFull: len(st.Full()) > 0}
	switch {
	case guarded || len(all) == 0:
	case len(alone) == 0 || bare: // the plan would have no step, or end a pod for good
		return Restart("restart these pods by hand, each only if another node can take it, because plans must not evict them: "+all.String(), "the borrowed addresses are released"), consents
	default:
		consents.EvictSingletons = true
		r = r.with(" --evict-singletons")
		r.Risk += withoutReplica(len(alone))
	}
	if len(pools) > 0 {
		r = r.with(Shell(" --pool %s", strings.Join(state.PoolsOf(pools...), ",")))
	}
	if consents.CordonFull { // a replacement may start on a full node
		r = r.with(" --cordon-full")
		r.Risk += fmt.Sprintf("; nodes cordoned: %d", len(st.Full()))
	}
	return r, consents
}

// rehoming returns the pods that a plan evicts for these borrows with these consents, and why the
// first remaining pod stays; a zero bar if none stays.
func (st *Remedies) rehoming(concerns func(*state.Borrow) bool, c Consents) (moving []Move, bar state.Bar) {
	borrows := map[netip.Addr]*state.Borrow{}
	for _, b := range st.Borrows {
		borrows[b.Addr] = b
	}
	now, later := st.Rehomes()
	for _, m := range slices.Concat(now, later) {
		if b := borrows[m.Addr]; b == nil || !concerns(b) {
			continue
		}
		if stays := st.RehomeBar(m, c); stays.Code == "" {
			moving = append(moving, m)
		} else if bar.Code == "" {
			bar = stays
		}
	}
	return moving, bar
}

// rehomeEffect counts the borrowed addresses that the moving pods free.
func (st *Remedies) rehomeEffect(concerns func(*state.Borrow) bool, moving []Move) string {
	all := 0
	for _, b := range st.Borrows {
		if concerns(b) {
			all++
		}
	}
	if len(moving) < all {
		return fmt.Sprintf("borrowed addresses released: %d of %d; repair lists the rest", len(moving), all)
	}
	return "the borrowed addresses are released"
}

// findSingletons returns the borrows of pods that only --evict-singletons allows to evict: they
// have no other ready replica, and no other bar.
func (st *Remedies) findSingletons() (out []*state.Borrow) {
	for _, b := range st.Borrows {
		if w := b.Workload; w != nil && !b.Tunnel && !staysBorrowed(b) && st.Unguarded(w) && st.EvictionBar(w) == "" && st.asksForPools(Move{Pod: w, Addr: b.Addr}) == "" {
			out = append(out, b)
		}
	}
	return out
}
