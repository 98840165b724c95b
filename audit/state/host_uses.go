package state

import (
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

// FreeUse is an address in use that no block records.
type FreeUse struct {
	Use  hosts.Use
	Pool *Pool
	// Block is the block around it; nil if there is none.
	Block *Block
}

// FreeUses returns the addresses that host views prove to be in use and that no block records.
func (st *State) FreeUses() []FreeUse { return st.freeUses }

// SecondOwners returns the namespaces that hold an address in addition to its live owners.
func (st *State) SecondOwners(a netip.Addr) []hosts.Use { return st.seconds[a] }

// findFreeUses finds the addresses in use that no block records: free addresses of a block, and
// addresses of an enabled pool outside all blocks.
func (st *State) findFreeUses() {
	if st.otherIPAM.Cluster {
		return // addresses that Calico's datastore does not record
	}
	st.Views.EachUse(func(a netip.Addr, uses []hosts.Use) {
		if !slices.ContainsFunc(uses, hosts.Use.Owner) || st.Reserved.Contains(a) {
			return
		}
		if _, allocated := st.Allocation(a); allocated {
			return // also during a cooldown: it is not assigned again yet
		}
		if st.OtherIPAMAt(a) != "" {
			return
		}
		pool, b := st.PoolOf(IPPrefix(a)), st.CoveringBlock(a)
		switch {
		case pool == nil || !pool.Allows(blocks.UseWorkload) && !pool.Allows(blocks.UseTunnel):
			return
		case b == nil && st.EnabledPool(a) == nil:
			return
		case b != nil && b.Owner.Kind == blocks.VirtualOwner:
			return
		}
		since := blocks.Time(0)
		if b != nil {
			since, _ = b.LastWrite()
		}
		for _, u := range uses {
			if u.Owner() && st.Views.Proves(u.View, since.Std(), "that "+a.String()+" is free") {
				st.freeUses = append(st.freeUses, FreeUse{u, pool, b})
			}
		}
	})
}

// ProvenUses returns the uses of an allocated address that views prove.
func (st *State) ProvenUses(r AllocationRef) (out []hosts.Use) {
	since := AssignedAt(r)
	for _, u := range st.Views.Uses(r.Addr()) {
		if u.View.NewerThan(since.Std()) {
			out = append(out, u)
		}
	}
	return out
}

// countOldLeaks records the views that show a leaked address in use and are older than its
// allocation.
func (st *State) countOldLeaks() {
	st.Views.EachUse(func(a netip.Addr, uses []hosts.Use) {
		r, allocated := st.Allocation(a)
		if !allocated || len(st.Users(a)) > 0 || r.Attributes() == nil {
			return
		}
		for _, u := range uses {
			if !u.View.Stale() && !u.View.NewerThan(AssignedAt(r).Std()) && !st.Classify(r).Owned {
				st.Views.Proves(u.View, AssignedAt(r).Std(), "the allocation of "+a.String())
			}
		}
	})
}

// findSecondOwners finds addresses that several namespaces hold, or a namespace in addition to the
// live pods that claim them. It skips addresses of virtual machines, which two pods hold during a
// migration. It also skips free addresses, because check ip/host-in-use reports each use of those.
func (st *State) findSecondOwners() {
	st.seconds = map[netip.Addr][]hosts.Use{}
	if _, missing := st.Missing(blocks.Blocks); missing {
		return
	}
	st.Views.EachUse(func(a netip.Addr, shown []hosts.Use) {
		uses := slices.DeleteFunc(slices.Clone(shown), func(u hosts.Use) bool { return !u.Owner() })
		if len(uses) == 0 {
			return
		}
		owners := Certain(st.LiveUses(a, st.NamedBy(a)))
		pool := st.PoolOf(IPPrefix(a))
		r, allocated := st.Allocation(a)
		switch {
		case pool == nil || !pool.Allows(blocks.UseWorkload) && !pool.Allows(blocks.UseTunnel):
			return
		case !allocated && len(owners) == 0:
			return
		case allocated && (r.Attributes() == nil || r.Attributes().VM):
			return
		}
		since := blocks.Time(0)
		if allocated {
			since = AssignedAt(r)
		}
		uses = slices.DeleteFunc(uses, func(u hosts.Use) bool { return !u.View.OfNode && mayBeKnown(u, shown, owners) })
		for _, o := range owners {
			if o.Pod != nil {
				uses = withoutOwn(uses, o)
				since = since.Later(o.Pod.Created)
			}
		}
		if len(uses) == 0 || len(uses)+len(owners) < 2 {
			return
		}
		uses = slices.DeleteFunc(uses, func(u hosts.Use) bool { return !st.Views.Proves(u.View, since.Std(), "who has "+a.String()) })
		if len(uses) > 0 && len(uses)+len(owners) > 1 {
			st.seconds[a] = uses
		}
	})
}

// mayBeKnown reports whether a use on a machine that is not a node may be the same as the use in
// another view or by a pod, because the machine may be a node under another name.
func mayBeKnown(u hosts.Use, shown []hosts.Use, owners []LiveUse) bool {
	return u.Namespace.PodUID == "" ||
		slices.ContainsFunc(owners, func(o LiveUse) bool { return o.Pod != nil && o.Pod.UID() == u.Namespace.PodUID }) ||
		slices.ContainsFunc(shown, func(o hosts.Use) bool { return o.View != u.View && o.Namespace.PodUID == u.Namespace.PodUID })
}

// withoutOwn removes the pod's own namespace from uses: the one with its UID or, if that is not
// known, any namespace on its node.
func withoutOwn(uses []hosts.Use, o LiveUse) []hosts.Use {
	i := slices.IndexFunc(uses, func(u hosts.Use) bool {
		return u.View.Node == o.Node && u.Namespace.PodUID != "" && u.Namespace.PodUID == o.Pod.UID()
	})
	if i < 0 {
		i = slices.IndexFunc(uses, func(u hosts.Use) bool { return u.View.Node == o.Node })
	}
	if i < 0 {
		return uses
	}
	return slices.Delete(uses, i, i+1)
}
