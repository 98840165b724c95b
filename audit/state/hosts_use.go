package state

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// HostUse is an address that a host view shows in a network namespace.
type HostUse struct {
	Addr netip.Addr
	// View is the view that shows it, of a node that need not exist in the cluster.
	View *NodeView
	// Namespace is where the address is configured.
	Namespace *blocks.HostNamespace

	bits int
	// inner is true for a namespace within a pod that exists, such as those of a
	// cluster that runs in one.
	inner bool
}

// String says where the address is in use, and by what.
func (u HostUse) String() string { return NamespaceText(u.View.Node, u.Namespace) }

// Owner is true if the namespace has the address as a pod has its own: with the
// length of a single address, in a namespace that is neither the host's nor within
// a pod. What has a longer subnet is a bridge or another network; and the host's own
// namespace holds the addresses of services and whatever else people put there, and
// the view does not tell on which device.
func (u HostUse) Owner() bool { return u.bits == u.Addr.BitLen() && !u.Namespace.Host && !u.inner }

// withinPod reports whether a namespace lies within a pod: nothing joins it to the
// host, and its processes belong to a pod that exists, or that may.
func (st *State) withinPod(ns *blocks.HostNamespace, uids map[string]bool) bool {
	if ns.HostInterfaces == nil || len(ns.HostInterfaces) > 0 || ns.PodUID == "" {
		return false
	}
	_, unread := st.Missing(blocks.Pods)
	return unread || uids[ns.PodUID]
}

func (st *State) indexHostUses() {
	k := &st.views
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
					k.uses = append(k.uses, HostUse{p.Addr(), v, ns, p.Bits(), inner})
				}
			}
		}
	}
	slices.SortFunc(k.uses, func(a, b HostUse) int {
		if c := a.Addr.Compare(b.Addr); c != 0 {
			return c
		}
		if c := strings.Compare(a.View.Node, b.View.Node); c != 0 {
			return c
		}
		if c := strings.Compare(a.Namespace.ID, b.Namespace.ID); c != 0 {
			return c
		}
		return strings.Compare(a.View.Source, b.View.Source)
	})
}

// HostUses returns where host views show an address, ordered by node and namespace.
// It holds whatever any view shows, also an old one: what must not be released
// because somebody may use it goes by this, and what is proven does not.
func (st *State) HostUses(a netip.Addr) []HostUse { return st.HostUsesIn(IPPrefix(a)) }

// HostUsesIn returns where host views show addresses of a CIDR, whatever the age of
// the view.
func (st *State) HostUsesIn(p netip.Prefix) []HostUse {
	all := st.views.uses
	i, _ := slices.BinarySearchFunc(all, p.Addr(), func(u HostUse, a netip.Addr) int { return u.Addr.Compare(a) })
	j := i
	for j < len(all) && p.Contains(all[j].Addr) {
		j++
	}
	return all[i:j:j]
}

// ViewsShowUses is true if any view shows an address in use.
func (st *State) ViewsShowUses() bool { return len(st.views.uses) > 0 }

// EachHostUse calls fn for each address that views show, with its uses.
func (st *State) EachHostUse(fn func(netip.Addr, []HostUse)) {
	for all := st.views.uses; len(all) > 0; {
		uses := st.HostUses(all[0].Addr)
		fn(all[0].Addr, uses)
		all = all[max(len(uses), 1):]
	}
}

// HostContradictsFree returns where host views show addresses of a block that
// the block calls free, whatever the age of the view. A block for which there is
// one must not be released: its next owner would hand the address out again.
func (st *State) HostContradictsFree(b *Block) []HostUse {
	var out []HostUse
	for _, u := range st.HostUsesIn(b.CIDR) {
		if n, ok := b.Ordinal(u.Addr); ok && b.Ordinals[n] == blocks.Free {
			out = append(out, u)
		}
	}
	return out
}

// HostUseEvidence is what views show of an address, as evidence.
func HostUseEvidence(uses ...HostUse) []Evidence {
	var out []Evidence
	for _, u := range uses {
		out = append(out, Evidences("in use in", u.String(), "interfaces", strings.Join(u.Namespace.HostInterfaces, ", "),
			"sandbox", u.Namespace.Sandbox, "pod UID", u.Namespace.PodUID, "host view", u.View.Text())...)
	}
	return out
}
