package capacity

import (
	"cmp"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// waiting returns a node's pods that wait for any address from Calico.
func waiting(st *state.State, h *state.NodeState) []*blocks.Workload {
	return slices.DeleteFunc(slices.Clone(h.Workloads), func(w *blocks.Workload) bool {
		return !w.Waiting() || w.StaticAddress || !st.Assigned(w)
	})
}

// Refused simulates today's demand as [Ask] does before a scenario, and returns the waiting pods
// that get no address, each with the reason. unknown explains why the pods could not be determined;
// empty if they were.
func Refused(st *state.State) (why map[*blocks.Workload]string, unknown string) {
	if unknown = cmp.Or(unread(st), unplayable(st)); unknown != "" {
		return nil, unknown
	}
	w := &world{today: st, State: st, config: st.IPAM, pools: st.Pools, starts: starts{}, kinds: newKinds(st), stopped: func() bool { return false }}
	r := w.start(&Scenario{})
	r.serve()
	return r.refused, ""
}

// lacking returns the families without a block for a node's next pod, although pools serve the
// node. pools may differ from the node's present pools.
func lacking(h *state.NodeState, pools []*state.Pool) (out []blocks.Family) {
	for _, n := range h.BlockStatus {
		if h.Schedulable && n.NoBlock() && (len(n.Pools) > 0 || slices.ContainsFunc(pools, func(p *state.Pool) bool {
			return p.Family() == n.Family && p.Automatic && p.ServesWorkloads() && p.SelectsNode(h.Node)
		})) {
			out = append(out, n.Family)
		}
	}
	return out
}

// serve gives each node without a block one, and each waiting pod its addresses. Nodes go
// first, because their pods can then use the new blocks.
func (r *run) serve() {
	d := &r.out.demand
	var existing []*state.NodeState
	for _, h := range r.NodeStates {
		if h.Node != nil && r.today.NodeState(h.Name) != nil {
			existing = append(existing, h)
		}
	}
	for _, h := range existing {
		families := lacking(h, r.pools)
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
				if !failed.Addr.IsValid() {
					r.refused[w] = failed.Reason
				}
				d.PodsLeft++
				r.left(&Event{Node: h.Name, Waits: w.FullName(), Reason: failed.Reason, Limit: failed.Limit})
			}
		}
	}
}

// noneLeft reports whether a node got no block because none was left. Nodes that may not claim
// blocks do not count.
func noneLeft(got Assigned, node string) bool {
	return !got.Own(node) && (got.Limit == LimitBlocks || got.Limit == LimitAddresses || got.Limit == LimitReservations)
}

// left records a node or pod whose demand was not met.
func (r *run) left(e *Event) {
	if r.out.demand.First == nil {
		r.first = e.Limit
	}
	r.out.demand.First = cmp.Or(r.out.demand.First, e)
}

// claimed records a block that a node claimed.
func (r *run) claimed(node string, got Assigned) {
	if got.Claimed {
		n := r.node(node)
		n.Claimed = append(n.Claimed, got.Block)
	}
}
