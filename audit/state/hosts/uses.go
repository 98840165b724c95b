package hosts

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"

	"github.com/calico-audit/calico-audit/blocks"
)

// Use is an address that a host view shows in a network namespace.
type Use struct {
	Addr netip.Addr
	// View shows the address. Its node need not exist in the cluster.
	View *View
	// Namespace contains the address.
	Namespace *blocks.HostNamespace

	bits int
	// inner is true for a namespace inside an existing pod, such as one of a nested
	// cluster.
	inner bool
}

// String describes the place and the user of the address.
func (u Use) String() string { return NamespaceText(u.View.Node, u.Namespace) }

// Owner reports whether the namespace has the address as a pod does: with the prefix length
// of a single address, and neither in the host's namespace nor inside a pod. A shorter
// prefix means a bridge or another network. The host's namespace also holds addresses of
// services and manual ones, and the view does not show their devices.
func (u Use) Owner() bool { return u.bits == u.Addr.BitLen() && !u.Namespace.Host && !u.inner }

// withinPod reports whether a namespace is inside a pod: it has no interface to the host,
// and its processes belong to an existing pod or to one that may exist.
func withinPod(ns *blocks.HostNamespace, pods func(uid string) bool) bool {
	return ns.HostInterfaces != nil && len(ns.HostInterfaces) == 0 && ns.PodUID != "" && pods(ns.PodUID)
}

func (vs *Views) indexUses(s *blocks.Snapshot) {
	_, unread := s.Missing(blocks.Pods)
	uids := sync.OnceValue(func() map[string]bool { // few clusters have such namespaces
		out := make(map[string]bool, len(s.Workloads))
		for i := range s.Workloads {
			out[s.Workloads[i].UID()] = true
		}
		return out
	})
	pods := func(uid string) bool { return unread || uids()[uid] }
	for _, v := range vs.all {
		for i := range v.Namespaces {
			ns := &v.Namespaces[i]
			inner := withinPod(ns, pods)
			for _, p := range ns.Addresses {
				vs.uses = append(vs.uses, Use{p.Addr(), v, ns, p.Bits(), inner})
			}
		}
	}
	slices.SortStableFunc(vs.uses, func(a, b Use) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.View.Node, b.View.Node), cmp.Compare(a.Namespace.ID, b.Namespace.ID),
			cmp.Compare(a.View.Source, b.View.Source), cmp.Compare(a.bits, b.bits))
	})
	vs.uses = slices.Compact(vs.uses)
}

// Uses returns where host views show an address, by node and namespace. It includes old
// views: they prevent a release, although they prove nothing.
func (vs *Views) Uses(a netip.Addr) []Use { return vs.UsesIn(netip.PrefixFrom(a, a.BitLen())) }

// UsesIn returns where host views show addresses of a CIDR, including old views.
func (vs *Views) UsesIn(p netip.Prefix) []Use {
	i, _ := slices.BinarySearchFunc(vs.uses, p.Addr(), func(u Use, a netip.Addr) int { return u.Addr.Compare(a) })
	j := i
	for j < len(vs.uses) && p.Contains(vs.uses[j].Addr) {
		j++
	}
	return vs.uses[i:j:j]
}

// ShowUses reports whether any view shows an address in use.
func (vs *Views) ShowUses() bool { return len(vs.uses) > 0 }

// EachUse calls fn for each address that views show, with its uses, in order.
func (vs *Views) EachUse(fn func(netip.Addr, []Use)) {
	for all := vs.uses; len(all) > 0; {
		uses := vs.Uses(all[0].Addr)
		fn(all[0].Addr, uses)
		all = all[max(len(uses), 1):]
	}
}

// ContradictFree returns where host views, including old ones, show addresses that a block
// records as free. Such a block must not be released, because its next owner would assign
// the addresses again.
func (vs *Views) ContradictFree(b *blocks.Block) []Use {
	var out []Use
	for _, u := range vs.UsesIn(b.CIDR) {
		if n, ok := b.Ordinal(u.Addr); ok && b.Ordinals[n] == blocks.Free {
			out = append(out, u)
		}
	}
	return out
}
