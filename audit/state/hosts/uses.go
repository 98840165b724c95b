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
	// View is the view that shows it, of a node that need not exist in the cluster.
	View *View
	// Namespace is where the address is configured.
	Namespace *blocks.HostNamespace

	bits int
	// inner is true for a namespace within a pod that exists, such as those of a
	// cluster that runs in one.
	inner bool
}

// String says where the address is in use, and by what.
func (u Use) String() string { return NamespaceText(u.View.Node, u.Namespace) }

// Owner is true if the namespace has the address as a pod has its own: with the
// length of a single address, in a namespace that is neither the host's nor within
// a pod. What has a longer subnet is a bridge or another network; and the host's own
// namespace holds the addresses of services and whatever else people put there, and
// the view does not tell on which device.
func (u Use) Owner() bool { return u.bits == u.Addr.BitLen() && !u.Namespace.Host && !u.inner }

// withinPod reports whether a namespace lies within a pod: nothing joins it to the
// host, and its processes belong to one of the pods that exist, or that may.
func withinPod(ns *blocks.HostNamespace, pods func(uid string) bool) bool {
	return ns.HostInterfaces != nil && len(ns.HostInterfaces) == 0 && ns.PodUID != "" && pods(ns.PodUID)
}

func (vs *Views) indexUses(s *blocks.Snapshot) {
	_, unread := s.Missing(blocks.Pods)
	uids := sync.OnceValue(func() map[string]bool { // few machines have what it is asked for
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

// Uses returns where host views show an address, ordered by node and namespace.
// It holds whatever any view shows, also an old one: what must not be released
// because somebody may use it goes by this, and what is proven does not.
func (vs *Views) Uses(a netip.Addr) []Use { return vs.UsesIn(netip.PrefixFrom(a, a.BitLen())) }

// UsesIn returns where host views show addresses of a CIDR, whatever the age of
// the view.
func (vs *Views) UsesIn(p netip.Prefix) []Use {
	i, _ := slices.BinarySearchFunc(vs.uses, p.Addr(), func(u Use, a netip.Addr) int { return u.Addr.Compare(a) })
	j := i
	for j < len(vs.uses) && p.Contains(vs.uses[j].Addr) {
		j++
	}
	return vs.uses[i:j:j]
}

// ShowUses is true if any view shows an address in use.
func (vs *Views) ShowUses() bool { return len(vs.uses) > 0 }

// EachUse calls fn for each address that views show, with its uses, in order.
func (vs *Views) EachUse(fn func(netip.Addr, []Use)) {
	for all := vs.uses; len(all) > 0; {
		uses := vs.Uses(all[0].Addr)
		fn(all[0].Addr, uses)
		all = all[max(len(uses), 1):]
	}
}

// ContradictFree returns where host views show addresses of a block that the block
// calls free, whatever the age of the view. A block for which there is one must not be
// released: its next owner would hand the address out again.
func (vs *Views) ContradictFree(b *blocks.Block) []Use {
	var out []Use
	for _, u := range vs.UsesIn(b.CIDR) {
		if n, ok := b.Ordinal(u.Addr); ok && b.Ordinals[n] == blocks.Free {
			out = append(out, u)
		}
	}
	return out
}
