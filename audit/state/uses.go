package state

import (
	"cmp"
	"net/netip"
	"slices"
	"sort"

	"go4.org/netipx"

	"github.com/calico-audit/calico-audit/blocks"
)

// use is an address that a pod names.
type use struct {
	addr netip.Addr
	// pod is the index of the pod in Workloads.
	pod int32
	// elsewhere is true if only network-status names the address. Its interface may then be on any
	// network with any IPAM, so the address may not be Calico's. It must not be touched.
	elsewhere bool
	// recorded is true if a block records the address as in use. An address in its cooldown is
	// not in use.
	recorded bool
}

// indexUses lists the addresses that pods name, and sets each block's uses and whether it records
// them. If blocks overlap, the most specific one that records an address counts.
func (st *State) indexUses() {
	st.uses = make([]use, 0, len(st.Workloads))
	for i, w := range st.Workloads {
		for a := range w.Addresses {
			elsewhere := !slices.Contains(w.StatusIPs, a) && !slices.Contains(w.AnnotationIPs, a)
			st.uses = append(st.uses, use{addr: a, pod: int32(i), elsewhere: elsewhere})
		}
	}
	slices.SortFunc(st.uses, func(a, b use) int {
		if c := a.addr.Compare(b.addr); c != 0 {
			return c
		}
		return cmp.Compare(a.pod, b.pod)
	})
	for _, b := range st.IPBlocks { // inner blocks come after outer ones
		last := netipx.PrefixLastIP(b.CIDR)
		first, _ := slices.BinarySearchFunc(st.uses, b.CIDR.Addr(), useAt)
		count := sort.Search(len(st.uses)-first, func(i int) bool { return last.Less(st.uses[first+i].addr) })
		if b.uses = st.uses[first : first+count]; st.BlockOf(b.CIDR) != b {
			continue
		}
		for i := range b.uses {
			u := &b.uses[i]
			if ordinal, ok := b.Ordinal(u.addr); ok && b.Ordinals[ordinal] != blocks.Free {
				r := AllocationRef{b, ordinal}
				u.recorded = r.Attributes() == nil || r.Kind() != UseCooling
			}
		}
	}
}

// indexWorkloads assigns pods to their nodes and sets the families in use.
func (st *State) indexWorkloads() {
	var families [7]bool
	st.optional, st.floats = map[blocks.Family]bool{}, map[netip.Addr][]*blocks.Workload{}
	for _, u := range st.uses {
		if w := st.podOf(u); !u.elsewhere && w.MayBeLive() && st.OtherIPAMOf(w) == "" {
			families[blocks.FamilyOf(u.addr)] = true
		}
	}
	for _, w := range st.Workloads {
		for _, a := range w.Extras().FloatingIPs {
			st.floats[a] = append(st.floats[a], w)
		}
		if w.HostNetwork {
			continue
		}
		if four, six := w.HasFamily(blocks.IPv4), w.HasFamily(blocks.IPv6); four != six && w.MayBeLive() && st.OtherIPAMOf(w) == "" {
			st.optional[blocks.IPv4], st.optional[blocks.IPv6] = st.optional[blocks.IPv4] || six, st.optional[blocks.IPv6] || four
		}
		if w.Extras().Partial != "" {
			st.partial = append(st.partial, w)
			if w.Node == "" {
				st.placeless = append(st.placeless, w)
			}
		}
		if h := st.nodeStates[w.Node]; h != nil {
			h.Workloads = append(h.Workloads, w)
		}
	}
	if !families[blocks.IPv4] && !families[blocks.IPv6] && slices.ContainsFunc(st.Workloads, func(w *blocks.Workload) bool { return w.Waiting() && st.Assigned(w) }) {
		// No pod has an address and some wait for one. The families are those that they could get,
		// because verdicts are needed even if no pod can start.
		for _, p := range st.Pools {
			families[p.Family()] = families[p.Family()] || p.Allows(blocks.UseWorkload)
		}
	}
	for _, f := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
		if families[f] {
			st.Families = append(st.Families, f)
		}
	}
}

func useAt(u use, a netip.Addr) int { return u.addr.Compare(a) }

// FloatsAt returns the pods that have an address as a floating IP, including finished ones. No block
// records such a use.
func (st *State) FloatsAt(a netip.Addr) []*blocks.Workload { return st.floats[a] }

// NamedBy returns the pods that name an address.
func (st *State) NamedBy(a netip.Addr) []use { return namedBy(st.uses, a) }

func namedBy(among []use, a netip.Addr) []use {
	i, _ := slices.BinarySearchFunc(among, a, useAt)
	j := i
	for j < len(among) && among[j].addr == a {
		j++
	}
	return among[i:j]
}

func (st *State) podOf(u use) *blocks.Workload { return st.Workloads[u.pod] }

// Users returns the pods that name an address in their status or any annotation, including
// finished and host-network pods.
func (st *State) Users(a netip.Addr) (out []*blocks.Workload) {
	for _, u := range st.NamedBy(a) {
		out = append(out, st.podOf(u))
	}
	return out
}

// LiveUser returns the live pod that holds an address, or nil. If several do, it prefers the pod
// that the allocation names. If only network-status names the address, only that pod counts.
func (st *State) LiveUser(a netip.Addr, attr *blocks.Attributes) *blocks.Workload {
	return st.liveUser(st.NamedBy(a), attr)
}

// LiveUserOf is [State.LiveUser] for an allocation. It searches only its block's addresses.
func (st *State) LiveUserOf(r AllocationRef) *blocks.Workload {
	return st.liveUser(namedBy(r.Block.uses, r.Addr()), r.Attributes())
}

func (st *State) liveUser(named []use, attr *blocks.Attributes) (first *blocks.Workload) {
	for _, u := range named {
		w := st.podOf(u)
		owner := attr != nil && w.Name == attr.Pod && w.Namespace == attr.Namespace
		switch {
		case owner && w.Live():
			return w
		case owner && w.MayBeLive():
			return nil // it may still have the address
		case !w.Live():
			continue
		}
		if first == nil && !u.elsewhere {
			first = w
		}
	}
	return first
}
