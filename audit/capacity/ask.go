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

// Reads is what an answer needs to have been read whole.
var Reads = []blocks.Resource{
	blocks.Pools, blocks.Blocks, blocks.Affinities, blocks.IPAMConfigs, blocks.Reservations, blocks.Nodes, blocks.Pods, blocks.Namespaces,
}

// Ask answers a question about a state. An error says what of the question makes no sense,
// or is the context's, whose end ends the simulation.
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
	return answer, ctx.Err() // what was cut short is no answer
}

// rules names the release whose allocator is followed.
func rules(st *state.State) string {
	if blocks.CalicoAtLeast(st.Cluster.CalicoVersion, 3, 32) {
		return "v3.32"
	}
	return "v3.31"
}

// unread says what was not read that an answer needs; empty if all was.
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

// unplayable names a pool, or an affinity without its block, whose block size Calico
// rejects: such blocks would have to be made, with any number of addresses. Empty if there
// is none.
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

// traffic says what the topology makes of what is borrowed; nil if nothing is.
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

// forecast is what becomes of addresses of a pool that nodes of today borrow from each
// other: of those that join nothing is known.
func (r *run) forecast(p *pool) affinity.BorrowForecast {
	var nodes []*blocks.Node
	for _, h := range r.today.NodeStates {
		if h.Node != nil && p.SelectsNode(h.Node) {
			nodes = append(nodes, h.Node)
		}
	}
	return r.today.Routing.Pool(p.Pool.Pool, nodes)
}

// notes say what the answer does not depend on, and what it leaves open.
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
		out = append(out, fmt.Sprintf("%s: their addresses count as they are queued", phrase.NumberIs(corrupt, "block")+" corrupt"))
	}
	if n := len(w.joining); n > 0 {
		out = append(out, fmt.Sprintf("nodes that join are called %s …: which blocks they claim, and whose addresses they borrow, depends on their names; how many blocks are claimed, and with which node it ends, does not", w.joining[0]))
	}
	if len(q.AddPools) > 0 {
		out = append(out, "pools that are added are called new-pool-1 …: Calico tries pools in the order of their names")
	}
	for _, p := range w.pools {
		if p.ServesWorkloads() && p.BlockSize == p.CIDR.Addr().BitLen() {
			out = append(out, fmt.Sprintf("blocks of %s hold one address: Calico draws their order by the clock, so that only their number is foretold", p.Name))
		}
	}
	return out
}

// How many nodes a curve goes on for, at least and at most, and about how many points are
// kept: besides, the first node without a block is.
const (
	minCurve    = 10
	maxCurve    = 1000
	curvePoints = 100
)

// curve says how many blocks are claimed as nodes join: twice as many as are asked about,
// or as far as there are blocks and a bit on.
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
