package state

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state/nodeset"
	"github.com/calico-audit/calico-audit/blocks"
)

// ServesAllNamespaces reports whether pods of any namespace may use the pool.
func (p *Pool) ServesAllNamespaces() bool { return p.NamespaceSelection.MatchesAll() }

// SelectorError returns the parse error of the pool's selectors, or nil.
func (p *Pool) SelectorError() error {
	if p.NodeSelection.Err != nil {
		return p.NodeSelection.Err
	}
	return p.NamespaceSelection.Err
}

// refuses reports whether an unparseable selector of the pool makes Calico reject every assignment
// of its family on a node, except requests for pools by name. Calico skips disabled and manual
// pools, and parses a namespace selector only if the node selector matches (libcalico-go
// ipam/ipam.go, determinePools).
func (p *Pool) refuses(n *blocks.Node) bool {
	if p.Disabled || !p.Automatic {
		return false
	}
	return p.NodeSelection.Err != nil || p.NamespaceSelection.Err != nil && p.SelectsNode(n)
}

// HandsOut reports whether Calico assigns from the pool to anyone: it is enabled, not being
// deleted, and not marked as not allocatable.
func (p *Pool) HandsOut() bool {
	return p.WhyClosed() == ""
}

// SelectsNode reports whether the pool's node selector matches a node.
func (p *Pool) SelectsNode(n *blocks.Node) bool { return p.NodeSelection.Matches(n.Labels) }

// SelectedBy returns the nodes of the cluster that the pool's node selector matches, in order.
func (st *State) SelectedBy(p *Pool) (nodes []*NodeState) {
	for i := range p.selected.All() {
		nodes = append(nodes, st.NodeStates[i])
	}
	return nodes
}

// SelectsNamespace reports whether the pool's namespace selector matches a namespace. nil is an
// unknown namespace, without labels.
func (p *Pool) SelectsNamespace(ns *blocks.Namespace) bool {
	if ns == nil {
		ns = &blocks.Namespace{}
	}
	return p.NamespaceSelection.Matches(ns.Labels)
}

// indexSelection evaluates each pool's node selector once for each node.
func (st *State) indexSelection() {
	for _, p := range st.Pools {
		p.selected = nodeset.New(len(st.NodeStates))
	}
	var last []*Pool
	for i, h := range st.NodeStates {
		if h.place = i; h.Node == nil {
			continue
		}
		var pools []*Pool
		for _, p := range st.Pools {
			if !p.SelectsNode(h.Node) {
				continue
			}
			if p.selected.Add(i); p.ServesWorkloads() && p.Automatic {
				pools = append(pools, p)
			}
		}
		if slices.Equal(pools, last) {
			pools = last // most nodes have the same pools as the previous node, and share its slice
		}
		h.workloadPools, last = pools, pools
	}
}

// WorkloadPools returns the pools of a family that serve workloads, assign automatically and
// select a node of the cluster. It ignores namespace selectors.
func (st *State) WorkloadPools(n *blocks.Node, f blocks.Family) []*Pool {
	h := st.nodeStates[n.Name]
	if h == nil {
		return nil
	}
	var out []*Pool
	for _, p := range h.workloadPools {
		if p.Family() == f {
			out = append(out, p)
		}
	}
	return out
}

// indexAsked collects the sets of pools that live pods ask for. There are few.
func (st *State) indexAsked() {
	known := map[string]bool{}
	for _, w := range st.Workloads {
		for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
			names := st.RequestedNames(w, f)
			if len(names) == 0 || !st.Assigned(w) {
				continue
			}
			if key := f.String() + strings.Join(names, " "); !known[key] {
				known[key] = true
				asked, _ := st.RequestedPools(w, f)
				st.asked = append(st.asked, asked)
			}
		}
	}
}

// IsAskedFor reports whether a live pod, or its namespace, asks for a pool by annotation.
func (st *State) IsAskedFor(p *Pool) bool {
	return slices.ContainsFunc(st.asked, func(asked []*Pool) bool { return slices.Contains(asked, p) })
}

// RequestedNames returns the names or CIDRs of the pools that a pod's annotation asks for. If it
// has none, its namespace's annotation counts.
func (st *State) RequestedNames(w *blocks.Workload, f blocks.Family) []string {
	of := func(v4, v6 []string) []string {
		if f == blocks.IPv6 {
			return v6
		}
		return v4
	}
	names := of(w.Extras().PoolsV4, w.Extras().PoolsV6)
	if ns := st.Namespace(w.Namespace); len(names) == 0 && ns != nil {
		names = of(ns.PoolsV4, ns.PoolsV6)
	}
	return names
}

// RequestedPools returns the pools that a pod, or else its namespace, asks for by annotation, and
// whether it asks for any. Calico uses such pools regardless of their selectors and assignment
// mode (libcalico-go ipam/ipam.go, determinePools; cni-plugin/pkg/k8s defines the precedence).
// Names without an enabled pool are left out.
func (st *State) RequestedPools(w *blocks.Workload, f blocks.Family) (pools []*Pool, asked bool) {
	names := st.RequestedNames(w, f)
	for _, name := range names {
		if p := st.PoolByNameOrCIDR(name); p != nil && !p.Disabled && p.Family() == f {
			pools = append(pools, p)
		}
	}
	return pools, len(names) > 0
}

// PinnedPools returns the pools that hold addresses of a pod although neither Calico assigns from
// them automatically nor the pod asks for them. The CNI configuration may name them (ipv4_pools),
// also for the next pod. It may also name an automatic pool, as kubespray's does, if pods use the
// others only on request.
func (st *State) PinnedPools(w *blocks.Workload, f blocks.Family) (pools []*Pool) {
	for a := range w.Addresses {
		pools = append(pools, slices.DeleteFunc(st.poolsAt(IPPrefix(a)), func(p *Pool) bool {
			return p.Family() != f || !p.ServesWorkloads() || p.Automatic && p.selected.Len() > 0 && !st.isAlone(p) || w.StaticAddress || len(st.RequestedNames(w, f)) > 0
		})...)
	}
	return pools
}

// isAlone reports whether pods on a pool's nodes use the other automatic pools only on request.
func (st *State) isAlone(p *Pool) bool {
	return slices.ContainsFunc(*Derived(st, findAskedOnly), func(q *Pool) bool {
		return q != p && q.Family() == p.Family() && p.selected.Without(q.selected).Len() < p.selected.Len()
	})
}

// askedOnly are the automatic pools for all namespaces whose only users are pods that ask for them.
type askedOnly []*Pool

func findAskedOnly(st *State) *askedOnly {
	asked, plain, out := map[*Pool]bool{}, map[*Pool]bool{}, askedOnly{}
	for _, w := range st.Workloads {
		for a := range w.Addresses {
			users := plain
			if len(st.RequestedNames(w, blocks.FamilyOf(a))) > 0 {
				users = asked
			}
			for _, p := range st.poolsAt(IPPrefix(a)) {
				users[p] = users[p] || w.Live() && !w.StaticAddress
			}
		}
	}
	for _, p := range st.Pools {
		if asked[p] && !plain[p] && p.Automatic && p.ServesWorkloads() && p.ServesAllNamespaces() {
			out = append(out, p)
		}
	}
	return &out
}

// UnmetRequest explains why Calico does not assign from a pool that a pod asks for; empty if there
// is no such pool. Calico then rejects the pod, even if it also asks for other pools.
func (st *State) UnmetRequest(w *blocks.Workload, f blocks.Family) string {
	for _, name := range st.RequestedNames(w, f) {
		switch p := st.PoolByNameOrCIDR(name); {
		case p == nil:
			return fmt.Sprintf("it asks for pool %s, which does not exist", name)
		case p.Family() != f:
			return fmt.Sprintf("it asks for pool %s, which is not an %s pool", name, f)
		case !p.HandsOut():
			return fmt.Sprintf("it asks for pool %s: %s", name, p.WhyClosed())
		}
	}
	return ""
}

// WhyClosed explains why Calico assigns nothing from the pool; empty if it does.
func (p *Pool) WhyClosed() string {
	switch {
	case p.Disabled:
		return "it is disabled"
	case p.NotAllocatable != "":
		return fmt.Sprintf("Calico marks it not allocatable (%s)", p.NotAllocatable)
	case !p.Deleting.IsZero():
		return "it is being deleted"
	}
	return ""
}

// MayServe reports whether a pod on a node may get an address of a pool, with the reason. n is nil
// if the pod is not bound to a known node.
func (st *State) MayServe(p *Pool, w *blocks.Workload, n *blocks.Node) (why string, ok bool) {
	asked, asks := st.RequestedPools(w, p.Family())
	unmet := st.UnmetRequest(w, p.Family())
	switch {
	case !p.HandsOut():
		return p.WhyClosed(), false
	case !p.Allows(blocks.UseWorkload):
		return "it serves " + phrase.Uses(p.Uses), false
	case asks && slices.Contains(asked, p) && unmet != "":
		return "requested by annotation, together with a pool for which Calico rejects the pod: " + unmet, false
	case asks && slices.Contains(asked, p):
		return "asked for by annotation", true
	case asks:
		return "others are asked for by annotation", false
	case !p.Automatic:
		return "it serves only pods that ask for it", false
	case n == nil && w.Node != "":
		return st.NoNode(w.Node), false
	case n == nil:
		return "the pod is not bound to a node, so selectors cannot be evaluated", false
	case !p.SelectsNode(n):
		return fmt.Sprintf("it does not select node %s (%s)", n.Name, p.NodeSelector), false
	case !p.SelectsNamespace(st.Namespace(w.Namespace)):
		return fmt.Sprintf("it does not select namespace %s (%s)", w.Namespace, p.NamespaceSelector), false
	}
	return "it selects the node and the namespace", true
}

// within reports whether one of the pools contains a block. The pools may overlap others. Calico
// lists a node's blocks in this way (libcalico-go ipam/ipam.go, prepareAffinityBlocksForHost).
func within(pools []*Pool, block netip.Prefix) bool {
	return slices.ContainsFunc(pools, func(p *Pool) bool { return p.CIDR.Contains(block.Addr()) })
}

// PodPools returns the pools from which a pod may get an address of a family.
func (st *State) PodPools(w *blocks.Workload, n *blocks.Node, f blocks.Family) (out []*Pool) {
	pools, asks := st.RequestedPools(w, f)
	switch {
	case asks:
		slices.SortFunc(pools, func(a, b *Pool) int { return strings.Compare(a.Name, b.Name) })
		pools = slices.Compact(pools)
	case n == nil:
		return nil
	default:
		pools = st.WorkloadPools(n, f)
	}
	return slices.DeleteFunc(pools, func(p *Pool) bool {
		_, ok := st.MayServe(p, w, n)
		return !ok
	})
}

// PoolByNameOrCIDR returns the pool that an annotation of a pod or namespace names, or nil.
func (st *State) PoolByNameOrCIDR(s string) *Pool {
	for _, p := range st.Pools {
		if p.Name == s {
			return p
		}
	}
	if cidr, err := netip.ParsePrefix(s); err == nil {
		for _, p := range st.Pools {
			if p.CIDR == cidr.Masked() {
				return p
			}
		}
	}
	return nil
}

// GeneralPools leaves out pools with a namespace selector, because a future pod may not match it.
// If all pools have one, it returns all.
func GeneralPools(ps []*Pool) []*Pool {
	out := slices.DeleteFunc(slices.Clone(ps), func(p *Pool) bool { return !p.ServesAllNamespaces() })
	if len(out) == 0 {
		return ps
	}
	return out
}

// SlotOf returns the CIDR of the block that would contain an address; invalid if the address is
// outside all pools.
func (st *State) SlotOf(a netip.Addr) netip.Prefix {
	p := st.PoolOf(netip.PrefixFrom(a, a.BitLen()))
	if p == nil || p.BlockSize < p.CIDR.Bits() {
		return netip.Prefix{}
	}
	slot, err := a.Prefix(p.BlockSize)
	if err != nil {
		return netip.Prefix{}
	}
	return slot
}
