package audit

import (
	"net/netip"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// freeUse is an address in use that the datastore calls free.
type freeUse struct {
	use  hostUse
	pool *Pool
	// block is the block that calls it free; nil where there is none.
	block *Block
}

// findFreeUses finds the addresses in use that no block records: free ones of a
// block, and those of an enabled pool that lie in no block.
func (st *State) findFreeUses() {
	st.eachHostUse(func(a netip.Addr, uses []hostUse) {
		if !slices.ContainsFunc(uses, hostUse.owner) || st.reserved.Contains(a) {
			return
		}
		if _, allocated := st.Allocation(a); allocated {
			return // a cooling one, too, which is not handed out yet
		}
		pool, b := st.PoolOf(ipPrefix(a)), st.coveringBlock(a)
		switch {
		case pool == nil || !pool.Allows(blocks.UseWorkload) && !pool.Allows(blocks.UseTunnel):
			return
		case b == nil && st.enabledPool(a) == nil:
			return
		case b != nil && b.Owner.Kind == blocks.VirtualOwner:
			return
		}
		since := time.Time{}
		if b != nil {
			since, _ = b.LastWrite()
		}
		for _, u := range uses {
			if u.owner() && st.proves(u.k, since, "that "+a.String()+" is free") {
				st.kernels.freeUses = append(st.kernels.freeUses, freeUse{u, pool, b})
			}
		}
	})
}

// heldBy returns the uses of an allocated address that views prove.
func (st *State) heldBy(r AllocationRef) (out []hostUse) {
	since := assignedAt(r)
	for _, u := range st.usesOfHost(r.Addr()) {
		if st.newEnough(u.k, since) {
			out = append(out, u)
		}
	}
	return out
}

// countOldLeaks notes the views that show a leaked address in use and are older
// than the allocation.
func (st *State) countOldLeaks() {
	st.eachHostUse(func(a netip.Addr, uses []hostUse) {
		r, allocated := st.Allocation(a)
		if !allocated || len(st.Users(a)) > 0 || r.Attributes() == nil {
			return
		}
		for _, u := range uses {
			if u.k.useless == "" && !st.newEnough(u.k, assignedAt(r)) && !st.Judge(r).Owned {
				st.proves(u.k, assignedAt(r), "the allocation of "+a.String())
			}
		}
	})
}

// findSecondOwners finds the addresses that namespaces have besides the live pods
// that claim them, and those that several namespaces have. Nothing is said of the
// addresses of virtual machines, which two pods hold while the machine moves, nor
// of addresses that are free: each use of one is ip/host-in-use.
func (st *State) findSecondOwners() {
	st.kernels.seconds = map[netip.Addr][]hostUse{}
	if _, missing := st.Missing(blocks.Blocks); missing {
		return
	}
	st.eachHostUse(func(a netip.Addr, shown []hostUse) {
		uses := slices.DeleteFunc(slices.Clone(shown), func(u hostUse) bool { return !u.owner() })
		if len(uses) == 0 {
			return
		}
		owners := certain(st.liveUses(a, st.namedBy(a)))
		pool := st.PoolOf(ipPrefix(a))
		r, allocated := st.Allocation(a)
		switch {
		case pool == nil || !pool.Allows(blocks.UseWorkload) && !pool.Allows(blocks.UseTunnel):
			return
		case !allocated && len(owners) == 0:
			return
		case allocated && (r.Attributes() == nil || r.Attributes().VM):
			return
		}
		since := time.Time{}
		if allocated {
			since = assignedAt(r)
		}
		uses = slices.DeleteFunc(uses, func(u hostUse) bool { return !u.k.node && mayBeKnown(u, shown, owners) })
		for _, o := range owners {
			if o.pod != nil {
				uses = withoutOwn(uses, o)
				if o.pod.Created.After(since) {
					since = o.pod.Created
				}
			}
		}
		if len(uses) == 0 || len(uses)+len(owners) < 2 {
			return
		}
		uses = slices.DeleteFunc(uses, func(u hostUse) bool { return !st.proves(u.k, since, "who has "+a.String()) })
		if len(uses) > 0 && len(uses)+len(owners) > 1 {
			st.kernels.seconds[a] = uses
		}
	})
}

// mayBeKnown tells whether what a machine that is no node shows in use may be what
// another view or a pod shows of it: the machine may be a node that the view names
// otherwise.
func mayBeKnown(u hostUse, shown []hostUse, owners []liveUse) bool {
	return u.ns.PodUID == "" ||
		slices.ContainsFunc(owners, func(o liveUse) bool { return o.pod != nil && o.pod.UID == u.ns.PodUID }) ||
		slices.ContainsFunc(shown, func(o hostUse) bool { return o.k != u.k && o.ns.PodUID == u.ns.PodUID })
}

// withoutOwn leaves the namespace of a pod itself out: the one with its UID or,
// where that is not known, any one of its node.
func withoutOwn(uses []hostUse, o liveUse) []hostUse {
	i := slices.IndexFunc(uses, func(u hostUse) bool {
		return u.k.Node == o.node && u.ns.PodUID != "" && u.ns.PodUID == o.pod.UID
	})
	if i < 0 {
		i = slices.IndexFunc(uses, func(u hostUse) bool { return u.k.Node == o.node })
	}
	if i < 0 {
		return uses
	}
	return slices.Delete(uses, i, i+1)
}

// namedBy returns the pods that name an address.
func (st *State) namedBy(a netip.Addr) []use {
	i, _ := slices.BinarySearchFunc(st.uses, a, func(u use, a netip.Addr) int { return u.addr.Compare(a) })
	j := i
	for j < len(st.uses) && st.uses[j].addr == a {
		j++
	}
	return st.uses[i:j]
}
