// Package law checks whether a change of a cluster leaves any node worse off. In every order, each
// other node without a free address of its own claims a block; then a pod starts. If the pod always
// got an address before the change, it must still get it. The oracle is Calico's allocator in
// memory (audit/capacity), never a verdict of package state on blocks or nodes. Only tests import
// this package.
package law

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/capacity"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// promise holds the kinds of address that the next pod gets in every order of claims.
type promise struct {
	// own is true if the pod gets an address of a block that its node owns or claims; any is true
	// if it gets any address.
	own, any bool
}

func (p promise) without(q promise) promise { return promise{p.own && !q.own, p.any && !q.any} }

func (p promise) String() string {
	switch {
	case p.any:
		return "an address"
	case p.own:
		return "an address of its own"
	}
	return "nothing"
}

// exempt returns the losses that a plan may cause for a node because one of its steps names the
// node. It uses the state after the plan.
func (w *Witness) exempt(p *repair.Plan, after *state.State, node string) (out promise) {
	if p == nil {
		return out
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Guard(repair.GuardHolder) != "" && repair.HostOf(s.Guard(repair.GuardOwner)) == node {
			return promise{own: true, any: true} // --last-blocks
		}
		if s.Kind == repair.ReleaseIP && w.mayBeTaken(after, s.Guard(repair.GuardBlock), node) {
			return promise{own: true, any: true}
		}
		borrows := s.Kind == repair.SetStrictAffinity && p.Strict.To && slices.Contains(slices.Concat(p.Strict.Starve, p.Strict.MayStarve), node)
		out.any = out.any || borrows
	}
	return out
}

// mayBeTaken reports whether a node's block is empty after a plan and Calico lets another node take
// it. The same would happen after Calico's own collector released the leaked addresses.
func (w *Witness) mayBeTaken(after *state.State, block, node string) bool {
	return blocks.CalicoAtLeast(w.Cluster.CalicoVersion, 3, 32) && slices.ContainsFunc(after.IPBlocks, func(b *state.Block) bool {
		return b.Name == block && b.Owner.Node() == node && b.Used == 0
	})
}

// seat is a place for a pod: a node, and pods on it with the same pools. Seats of two states of one
// cluster are comparable.
type seat struct {
	node   string
	family blocks.Family
	// namespace is a namespace with a pod on the node, or "" for one without labels and
	// annotations. pools are the CIDRs of the pools that the pod, or the CNI configuration, requests.
	namespace, pools string
	// tunnel is the type of a tunnel address that the node still has to take from pools, in place of
	// a pod.
	tunnel string
}

func compareSeats(a, b seat) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }

// Witness determines what pods get in a state.
type Witness struct {
	*state.State
	promised map[seat]promise
	// alone are the pools whose nodes use no other pool without a request, before the change.
	alone map[netip.Prefix]bool
}

// New returns a Witness of a state. It adds missing records of addresses that pods use.
func New(st *state.State) *Witness {
	w := &Witness{State: withUsed(st), alone: map[netip.Prefix]bool{}}
	for _, p := range w.Pools {
		w.alone[p.CIDR] = p.ServesWorkloads() && w.avoidsOther(p)
	}
	return w
}

// Worse names the seats whose next pod gets less in a later state. It ignores losses of nodes for
// which the plan announces them; done is nil without a plan.
func (w *Witness) Worse(after *state.State, done *repair.Plan) (out []string) {
	if w.promised == nil {
		w.promised = w.promises(w.seats(), w.lacking(), false)
	}
	then := New(after)
	then.alone = w.alone
	now := then.promises(slices.Collect(maps.Keys(w.promised)), then.lacking(), false)
	for _, s := range slices.SortedFunc(maps.Keys(w.promised), compareSeats) {
		lost := w.promised[s].without(now[s]).without(w.exempt(done, after, s.node))
		if lost != (promise{}) { // it was not certain before either, because other pods may stay or come first
			sure := w.promises([]seat{s}, w.lackingIn(then), true)[s]
			lost = promise{lost.own && sure.own, lost.any && sure.any}
		}
		if lost != (promise{}) {
			out = append(out, fmt.Sprintf("the %s of %s (%s, namespace %q, pools %q) no longer has %v in every order", cmp.Or(s.tunnel, "next pod"), s.node, s.family, s.namespace, s.pools, lost))
		}
	}
	return out
}

// OwnAddress reports whether a new pod like the given one gets an address of a family from the
// node's own blocks, and returns that address. The pods of one Allocator take addresses one after
// the other.
func (w *Witness) OwnAddress(a *capacity.Allocator, pod *blocks.Workload, node string, f blocks.Family) (capacity.Assigned, bool) {
	s := w.seatOf(pod, node, f)
	got := assign(a, w.request(s))
	return got, got.Own(node)
}

// seatOf returns the seat of a pod that starts on a node. The CNI configuration names the pool of an
// address that the pod did not ask for.
func (w *Witness) seatOf(pod *blocks.Workload, node string, f blocks.Family) seat {
	s := seat{node: node, family: f, namespace: pod.Namespace}
	asked, _ := w.RequestedPools(pod, f)
	for _, p := range w.unasked(pod, f) {
		if w.byRequestOnly(p) {
			asked = append(asked, p)
		}
	}
	for _, p := range asked {
		s.pools += p.CIDR.String() + " "
	}
	return s
}

// unasked returns the pools of a pod's addresses of a family, if it asks for no pool or address.
func (w *Witness) unasked(pod *blocks.Workload, f blocks.Family) (pools []*state.Pool) {
	if _, asks := w.RequestedPools(pod, f); asks || pod.StaticAddress {
		return nil
	}
	for a := range pod.Addresses {
		if p := w.PoolOf(netip.PrefixFrom(a, a.BitLen())); p != nil && p.Family() == f {
			pools = append(pools, p)
		}
	}
	return pools
}

// withUsed returns a state in which no address of a live pod is free for lack of a record. If the
// block of such an address is missing, it counts as owned by the node with an affinity to it, or
// else by the pod's node. Objects marked deleted are left out: Calico's client deletes them when it
// reads them.
func withUsed(st *state.State) *state.State {
	x, changed := repair.NewPretence(st.Snapshot), false
	for _, b := range x.BlockByName {
		if b.SoftDeleted {
			x.NoBlocks[b.Name], changed = true, true
		}
	}
	for i := range x.Affinities {
		if a := &x.Affinities[i]; a.SoftDeleted {
			x.NoAffinities[a.Name], changed = true, true
		}
	}
	for _, w := range st.Workloads {
		if !w.Live() {
			continue
		}
		for a := range w.Addresses {
			slot := st.SlotOf(a)
			b := holding(x, a)
			if b == nil && slot.IsValid() {
				node := w.Node
				for _, f := range st.AffinitiesOf(slot) {
					node = f.Owner.Node()
				}
				if deleted := st.BlockOf(slot); deleted != nil {
					node = deleted.Owner.Node()
				}
				b, changed = x.Claim(slot, node), true
			}
			if b == nil {
				continue
			}
			if i, ok := b.Ordinal(a); ok && b.Ordinals[i] == blocks.Free {
				b.Ordinals, b.Attributes = slices.Clone(b.Ordinals), append(slices.Clone(b.Attributes), blocks.Attributes{})
				b.Ordinals[i] = int32(len(b.Attributes) - 1)
				b.Unallocated = slices.DeleteFunc(slices.Clone(b.Unallocated), func(o int32) bool { return o == int32(i) })
				changed = true
			}
		}
	}
	for i := range x.Affinities {
		if a := &x.Affinities[i]; createsOverUsed(x, a.CIDR) {
			x.NoAffinities[a.Name], changed = true, true
		}
	}
	if !changed {
		return st
	}
	return state.New(x.Done(), state.Options{Grace: max(st.Grace, 1)})
}

// createsOverUsed reports whether a CIDR has no block, and overlaps a block with addresses in use.
func createsOverUsed(x *repair.Pretence, p netip.Prefix) (over bool) {
	for _, b := range x.BlockByName {
		switch {
		case x.NoBlocks[b.Name] || !b.CIDR.Overlaps(p):
		case b.CIDR == p:
			return false
		default:
			over = over || b.InUse() > 0
		}
	}
	return over
}

// holding returns the smallest block that contains an address and is not marked deleted.
func holding(x *repair.Pretence, a netip.Addr) (best *blocks.Block) {
	for _, b := range x.BlockByName {
		if b.CIDR.Contains(a) && !b.SoftDeleted && (best == nil || b.CIDR.Bits() > best.CIDR.Bits()) {
			best = b
		}
	}
	return best
}

// seats returns the seats of a state.
func (w *Witness) seats() (out []seat) {
	for _, h := range w.NodeStates {
		if h.Node == nil {
			continue
		}
		for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
			if !slices.ContainsFunc(w.Pools, func(p *state.Pool) bool { return p.Family() == f }) {
				continue
			}
			out = append(out, seat{node: h.Name, family: f})
			var pods []*blocks.Workload
			for _, pod := range h.Workloads { // and a pod of the namespace without requests
				pods = append(pods, pod, &blocks.Workload{Namespace: pod.Namespace})
			}
			for _, pod := range pods {
				if w.UnmetRequest(pod, f) != "" {
					continue // Calico assigns nothing
				}
				s := w.seatOf(pod, h.Name, f)
				_, asks := w.RequestedPools(pod, f)
				for _, p := range w.unasked(pod, f) {
					if s.pools == "" && w.alone[p.CIDR] {
						s.pools = p.CIDR.String() + " " // the CNI configuration may name it
					}
				}
				if s.pools == "" && (asks || w.plain(pod.Namespace)) {
					continue
				}
				if !slices.Contains(out, s) {
					out = append(out, s)
				}
			}
		}
		out = append(out, w.tunnels(h)...)
	}
	return out
}

// tunnels returns the seats of the tunnel addresses that a node still has to take.
func (w *Witness) tunnels(h *state.NodeState) (out []seat) {
	for _, kind := range blocks.TunnelTypes {
		s := seat{node: h.Name, family: blocks.TunnelFamily(kind), tunnel: kind}
		for _, p := range w.Pools {
			if h.Node.LacksTunnel(kind) && p.GivesTunnel(kind) && p.SelectsNode(h.Node) {
				s.pools += p.CIDR.String() + " "
			}
		}
		if s.pools != "" {
			out = append(out, s)
		}
	}
	return out
}

// byRequestOnly reports whether Calico assigns addresses of a pool only to pods that ask for it.
func (w *Witness) byRequestOnly(p *state.Pool) bool {
	return !p.Automatic || !slices.ContainsFunc(w.NodeStates, func(h *state.NodeState) bool { return h.Node != nil && p.SelectsNode(h.Node) })
}

// avoidsOther reports whether pods use another automatic pool of the same nodes only if they ask for
// it, as in clusters whose CNI configuration names one pool (kubespray's default).
func (w *Witness) avoidsOther(p *state.Pool) bool {
	return slices.ContainsFunc(w.Pools, func(q *state.Pool) bool {
		asked, plain := 0, 0
		for _, pod := range w.Workloads {
			for a := range pod.Addresses {
				switch _, asks := w.RequestedPools(pod, q.Family()); {
				case !q.CIDR.Contains(a) || pod.StaticAddress || !pod.Live():
				case asks:
					asked++
				default:
					plain++
				}
			}
		}
		return q != p && q.Family() == p.Family() && q.Automatic && q.ServesWorkloads() && q.ServesAllNamespaces() && asked > 0 && plain == 0 &&
			slices.ContainsFunc(w.NodeStates, func(h *state.NodeState) bool { return h.Node != nil && p.SelectsNode(h.Node) && q.SelectsNode(h.Node) })
	})
}

// plain reports whether every pool treats a namespace like one without labels.
func (w *Witness) plain(name string) bool {
	return !slices.ContainsFunc(w.Pools, func(p *state.Pool) bool {
		return p.SelectsNamespace(w.Namespace(name)) != p.SelectsNamespace(nil)
	})
}

// request is the request of a seat's next pod.
func (w *Witness) request(s seat) capacity.Request {
	r := capacity.Request{Node: s.node, Family: s.family, Use: blocks.UseWorkload, Namespace: w.Namespace(s.namespace)}
	if s.tunnel != "" {
		r.Use, r.Namespace = blocks.UseTunnel, nil
	}
	for _, cidr := range strings.Fields(s.pools) {
		r.Pools = append(r.Pools, netip.MustParsePrefix(cidr))
	}
	return r
}

// assign retries without an address, as a kubelet does, because the first attempt may only have
// deleted something.
func assign(a *capacity.Allocator, r capacity.Request) (got capacity.Assigned) {
	for range 3 {
		if got = a.Assign(r); got.Addr.IsValid() {
			break
		}
	}
	return got
}

// promises returns, for each seat, what its next pod gets in every order of the nodes that lack an
// address. See claimed for keep.
func (w *Witness) promises(seats []seat, lacking map[blocks.Family]map[string][]seat, keep bool) map[seat]promise {
	out := map[seat]promise{}
	for _, s := range seats {
		p := promise{own: true, any: true}
		var others []string
		for node := range lacking[s.family] {
			if node != s.node {
				others = append(others, node)
			}
		}
		slices.Sort(others)
		for order := range w.orders(others) {
			got := assign(w.claimed(order, lacking[s.family], keep), w.request(s))
			if p = (promise{p.own && got.Own(s.node), p.any && got.Addr.IsValid()}); p == (promise{}) {
				break
			}
		}
		out[s] = p
	}
	return out
}

// claimed returns the allocator after nodes have claimed blocks, in order, for their seats without
// an address. Borrowed addresses are released again, because they are not claims. If Calico would
// then delete their block, they are not borrowed in the first place. If keep is true, a seat on a
// node that the pool does not select keeps its address, unless a selected node owns the block:
// Calico deletes a block of an unselected node with its last address.
func (w *Witness) claimed(order []string, lacking map[string][]seat, keep bool) *capacity.Allocator {
	borrows := map[seat]bool{}
again:
	a := capacity.NewAllocator(w.State)
	for _, node := range order {
		for _, x := range lacking[node] {
			if borrows[x] {
				continue
			}
			switch got := assign(a, w.request(x)); {
			case !got.Addr.IsValid() || keep && w.unselected(got.Block, node) && (w.unselected(got.Block, got.Owner.Node()) || !w.isNode(got.Owner.Node())):
			case !w.deletedIfReleased(got):
				a.Release(got.Block, got.Addr)
			case !got.Own(node):
				borrows[x] = true
				goto again
			}
		}
	}
	return a
}

// deletedIfReleased reports whether Calico deletes the block of an address together with its last
// address, so that other nodes can claim the CIDR: no node owns the block, or its pool does not
// select its node.
func (w *Witness) deletedIfReleased(got capacity.Assigned) bool {
	if b := w.BlockOf(got.Block); b != nil && b.Used > 0 {
		return false
	}
	return got.Owner == (blocks.Owner{}) || w.unselected(got.Block, got.Owner.Node())
}

// unselected reports whether the pool of a block does not select a node.
func (w *Witness) unselected(block netip.Prefix, node string) bool {
	p := w.PoolOf(block)
	return w.isNode(node) && p != nil && !p.SelectsNode(w.NodeState(node).Node)
}

// isNode reports whether a node of a name exists.
func (w *Witness) isNode(name string) bool {
	h := w.NodeState(name)
	return h != nil && h.Node != nil
}

// lacking returns the seats whose node has no free address of its own, by family and node. An
// affinity without a block provides no address.
func (w *Witness) lacking() map[blocks.Family]map[string][]seat {
	out := map[blocks.Family]map[string][]seat{blocks.IPv4: {}, blocks.IPv6: {}}
	for _, s := range w.seats() {
		h := w.NodeState(s.node)
		got := assign(capacity.NewAllocator(w.State), w.request(s))
		if !got.Own(s.node) || !w.hasFree(h, s) {
			out[s.family][s.node] = append(out[s.family][s.node], s)
		}
	}
	return out
}

// lackingIn returns the seats that lack an address both now and in a later state.
func (w *Witness) lackingIn(later *Witness) map[blocks.Family]map[string][]seat {
	out, still := w.lacking(), later.lacking()
	for f := range out {
		for node, seats := range out[f] {
			out[f][node] = slices.DeleteFunc(seats, func(s seat) bool { return !slices.Contains(still[f][node], s) })
		}
	}
	return out
}

// hasFree reports whether a node owns a block with a free address in a pool that the seat's pod may
// use, with or without an affinity that Calico sees. The pool that would give the pod its address
// does not matter: as long as the block exists, the node has an address of its own.
func (w *Witness) hasFree(h *state.NodeState, s seat) bool {
	r := w.request(s)
	serves := func(p *state.Pool) bool {
		if len(r.Pools) > 0 {
			return slices.Contains(r.Pools, p.CIDR)
		}
		return p.Family() == s.family && p.Automatic && p.SelectsNode(h.Node) && p.SelectsNamespace(r.Namespace)
	}
	return slices.ContainsFunc(h.Blocks, func(b *state.Block) bool {
		return b.Pool != nil && b.Pool.HandsOut() && b.Pool.Allows(r.Use) && serves(b.Pool) &&
			slices.ContainsFunc(b.Unallocated, func(o int32) bool { return !w.Reserved.Contains(b.Address(int(o))) })
	})
}

// orders yields no node, because the pod may come first, and then every order of up to five nodes,
// or 200 random orders of more.
func (w *Witness) orders(nodes []string) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		if !yield(nil) {
			return
		}
		if len(nodes) <= 5 {
			permute(slices.Clone(nodes), 0, yield)
			return
		}
		rnd := rand.New(rand.NewPCG(26, 1))
		for range 200 {
			order := slices.Clone(nodes)
			rnd.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			if !yield(order) {
				return
			}
		}
	}
}

func permute(nodes []string, from int, yield func([]string) bool) bool {
	if from >= len(nodes)-1 {
		return yield(nodes)
	}
	for i := from; i < len(nodes); i++ {
		nodes[from], nodes[i] = nodes[i], nodes[from]
		if !permute(nodes, from+1, yield) {
			return false
		}
		nodes[from], nodes[i] = nodes[i], nodes[from]
	}
	return true
}
