// Package finished finds the addresses that blocks record for pods which have ended.
package finished

import (
	"cmp"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Addresses are the addresses of a pool that finished pods of a node hold.
type Addresses struct {
	Node string
	// Pool is nil for addresses outside all pools.
	Pool *state.Pool
	// Refs are the allocations, in order.
	Refs []state.AllocationRef
	// Pods are the finished pods, in order, without duplicates.
	Pods []*blocks.Workload
	// Of counts all addresses of the pool that are recorded for the node.
	Of int
}

type all []*Addresses

// Of returns the addresses of pods that ended at least the grace ago, by node and pool. A pod
// counts if the allocation names it. An address that a live pod or a tunnel uses does not.
func Of(st *state.State) []*Addresses { return *state.Derived(st, find) }

// Count returns how many addresses the finished pods of a node hold, and how many the node has in
// the same pools.
func Count(st *state.State, node string) (held, of int) {
	for _, a := range Of(st) {
		if a.Node == node {
			held, of = held+len(a.Refs), of+a.Of
		}
	}
	return held, of
}

// OnNode returns the finished pods with addresses of a node.
func OnNode(st *state.State, node string) (pods []*blocks.Workload) {
	for _, a := range Of(st) {
		if a.Node == node {
			pods = append(pods, a.Pods...)
		}
	}
	return pods
}

type seat struct {
	node string
	pool *state.Pool
}

func find(st *state.State) *all {
	if !slices.ContainsFunc(st.Workloads, (*blocks.Workload).Ended) {
		return &all{}
	}
	held, used := map[seat]*Addresses{}, map[seat]int{}
	st.EachAllocation(func(r state.AllocationRef, node string) {
		used[seat{node, r.Block.Pool}]++
		w := podOf(st, r)
		if w == nil {
			return
		}
		at := seat{node, r.Block.Pool}
		if held[at] == nil {
			held[at] = &Addresses{Node: node, Pool: r.Block.Pool}
		}
		held[at].Refs = append(held[at].Refs, r)
		if !slices.Contains(held[at].Pods, w) {
			held[at].Pods = append(held[at].Pods, w)
		}
	})
	out := all{}
	for at, a := range held {
		a.Of = used[at]
		slices.SortFunc(a.Pods, func(x, y *blocks.Workload) int { return x.Key().Compare(y.Key()) })
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b *Addresses) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(state.PoolName(a.Pool), state.PoolName(b.Pool)))
	})
	return &out
}

// podOf returns the finished pod that holds an allocation; nil if there is none.
func podOf(st *state.State, r state.AllocationRef) *blocks.Workload {
	attr := r.Attributes()
	if r.Kind() != state.UsePod || r.Block.SoftDeleted || attr.Node == "" || st.LiveUserOf(r) != nil { // the usual case first
		return nil
	}
	w := st.Pod(attr.Namespace, attr.Pod)
	if w == nil || !st.LongFinished(w) || len(st.TunnelsAt(r.Addr())) > 0 || !st.Classify(r).Owned {
		return nil
	}
	return w
}
