package state

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// Stuck is a waiting pod that can get no address.
type Stuck struct {
	Pod *blocks.Workload
	// Cause is why; Detail explains it.
	Cause  Cause
	Detail string
	// Blockless is true if the pod's node has no usable block in the pools that may serve the pod.
	Blockless bool
}

// evaluateWaiting finds the waiting pods of a node that can get no address. Only the pools that may
// serve a pod count for it. Pods with a request that Calico rejects are not included (see package
// waiting).
func (st *State) evaluateWaiting(n *NodeBlockStatus) {
	for _, w := range n.Waiting {
		s := Stuck{Pod: w}
		pools := st.PodPools(w, n.Host.Node, n.Family)
		own, unused := st.ownUnused(n.Host, pools)
		s.Blockless = own == 0
		_, asks := st.RequestedPools(w, n.Family)
		if !asks {
			s.Cause, s.Detail = st.selectorCause(n)
		}
		switch {
		case s.Cause != CauseNone:
		case len(pools) > 0 && unused == 0:
			s.Cause, s.Detail = st.CauseFor(n, pools)
		case len(pools) == 0 && !asks && st.wantsFamily(w, n):
			if why := st.MayBeServed(w); why != "" {
				n.Inconclusive = why
				continue
			}
			s.Cause, s.Detail = st.whyUnserved(w, n)
		}
		if s.Cause.PreventsAllocation() {
			n.Stuck = append(n.Stuck, s)
		}
	}
}

// ownUnused returns how many usable blocks of the given pools a host has, and how many of their
// addresses can still be assigned.
func (st *State) ownUnused(h *NodeState, pools []*Pool) (own, unused int) {
	for _, b := range h.Blocks {
		if b.Usable() && within(pools, b.CIDR) && !st.Reserved.Covers(b.CIDR) {
			own++
			unused += st.Unused(b)
		}
	}
	return own, unused
}

// wantsFamily reports whether a waiting pod needs an address of a family. It does if all live pods
// have one. If some have only the other family, it does if no pool of the other family may serve
// it.
func (st *State) wantsFamily(w *blocks.Workload, n *NodeBlockStatus) bool {
	return !st.optional[n.Family] || !slices.ContainsFunc(st.Families, func(f blocks.Family) bool {
		return f != n.Family && len(st.PodPools(w, n.Host.Node, f)) > 0
	})
}

// MayBeServed names an unread object that may allow a pool to serve the pod; empty if there is
// none.
func (st *State) MayBeServed(w *blocks.Workload) string {
	if bad := st.Unreadable(blocks.Pools); len(bad) > 0 {
		return fmt.Sprintf("pool %s cannot be read, and may serve pod %s", bad[0].Name, w.FullName())
	}
	for _, g := range st.Unreadable(blocks.Namespaces) {
		if g.Name == w.Namespace {
			return fmt.Sprintf("the namespace of pod %s cannot be read", w.FullName())
		}
	}
	if g := st.FirstMissing([]blocks.Resource{blocks.Pools, blocks.Namespaces}); g != nil {
		return g.String()
	}
	return ""
}

// whyUnserved explains why no pool may serve a pod.
func (st *State) whyUnserved(w *blocks.Workload, n *NodeBlockStatus) (Cause, string) {
	if len(n.Pools) == 0 {
		return CauseNoPool, st.whyNoPool(n)
	}
	var why []string
	for _, p := range st.Pools {
		if p.Family() == n.Family {
			reason, _ := st.MayServe(p, w, n.Host.Node)
			why = append(why, p.Name+": "+reason)
		}
	}
	return CauseUnserved, fmt.Sprintf("pod %s: %s", w.FullName(), strings.Join(why, "; "))
}
