package capacity

import (
	"cmp"
	"container/heap"
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// use is an allocated address.
type use struct {
	block   *state.Block
	ordinal int
}

// run is one simulation of a scenario.
type run struct {
	*world
	q     *Scenario
	a     *Allocator
	out   *Outcome
	nodes map[string]*NodeOutcome
	// short holds the pools that could have provided the first address that its node's own blocks
	// did not. lent is the last such pool of the first borrowed address.
	short []*pool
	lent  *pool
	// first is the limit of the first pod that did not fit.
	first Limit
	// refused are today's waiting pods that get no address, with the reasons.
	refused map[*blocks.Workload]string
}

// start returns a run that has simulated nothing yet.
func (w *world) start(q *Scenario) *run {
	return &run{world: w, q: q, a: w.allocator(), out: &Outcome{Pools: []PoolOutcome{}}, nodes: map[string]*NodeOutcome{}, refused: map[*blocks.Workload]string{}}
}

// simulate runs the scenario: first replaced pools and removed nodes, then today's demand,
// then the joining nodes one by one with their pods, then further pods.
func (w *world) simulate(q *Scenario) *run {
	if w.kinds == nil {
		w.kinds = newKinds(w.today)
	}
	r := w.start(q)
	r.rebuild()
	moved := r.remove()
	r.serve()
	for _, name := range w.joining {
		if r.over() {
			break
		}
		r.join(name)
	}
	pods := moved + q.Pods
	var shares turns[*share]
	if pods > 0 {
		if shares = w.spread(q.podsPerNode()); len(shares) == 0 && !r.over() {
			r.homeless(pods)
			pods = 0
		}
	}
	for left := pods; left > 0 && !r.over(); left-- {
		h := shares[0]
		h.given++
		heap.Fix(&shares, 0)
		if h.full { // no later pod of this share gets an address either
			r.refuseAll(h.node, 1)
		} else {
			h.full = !r.pod(h.node, h.kind)
		}
	}
	r.finish()
	return r
}

// homeless counts pods that no node accepts.
func (r *run) homeless(pods int) {
	first := Event{Pod: r.out.Started + 1, Reason: "there is no schedulable node", Limit: LimitNodes}
	r.out.Started, r.out.Refused = r.out.Started+pods, r.out.Refused+pods
	r.out.FirstRefusal = cmp.Or(r.out.FirstRefusal, &first)
}

// over reports whether the simulation can end: it was stopped, or it is a trial that can no longer
// fit.
func (r *run) over() bool { return r.stopped() || r.trial && !r.fits() }

func (r *run) fits() bool {
	return len(r.out.WithoutBlock)+r.out.Borrowed+r.out.Refused == 0 && r.out.demand.served()
}

// podsPerNode defaults to 1, because a node claims a block with its first pod.
func (q *Scenario) podsPerNode() int { return cmp.Or(q.PodsPerNode, 1) }

// rebuild assigns the addresses of replaced pools again, node by node.
func (r *run) rebuild() {
	for _, p := range r.rebuilt {
		users := map[string]int{}
		for _, b := range r.today.IPBlocks {
			for i := range b.Ordinals {
				if attr := attributes(b, i); attr != nil && p.CIDR.Contains(b.Address(i)) && !attr.WindowsReserved() && !attr.Cooling() {
					users[cmp.Or(state.NodeOf(attr), b.Owner.Node())]++
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(users)) {
			if r.a.nodes[name] == nil {
				continue
			}
			for range users[name] {
				if r.over() {
					return
				}
				r.out.Restarted++
				r.record(name, 0, r.assign(Request{Node: name, Family: p.Family(), Use: p.Uses[0], Pools: []netip.Prefix{p.CIDR}}))
			}
		}
	}
}

// remove frees the addresses and blocks of removed nodes. It returns the number of their
// pods that restart elsewhere: all except those of DaemonSets and static pods.
func (r *run) remove() (moved int) {
	used := map[string][]use{}
	for _, b := range r.IPBlocks {
		for i := range b.Ordinals {
			if attr := attributes(b, i); attr != nil && len(r.q.RemoveNodes) > 0 && slices.Contains(r.q.RemoveNodes, state.NodeOf(attr)) {
				used[state.NodeOf(attr)] = append(used[state.NodeOf(attr)], use{b, i})
			}
		}
	}
	for _, name := range r.q.RemoveNodes {
		for _, u := range used[name] {
			if r.a.blocks[u.block.CIDR] != nil {
				r.a.Release(u.block.CIDR, u.block.Address(u.ordinal))
			}
		}
		owner := blocks.Owner{Kind: blocks.HostOwner, Name: name}
		for _, c := range slices.Clone(r.a.affinities[owner]) {
			r.a.releaseBlock(owner, c.cidr)
		}
		for _, w := range r.today.NodeState(name).Workloads {
			if bound := w.Controller != nil && (w.Controller.Kind == "DaemonSet" || w.Controller.Kind == "Node"); w.Live() && !bound {
				moved++
			}
		}
	}
	return moved
}

// join allocates a node's tunnel addresses, which calico/node does first
// (node/pkg/allocateip/allocateip.go, determineEnabledPoolCIDRs), and starts its pods.
func (r *run) join(name string) {
	r.node(name).Joined = true
	for _, kind := range []string{blocks.TypeIPIP, blocks.TypeVXLAN, blocks.TypeVXLANv6} { // WireGuard starts later
		r.tunnel(name, kind)
	}
	for left := r.q.podsPerNode() - 1; left >= 0 && !r.over(); left-- {
		if !r.pod(name, r.kinds.usual) { // later pods get no address either
			r.refuseAll(name, left)
			break
		}
	}
	owner := blocks.Owner{Kind: blocks.HostOwner, Name: name}
	without := func(f blocks.Family) bool { return !r.a.owns(owner, f) }
	if len(r.kinds.usual.families) == 0 || slices.ContainsFunc(r.kinds.usual.families, without) {
		r.out.WithoutBlock = append(r.out.WithoutBlock, name)
	}
}

// refuseAll counts further pods of a node after a similar pod got no address.
func (r *run) refuseAll(name string, pods int) {
	n := r.node(name)
	r.out.Started, r.out.Refused = r.out.Started+pods, r.out.Refused+pods
	n.Started, n.Refused = n.Started+pods, n.Refused+pods
}

func (r *run) tunnel(name, kind string) {
	request := Request{Node: name, Family: blocks.TunnelFamily(kind), Use: blocks.UseTunnel}
	for _, p := range r.pools {
		if p.GivesTunnel(kind) && p.SelectsNode(r.a.nodes[name].Node) {
			request.Pools = append(request.Pools, p.CIDR)
		}
	}
	if len(request.Pools) > 0 {
		r.record(name, 0, r.assign(request))
	}
}

// assign retries a request that only cleaned up, as a container runtime would.
func (r *run) assign(q Request) Assigned {
	got := r.a.Assign(q)
	if got.Again {
		got = r.a.Assign(q)
	}
	if got.Own(q.Node) || r.lent != nil {
		return got
	}
	allowed := r.a.eligible(r.a.nodes[q.Node], q).allowed
	if r.short == nil {
		r.short = allowed
	}
	if got.Addr.IsValid() {
		r.lent = allowed[len(allowed)-1]
	}
	return got
}

// pod starts a pod. It gets an address of each family, or none at all; pod then returns
// false.
func (r *run) pod(node string, k *kind) bool {
	r.out.Started++
	r.node(node).Started++
	all, failed := r.addresses(node, k)
	if failed != nil {
		r.record(node, r.out.Started, *failed)
		return false
	}
	for _, got := range all {
		r.record(node, r.out.Started, got)
	}
	return true
}

// addresses assigns a pod one address of each family. If one fails, the pod gets none.
func (r *run) addresses(node string, k *kind) (all []Assigned, failed *Assigned) {
	if len(k.families) == 0 {
		got := refused(LimitSelector, "no pool gives addresses to pods that ask for none")
		return nil, &got
	}
	for _, f := range k.families {
		got := r.assign(r.request(node, k, f))
		if !got.Addr.IsValid() {
			for _, have := range all { // the CNI plugin releases the other family's address
				r.a.Release(have.Block, have.Addr)
			}
			return nil, &got
		}
		all = append(all, got)
	}
	return all, nil
}

func (r *run) request(node string, k *kind, f blocks.Family) Request {
	q := Request{Node: node, Family: f, Use: blocks.UseWorkload, Namespace: r.Namespace(k.like.Namespace)}
	if asked, asks := r.RequestedPools(k.like, f); asks {
		for _, p := range asked {
			q.Pools = append(q.Pools, p.CIDR)
		}
		if r.UnmetRequest(k.like, f) != "" || len(asked) == 0 {
			q.Pools = []netip.Prefix{{}} // no pool has this CIDR: Calico refuses such a pod
		}
	}
	return q
}

// record counts the result of a request of a node. pod is the number of the pod, 0 for
// none.
func (r *run) record(node string, pod int, got Assigned) {
	n := r.node(node)
	if r.fits() && !got.Own(node) {
		r.first = got.Limit
	}
	first := func(e *Event) *Event {
		return cmp.Or(e, &Event{Node: node, Pod: pod, Reason: got.Reason, Limit: got.Limit})
	}
	switch {
	case !got.Addr.IsValid():
		n.Refused++
		r.out.Refused++
		r.out.FirstRefusal = first(r.out.FirstRefusal)
	case !got.Own(node):
		n.Borrowed++
		r.out.Borrowed++
		r.out.FirstBorrow = first(r.out.FirstBorrow)
		// Lenders come in runs, so compare with the last one first.
		if from, last := got.Owner.Node(), len(n.From)-1; from != "" && (last < 0 || n.From[last] != from) && !slices.Contains(n.From, from) {
			n.From = append(n.From, from)
		}
	}
	r.claimed(node, got)
}

func (r *run) node(name string) *NodeOutcome {
	if r.nodes[name] == nil {
		r.nodes[name] = &NodeOutcome{Node: name}
	}
	return r.nodes[name]
}

// finish fills in the outcome.
func (r *run) finish() {
	if r.out.Fits = r.fits(); r.trial {
		return
	}
	for _, name := range r.joining {
		r.out.Nodes = append(r.out.Nodes, *r.node(name))
	}
	for _, name := range slices.Sorted(maps.Keys(r.nodes)) {
		if n := r.nodes[name]; !n.Joined && len(n.Claimed)+n.Borrowed+n.Refused > 0 {
			r.out.Nodes = append(r.out.Nodes, *n)
		}
	}
	before, after, idle := map[netip.Prefix]int{}, map[*pool]int{}, map[*pool]int{}
	for _, b := range r.today.IPBlocks {
		if b.Pool != nil {
			before[b.Pool.CIDR]++
		}
	}
	for _, b := range r.a.blocks {
		p := r.a.poolAt(b.cidr.Addr())
		if after[p]++; b.owner.Node() != "" {
			idle[p] += r.a.numFree(b)
		}
	}
	for _, p := range r.a.pools {
		if !p.Allows(blocks.UseWorkload) {
			continue
		}
		o := PoolOutcome{
			Pool: p.Name, CIDR: p.CIDR, Family: p.Family(), BlockSize: p.BlockSize, Before: before[p.CIDR], After: after[p], Blocks: r.a.left(p), Idle: blocks.CountOf(idle[p]),
		}
		if r.config.StrictAffinity || r.today.FirstMissing(state.RouteReads) == nil && r.forecast(p).AllDropped() {
			o.Wasted = o.Idle
		}
		r.out.Pools = append(r.out.Pools, o)
	}
}

// owns reports whether an owner has a block of a family.
func (a *Allocator) owns(o blocks.Owner, f blocks.Family) bool {
	return slices.ContainsFunc(a.owned[o], func(b *block) bool { return blocks.FamilyOf(b.cidr.Addr()) == f })
}

// left counts the blocks of a pool that can be claimed.
func (a *Allocator) left(p *pool) blocks.Count {
	var there []*blocks.Block
	empty := 0
	p.blocks.Ascend(func(b *block) bool {
		there = append(there, &blocks.Block{CIDR: b.cidr})
		if a.reclaims && b.used == 0 && a.numFree(b) > 0 && b.owner.Name != "" {
			empty++
		}
		return true
	})
	return blocks.PoolSlots(p.Pool.Pool, there, a.reserved).Allocatable.Add(blocks.CountOf(empty))
}
