// Package scope evaluates whether a pool serves pods that it is not meant for, and whether it is
// inside the nodes' podCIDRs.
package scope

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/agents"
	"github.com/calico-audit/calico-audit/blocks"
)

// Reads are the reads that the verdicts need.
var Reads = append(slices.Clip(state.OtherIPAMReads), blocks.Namespaces)

// Namespaces lists the namespaces that ask for a pool by annotation.
func Namespaces(st *state.State, p *state.Pool) (out blocks.Names) {
	for i := range st.Namespaces {
		if n := &st.Namespaces[i]; asks(st, p, n.PoolsV4) || asks(st, p, n.PoolsV6) {
			out = append(out, "namespace "+n.Name)
		}
	}
	return out
}

// Pods lists the pods that ask for a pool by annotation.
func Pods(st *state.State, p *state.Pool) (out blocks.Names) {
	for _, w := range st.Workloads {
		if w.Extra != nil && (asks(st, p, w.Extra.PoolsV4) || asks(st, p, w.Extra.PoolsV6)) {
			out = append(out, "pod "+w.FullName())
		}
	}
	return out
}

func asks(st *state.State, p *state.Pool, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return st.PoolByNameOrCIDR(name) == p })
}

// ServesAnyone reports whether pods that ask for no pool may get the pool's addresses, wherever they
// run (projectcalico/cni-plugin#845).
func ServesAnyone(st *state.State, p *state.Pool) bool {
	return p.HandsOut() && p.Automatic && p.ServesAllNamespaces() &&
		slices.ContainsFunc(st.NodeStates, func(h *state.NodeState) bool { return h.Node != nil && p.SelectsNode(h.Node) })
}

// Shared returns the namespaces that ask for a pool, and the live pods that ask for no pool and
// have its addresses. It returns nil unless an older pool, which no one asks for, serves such pods:
// only then was this pool added for the namespaces.
func Shared(st *state.State, p *state.Pool) (namespaces, others blocks.Names) {
	if namespaces = Namespaces(st, p); len(namespaces) == 0 || !ServesAnyone(st, p) || !p.ServesWorkloads() ||
		!slices.ContainsFunc(st.Pools, func(q *state.Pool) bool {
			return q.Family() == p.Family() && ServesAnyone(st, q) && q.ServesWorkloads() && !q.Created.IsZero() && p.Created.After(q.Created) &&
				len(Namespaces(st, q))+len(Pods(st, q)) == 0
		}) {
		return nil, nil
	}
	for _, w := range st.Workloads {
		if st.Assigned(w) && !w.StaticAddress && len(st.RequestedNames(w, p.Family())) == 0 && slices.ContainsFunc(w.StatusIPs, p.CIDR.Contains) {
			others = append(others, w.FullName())
		}
	}
	return namespaces, others
}

// Outside returns the podCIDRs of a pool's nodes if the pool is in use and overlaps none of them
// (projectcalico/calico#5952, #10907).
func Outside(st *state.State, p *state.Pool) (podCIDRs blocks.Names) {
	for _, h := range st.NodeStates {
		if h.Node == nil || !p.SelectsNode(h.Node) {
			continue
		}
		for _, c := range h.Node.PodCIDRs {
			switch {
			case c.Overlaps(p.CIDR):
				return nil
			case c.Addr().Is4() == p.CIDR.Addr().Is4():
				podCIDRs = append(podCIDRs, c.String())
			}
		}
	}
	if !p.ServesWorkloads() || p.Addrs.InUse.IsZero() {
		return nil
	}
	return podCIDRs
}

// AllOutside reports whether all used pools of a pool's family are outside the podCIDRs of their
// nodes. A single such pool is often intended.
func AllOutside(st *state.State, p *state.Pool) bool {
	return !slices.ContainsFunc(st.Pools, func(q *state.Pool) bool {
		return q.Family() == p.Family() && !q.Addrs.InUse.IsZero() && len(Outside(st, q)) == 0
	})
}

// NotCreated describes the CIDR of calico-node's environment that no pool of a pool's family has, as the
// end of a sentence; "" if there is none. calico-node creates a pool only if there is none
// (node/pkg/lifecycle/startup, configureIPPools; projectcalico/calico#1378).
func NotCreated(st *state.State, p *state.Pool) string {
	variable := blocks.PoolCIDRv4
	if p.Family() == blocks.IPv6 {
		variable = blocks.PoolCIDRv6
	}
	for _, set := range agents.Settings(st, variable) {
		if cidr, ok := blocks.ParseCIDR(set.Value); ok && !slices.ContainsFunc(st.Pools, func(q *state.Pool) bool { return q.CIDR == cidr }) {
			return fmt.Sprintf("; %s=%s of calico-node has no effect, because pools exist", variable, cidr)
		}
	}
	return ""
}
