package capacity

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Demand is what a cluster needs already, which is served before anything that is assumed.
type Demand struct {
	// Pods is how many pods wait for an address, and Nodes how many nodes have no block of
	// their own, for their next pod.
	Pods  int `json:"waitingPods"`
	Nodes int `json:"nodesWithoutBlock"`
	// PodsLeft is how many of these pods get no address of their own node's blocks, and
	// NodesLeft lists the nodes for which no block is left. First is the first of either;
	// nil if there is none.
	PodsLeft  int      `json:"waitingPodsLeft"`
	NodesLeft []string `json:"nodesWithoutBlockLeft,omitempty"`
	First     *Event   `json:"firstLeft,omitempty"`
}

// served reports whether every pod and node of the demand was served.
func (d *Demand) served() bool { return d.PodsLeft+len(d.NodesLeft) == 0 }

// waiting are the pods of nodes that wait for an address from Calico.
func waiting(st *state.State, h *state.NodeState) []*blocks.Workload {
	return slices.DeleteFunc(slices.Clone(h.Workloads), func(w *blocks.Workload) bool { return !w.Waiting() || !st.Assigned(w) })
}

// lacking returns the families of which a node has no block for its next pod, though pools
// serve it.
func lacking(h *state.NodeState) (out []blocks.Family) {
	for _, n := range h.BlockStatus {
		if h.Schedulable && n.NoBlock() && len(n.Pools) > 0 {
			out = append(out, n.Family)
		}
	}
	return out
}

// serve gives each node without a block one, and each pod that waits its addresses. Nodes go
// first: their pods, which follow, then need no further one.
func (r *run) serve() {
	d := &r.out.demand
	var existing []*state.NodeState
	for _, h := range r.NodeStates {
		if h.Node != nil && r.today.NodeState(h.Name) != nil {
			existing = append(existing, h)
		}
	}
	for _, h := range existing {
		families := lacking(h)
		if len(families) == 0 {
			continue
		}
		d.Nodes++
		for _, f := range families {
			got := r.assign(Request{Node: h.Name, Family: f, Use: blocks.UseWorkload})
			if got.Addr.IsValid() {
				r.a.Release(got.Block, got.Addr)
			}
			r.claimed(h.Name, got)
			if noneLeft(got, h.Name) && !slices.Contains(d.NodesLeft, h.Name) {
				d.NodesLeft = append(d.NodesLeft, h.Name)
				r.left(&Event{Node: h.Name, Reason: got.Reason, Limit: got.Limit})
			}
		}
	}
	for _, h := range existing {
		for _, w := range waiting(r.State, h) {
			if r.over() {
				return
			}
			d.Pods++
			all, failed := r.addresses(h.Name, &kind{like: w, families: r.kinds.usual.families})
			for _, got := range all {
				r.claimed(h.Name, got)
				if failed == nil && !got.Own(h.Name) {
					failed = &got
				}
			}
			if failed != nil {
				d.PodsLeft++
				r.left(&Event{Node: h.Name, Waits: w.FullName(), Reason: failed.Reason, Limit: failed.Limit})
			}
		}
	}
}

// noneLeft reports whether a node got no block because none was left. One that may claim
// none, whatever is left, takes none from others.
func noneLeft(got Assigned, node string) bool {
	return !got.Own(node) && (got.Limit == LimitBlocks || got.Limit == LimitAddresses || got.Limit == LimitReservations)
}

// left notes a node or a pod of the demand that was not served.
func (r *run) left(e *Event) {
	if r.out.demand.First == nil {
		r.first = e.Limit
	}
	r.out.demand.First = cmp.Or(r.out.demand.First, e)
}

// claimed notes a block that a node claimed.
func (r *run) claimed(node string, got Assigned) {
	if got.Claimed {
		n := r.node(node)
		n.Claimed = append(n.Claimed, got.Block)
	}
}

// serveFrom serves the demand from one pool, as if no other existed, and returns how many
// blocks of it that takes.
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
		if h.Node != nil && p.SelectsNode(h.Node) && p.Automatic && slices.Contains(lacking(h), p.Family()) {
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
