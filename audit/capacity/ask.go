package capacity

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Reads lists the resources that an answer needs in full.
var Reads = []blocks.Resource{
	blocks.Pools, blocks.Blocks, blocks.Affinities, blocks.IPAMConfigs, blocks.Reservations, blocks.Nodes, blocks.Pods, blocks.Namespaces,
}

// Ask simulates a scenario on a state. It returns an error if the scenario is invalid, or
// if the context ends, which stops the simulation.
func Ask(ctx context.Context, st *state.State, q Scenario) (*Answer, error) {
	answer := &Answer{Rules: rules(st), Today: []Headroom{}}
	if !q.IsZero() {
		answer.Scenario = &q
	}
	if answer.Inconclusive = unread(st); answer.Inconclusive != "" {
		return answer, nil
	}
	if answer.Inconclusive = unplayable(st); answer.Inconclusive != "" {
		return answer, nil
	}
	w, err := assume(st, &q)
	if err != nil {
		return nil, err
	}
	w.stopped = func() bool { return ctx.Err() != nil }
	answer.Today = headroom(w, q.NodeLabels)
	answer.Notes = notes(w, &q)
	r := w.simulate(&q)
	answer.Demand = r.out.demand
	if answer.Scenario != nil {
		r.out.Traffic = r.traffic()
		if !r.out.Fits {
			r.out.Changes = r.changes()
		}
		answer.Outcome = r.out
	}
	answer.Curve = w.curve(&q)
	return answer, ctx.Err() // a simulation that was cut short gives no answer
}

// rules returns the release whose allocator is simulated.
func rules(st *state.State) string {
	if blocks.CalicoAtLeast(st.Cluster.CalicoVersion, 3, 32) {
		return "v3.32"
	}
	return "v3.31"
}

// unread returns the first gap in the resources that an answer needs; empty if there is
// none.
func unread(st *state.State) string {
	if g := st.FirstMissing(Reads); g != nil {
		return g.String()
	}
	for _, r := range Reads {
		if gaps := st.Unreadable(r); len(gaps) > 0 {
			return gaps[0].String()
		}
	}
	return ""
}

// unplayable returns the first pool or orphan affinity with a block size that Calico
// rejects, else "". The simulation would have to create such blocks, with any number of
// addresses.
func unplayable(st *state.State) string {
	for _, p := range st.Pools {
		if err := cmp.Or(checkBlockBits(p.CIDR, p.BlockSize), checkWithin(p.CIDR, p.BlockSize)); err != nil && p.HandsOut() {
			return fmt.Sprintf("pool %s cannot be simulated: %v", p.Name, err)
		}
	}
	exist := map[netip.Prefix]bool{}
	for _, b := range st.IPBlocks {
		exist[b.CIDR] = true
	}
	for i := range st.Affinities {
		f := &st.Affinities[i]
		if err := checkBlockBits(f.CIDR, f.CIDR.Bits()); err != nil && !exist[f.CIDR] {
			return fmt.Sprintf("affinity %s cannot be simulated: %v", f.Name, err)
		}
	}
	return ""
}

// traffic describes whether traffic to borrowed addresses arrives; nil without borrowed
// addresses.
func (r *run) traffic() *Traffic {
	switch g := r.today.FirstMissing(state.RouteReads); {
	case r.out.Borrowed == 0:
		return nil
	case g != nil:
		return &Traffic{Outcome: "not known", Reason: g.String()}
	}
	o := r.forecast(r.lent)
	t := &Traffic{Outcome: "not known", Reason: o.Example.Reason}
	switch {
	case o.AllDropped():
		t.Outcome = affinity.Dropped.String()
	case o.Dropped > 0:
		t.Outcome = "dropped in part"
	case o.Whole && o.Delivered > 0 && o.Unknown == 0:
		t.Outcome = affinity.Delivered.String()
	}
	return t
}

// forecast predicts the traffic to addresses of a pool that today's nodes borrow from each
// other. The routing of joining nodes is unknown.
func (r *run) forecast(p *pool) affinity.BorrowForecast {
	var nodes []*blocks.Node
	for _, h := range r.today.NodeStates {
		if h.Node != nil && p.SelectsNode(h.Node) {
			nodes = append(nodes, h.Node)
		}
	}
	return r.today.Routing.Pool(p.Pool.Pool, nodes)
}

// notes lists limits of the answer.
func notes(w *world, q *Scenario) (out []string) {
	if w.Info.Locked {
		out = append(out, "the datastore is locked: until it is unlocked no pod gets an address")
	}
	corrupt := 0
	for _, b := range w.IPBlocks {
		if len(b.Faults) > 0 {
			corrupt++
		}
	}
	if corrupt > 0 {
		out = append(out, fmt.Sprintf("%s: their queues decide which addresses are free", phrase.NumberIs(corrupt, "block")+" corrupt"))
	}
	if n := len(w.joining); n > 0 {
		out = append(out, fmt.Sprintf("joining nodes are named %s …: their names decide which blocks they claim and which addresses they borrow, but not how many blocks are claimed or which node is the last to get one", w.joining[0]))
	}
	if len(q.AddPools) > 0 {
		out = append(out, "added pools are named new-pool-1 …: Calico tries pools in the order of their names")
	}
	for _, p := range w.pools {
		if p.ServesWorkloads() && p.BlockSize == p.CIDR.Addr().BitLen() {
			out = append(out, fmt.Sprintf("blocks of %s hold one address: Calico orders them by the clock, so only their number can be predicted", p.Name))
		}
	}
	return out
}

// The number of nodes on a curve, at least and at most, and the approximate number of
// points. The first node without a block is always a point.
const (
	minCurve    = 10
	maxCurve    = 1000
	curvePoints = 100
)

// curve simulates joining nodes: twice as many as the scenario adds, or until the blocks
// run out and a little further.
func (w *world) curve(q *Scenario) []Curve {
	plain, base := *q, *w
	plain.AddNodes, plain.Pods, base.joining, base.shares = 0, 0, nil, nil
	r := base.simulate(&plain)
	curves, pools, steps := make([]Curve, len(r.kinds.usual.families)), make([][]*pool, len(r.kinds.usual.families)), 2*q.AddNodes
	for i, f := range r.kinds.usual.families {
		c, left := Curve{Family: f}, blocks.Count{}
		for _, p := range r.a.pools {
			if p.Family() == f && p.Automatic && p.Allows(blocks.UseWorkload) {
				pools[i] = append(pools[i], p)
				c.Capacity, left = c.Capacity.Add(blocks.PoolSlots(p.Pool.Pool, nil, r.a.reserved).Free), left.Add(r.a.left(p))
			}
		}
		curves[i] = c
		if n, ok := left.Int(); ok && n < maxCurve {
			steps = max(steps, n+n/4+2)
		}
	}
	steps = min(max(steps, minCurve), max(maxCurve, q.AddNodes), max(q.AddNodes, maxPods/q.podsPerNode()))
	without, name := make([]int, len(curves)), newNames(w.today)
	for n := 0; n <= steps && !r.over(); n++ {
		owner := blocks.Owner{}
		if n > 0 {
			owner = blocks.Owner{Kind: blocks.HostOwner, Name: name()}
			r.a.AddNode(newNode(owner.Name, q.NodeLabels))
			r.join(owner.Name)
		}
		for i := range curves {
			claimed, first := 0, without[i] == 0
			for _, p := range pools[i] {
				claimed += p.blocks.Len()
			}
			if n > 0 && !r.a.owns(owner, curves[i].Family) {
				without[i]++
			}
			if first = first && without[i] == 1; !first && n%(steps/curvePoints+1) != 0 && n != steps {
				continue
			}
			curves[i].Points = append(curves[i].Points, Point{Nodes: n, Blocks: claimed, WithoutBlock: without[i]})
		}
	}
	return curves
}
