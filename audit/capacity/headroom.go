package capacity

import (
	"container/heap"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// headroom returns the headroom of each pool for workloads. labels are the labels of
// joining nodes.
func headroom(w *world, labels map[string]string) []Headroom {
	st, out := w.today, []Headroom{}
	for _, p := range st.Pools {
		if !p.ServesWorkloads() {
			continue
		}
		h := Headroom{
			Pool: p.Name, CIDR: p.CIDR, Family: p.Family(), BlockSize: p.BlockSize,
			Blocks: p.Slots.Allocatable, Addresses: p.Addrs.Available,
		}
		beside := func(cidr netip.Prefix) bool { return !p.CIDR.Overlaps(cidr) } // blocks of other pools do not matter here
		a := newAllocator(st, []*state.Pool{p}, st.IPAM, w.starts, beside)
		h.joins(st, p, labels, blocks.CountOf(serveFrom(a, st, p)))
		h.starts(w, p, a)
		out = append(out, h)
	}
	return out
}

// joins computes how many nodes can join, after the demand has taken some blocks. Each
// claims one block with its first pod.
func (h *Headroom) joins(st *state.State, p *state.Pool, labels map[string]string, taken blocks.Count) {
	switch {
	case p.SelectorError() != nil || !p.SelectsNode(newNode("new-1", labels)):
		h.NodesLimit = LimitSelector
		return
	case !st.IPAM.AutoAllocateBlocks:
		h.NodesLimit = LimitNotAutomatic
		return
	}
	h.NodesLimit = LimitBlocks
	if h.Blocks.Cmp(taken) > 0 {
		h.Nodes = h.Blocks.Sub(taken)
	}
	if h.Blocks.IsZero() && !p.Slots.Reserved.IsZero() {
		h.NodesLimit = LimitReservations
	}
}

// filling is a node whose pods fill its blocks one after the other.
type filling struct {
	share
	// block is the block being filled. at is the number of the pod that no longer fits into
	// it, 1 for the first pod.
	block *block
	at    int
}

// fillings lists nodes by how soon their next block fills up.
type fillings = turns[*filling]

// Sooner reports whether f's block fills up before o's.
func (f *filling) Sooner(o *filling) bool { return f.before(f.at, &o.share, o.at) }

// starts computes how many pods can start before one no longer fits into its own node's
// blocks. It simulates only the end of each block, so its cost depends on the number of
// blocks and not of addresses.
func (h *Headroom) starts(w *world, p *state.Pool, a *Allocator) {
	all := usersOf(w.today, p)
	if len(all) == 0 {
		h.PodsLimit = LimitSelector
		return
	}
	heap.Init(&all)
	for !w.stopped() {
		f := all[0]
		if f.block != nil {
			f.block.free = nil
			a.changed(f.block)
		}
		request := Request{Node: f.node, Family: p.Family(), Use: blocks.UseWorkload, Pools: []netip.Prefix{p.CIDR}}
		got := a.Assign(request)
		if got.Again {
			got = a.Assign(request)
		}
		if got.Own(f.node) {
			f.block = a.blocks[got.Block]
			f.at += a.numFree(f.block) + 1
			heap.Fix(&all, 0)
			continue
		}
		h.end(a, all, request, got)
		return
	}
}

// end computes the number of pods, and the limit of the last one. It first takes the addresses that
// the other nodes have used by then, because they decide whether any are left to borrow.
func (h *Headroom) end(a *Allocator, all fillings, request Request, got Assigned) {
	last := all[0]
	if got.Addr.IsValid() {
		a.Release(got.Block, got.Addr)
	}
	pods := 0
	for _, f := range all {
		n := (last.at - 1) * f.weight / last.weight // an estimate of f's pods before the last one
		for f != last && f.before(n+1, &last.share, last.at) {
			n++
		}
		for f != last && n > 0 && !f.before(n, &last.share, last.at) {
			n--
		}
		if f == last {
			n = last.at - 1
		}
		pods += n
		if f.block != nil && f != last {
			for range a.numFree(f.block) - max(f.at-1-n, 0) {
				a.take(f.block)
			}
		}
	}
	h.Pods, h.First = blocks.CountOf(pods), last.node
	if next := a.Assign(request); !next.Own(last.node) { // else the release deleted a block without an owner, and it borrows all the same
		got = next
	}
	h.Refused, h.PodsLimit = !got.Addr.IsValid(), got.Limit
}

// usersOf returns the nodes that a pool selects and that accept pods. The weight of a node
// is its number of pods with an address of the pool; if no node has any, all weights are
// equal.
func usersOf(st *state.State, p *state.Pool) (all fillings) {
	var idle fillings
	for _, h := range st.NodeStates {
		if !takesPods(h) || !p.SelectsNode(h.Node) {
			continue
		}
		weight := 0
		for _, w := range h.Workloads {
			for addr := range w.Addresses {
				if p.CIDR.Contains(addr) && w.Live() {
					weight++
					break
				}
			}
		}
		f := &filling{share: share{node: h.Name, weight: max(weight, 1)}, at: 1}
		if idle = append(idle, f); weight > 0 {
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		return idle
	}
	return all
}

// serveFrom serves the demand from one pool, as if no other pool existed, and returns the
// number of claimed blocks.
func serveFrom(a *Allocator, st *state.State, p *state.Pool) (claimed int) {
	assign := func(node string, keep bool) {
		request := Request{Node: node, Family: p.Family(), Use: blocks.UseWorkload, Pools: []netip.Prefix{p.CIDR}}
		got := a.Assign(request)
		if got.Again {
			got = a.Assign(request)
		}
		if got.Claimed {
			claimed++
		}
		if !keep && got.Addr.IsValid() {
			a.Release(got.Block, got.Addr)
		}
	}
	for _, h := range st.NodeStates {
		if h.Node != nil && p.SelectsNode(h.Node) && p.Automatic && slices.Contains(lacking(h, nil), p.Family()) {
			assign(h.Name, false)
		}
	}
	for _, h := range st.NodeStates {
		for _, w := range waiting(st, h) {
			if h.Node != nil && slices.Contains(st.PodPools(w, h.Node, p.Family()), p) {
				assign(h.Name, true)
			}
		}
	}
	return claimed
}
