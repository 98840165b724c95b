package audit

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// hostUse is an address that a view shows in a network namespace.
type hostUse struct {
	addr netip.Addr
	bits int
	k    *kernel
	ns   *blocks.HostNamespace
	// inner is true for a namespace within a pod that exists, such as those of a
	// cluster that runs in one.
	inner bool
}

// owner is true if the namespace has the address as a pod has its own: with the
// length of a single address, in a namespace that is neither the host's nor within
// a pod. What has a longer subnet is a bridge or another network; and the host's own
// namespace holds the addresses of services and whatever else people put there, and
// the view does not tell on which device.
func (u hostUse) owner() bool { return u.bits == u.addr.BitLen() && !u.ns.Host && !u.inner }

// withinPod tells whether a namespace lies within a pod: nothing joins it to the
// host, and its processes belong to a pod that exists, or that may.
func (st *State) withinPod(ns *blocks.HostNamespace, uids map[string]bool) bool {
	if ns.HostInterfaces == nil || len(ns.HostInterfaces) > 0 || ns.PodUID == "" {
		return false
	}
	_, unread := st.Missing(blocks.Pods)
	return unread || uids[ns.PodUID]
}

func (st *State) indexHostUses() {
	k := &st.kernels
	uids := make(map[string]bool, len(st.Workloads))
	for i := range st.Workloads {
		uids[st.Workloads[i].UID] = true
	}
	for _, v := range k.all {
		for i := range v.Namespaces {
			ns := &v.Namespaces[i]
			inner := st.withinPod(ns, uids)
			for j, p := range ns.Addresses {
				if !slices.Contains(ns.Addresses[:j], p) {
					k.uses = append(k.uses, hostUse{p.Addr(), p.Bits(), v, ns, inner})
				}
			}
		}
	}
	slices.SortFunc(k.uses, func(a, b hostUse) int {
		if c := a.addr.Compare(b.addr); c != 0 {
			return c
		}
		if c := strings.Compare(a.k.Node, b.k.Node); c != 0 {
			return c
		}
		if c := strings.Compare(a.ns.ID, b.ns.ID); c != 0 {
			return c
		}
		return strings.Compare(a.k.Source, b.k.Source)
	})
}

// usesOfHost returns the uses of an address that views show.
func (st *State) usesOfHost(a netip.Addr) []hostUse {
	all := st.kernels.uses
	i, _ := slices.BinarySearchFunc(all, a, func(u hostUse, a netip.Addr) int { return u.addr.Compare(a) })
	j := i
	for j < len(all) && all[j].addr == a {
		j++
	}
	return all[i:j]
}

// eachHostUse calls fn for each address that views show, with its uses.
func (st *State) eachHostUse(fn func(netip.Addr, []hostUse)) {
	for all := st.kernels.uses; len(all) > 0; {
		j := 1
		for j < len(all) && all[j].addr == all[0].addr {
			j++
		}
		fn(all[0].addr, all[:j])
		all = all[j:]
	}
}

// HostUse is an address that a host view shows in a network namespace.
type HostUse struct {
	Addr netip.Addr
	// Node is the node as the view names it, which need not exist in the cluster.
	Node string
	// Source and TakenAt say which view shows it. Stale is true if that view is too
	// old, or lies in the future, and so proves nothing; it may still be right.
	Source  string
	TakenAt time.Time
	Stale   bool
	// Namespace is where the address is configured.
	Namespace *blocks.HostNamespace
	// Owner is true if the namespace has the address as a pod has its own; false
	// for the host's own namespace, bridges and namespaces within pods.
	Owner bool
}

// String says where the address is in use, and by what.
func (u HostUse) String() string { return namespaceText(u.Node, u.Namespace) }

func (st *State) exported(u hostUse) HostUse {
	return HostUse{
		Addr: u.addr, Node: u.k.Node, Source: u.k.Source, TakenAt: u.k.TakenAt, Stale: u.k.useless != "", Namespace: u.ns, Owner: u.owner(),
	}
}

// HostUse returns where host views show an address, ordered by node and
// namespace. It holds whatever any view shows, also an old one: what must not be
// released because somebody may use it goes by this, and what is proven does not.
func (st *State) HostUse(a netip.Addr) []HostUse {
	var out []HostUse
	for _, u := range st.usesOfHost(a) {
		out = append(out, st.exported(u))
	}
	return out
}

// HostContradictsFree returns where host views show addresses of a block that
// the block calls free, whatever the age of the view. A block for which there is
// one must not be released: its next owner would hand the address out again.
func (st *State) HostContradictsFree(b *Block) []HostUse {
	var out []HostUse
	all := st.kernels.uses
	i, _ := slices.BinarySearchFunc(all, b.CIDR.Addr(), func(u hostUse, a netip.Addr) int { return u.addr.Compare(a) })
	for ; i < len(all) && b.CIDR.Contains(all[i].addr); i++ {
		if n, ok := b.Ordinal(all[i].addr); ok && b.Ordinals[n] == blocks.Free {
			out = append(out, st.exported(all[i]))
		}
	}
	return out
}

// hostEvidence is what a view shows of an address, as evidence.
func hostEvidence(uses ...hostUse) []Evidence {
	var out []Evidence
	for _, u := range uses {
		out = append(out, Evidences("in use in", namespaceText(u.k.Node, u.ns), "interfaces", strings.Join(u.ns.HostInterfaces, ", "),
			"sandbox", u.ns.Sandbox, "pod UID", u.ns.PodUID, "host view", u.k.words())...)
	}
	return out
}
