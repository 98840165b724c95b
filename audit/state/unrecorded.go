package state

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
)

// UnrecordedIP is an address of an enabled pool that live pods or tunnels use and no
// block records, and whether it may be recorded for its one user.
type UnrecordedIP struct {
	Addr  netip.Addr
	Pool  *Pool
	Users []LiveUse
	// Block is the block that covers the address; nil if none exists, and Slot is then
	// the CIDR of the block to be claimed, for the node Host.
	Block *Block
	Slot  netip.Prefix
	Host  string
	// Beside are all unrecorded addresses of the Slot, this one included, which are
	// recorded with the block that is claimed: it would hand them out.
	Beside []*UnrecordedIP
	// Handle is the handle that Calico's CNI plugin would release the address by.
	Handle string
	// Bar is why it may not be recorded; none if it may.
	Bar
}

// EachUnrecorded calls fn for each address of an enabled pool that is in use and that no
// block records, in order.
func (st *State) EachUnrecorded(fn func(u UnrecordedIP)) {
	st.eachUse(func(a netip.Addr, pods []use) {
		if st.recorded(a, pods) { // nearly all are, whatever the number of pools
			return
		}
		users, pool := st.LiveUses(a, pods), st.EnabledPool(a)
		if len(users) > 0 && pool != nil {
			fn(UnrecordedIP{Addr: a, Pool: pool, Users: users, Block: st.CoveringBlock(a)})
		}
	})
}

// Recordable returns the unrecorded addresses, in order, with whether they may be recorded:
// each for one live pod that names its sandbox, in a block that says nothing against it.
// Where no block exists, the node that has the one affinity to the slot claims it, else the
// one whose pods use it, if all addresses of the slot can be recorded with the block: what
// it does not record it would hand out.
func (st *State) Recordable() (all []*UnrecordedIP) {
	users, slots := map[netip.Prefix]map[string]int{}, map[netip.Prefix][]*UnrecordedIP{}
	st.EachUnrecorded(func(u UnrecordedIP) {
		all = append(all, &u)
		if u.Block != nil {
			return
		}
		u.Slot = netip.PrefixFrom(u.Addr, u.Pool.BlockSize).Masked()
		if slots[u.Slot] = append(slots[u.Slot], &u); users[u.Slot] == nil {
			users[u.Slot] = map[string]int{}
		}
		for _, x := range u.Users {
			users[u.Slot][x.Node]++
		}
	})
	if len(all) == 0 {
		return nil
	}
	networks := st.networks()
	for _, u := range all {
		st.recordableFor(u, networks)
		if u.Block != nil {
			st.recordableIn(u)
		} else {
			st.claimableFor(u, users[u.Slot])
		}
	}
	// A block that is claimed hands out what it does not record, lowest first.
	for _, beside := range slots {
		blocking := slices.IndexFunc(beside, func(u *UnrecordedIP) bool { return u.Reason != "" })
		for _, u := range beside {
			if blocking < 0 {
				u.Beside = beside
			} else {
				u.retain(RetainConflict, "its block is not claimed, for it would hand out %s, which cannot be recorded: %s", beside[blocking].Addr, beside[blocking].Reason)
			}
		}
	}
	return all
}

// recordableFor holds an address for what is known of its users.
func (st *State) recordableFor(u *UnrecordedIP, networks map[string][]string) {
	w := u.Users[0].Pod
	switch {
	case len(u.Users) > 1:
		var who []string
		for _, x := range u.Users {
			who = append(who, x.String())
		}
		u.retain(RetainConflict, "%s use it: one of them has to go first", strings.Join(who, " and "))
	case w == nil:
		u.retain(RetainSpecial, "it is %s: restart calico-node there, which then assigns itself another", u.Users[0])
	case w.Extras().VM != "":
		u.retain(RetainSpecial, "it is that of virtual machine %s, whose handle is not the pod's", w.Extras().VM)
	case w.Extras().Unreadable != "":
		u.retain(RetainNotRead, "%s of pod %s cannot be parsed, and may name another address", w.Extras().Unreadable, w.FullName())
	case w.ContainerID == "":
		u.retain(RetainUnpinned, "pod %s has no annotation cni.projectcalico.org/containerID, so that its CNI plugin would not find the address again to release it", w.FullName())
	case len(w.AnnotationIPs) > 0 && !slices.Contains(w.AnnotationIPs, u.Addr):
		u.retain(RetainConflict, "Calico's annotation of pod %s names other addresses", w.FullName())
	case w.Phase == "Pending" || !w.Deleting.IsZero():
		u.retain(RetainInUse, "pod %s is starting or ending", w.FullName())
	case !st.PastGrace(w.Created):
		u.retain(RetainYoung, "pod %s was created less than %s ago, at %s", w.FullName(), phrase.Duration(st.Grace), phrase.Time(w.Created))
		u.Due = st.Due(w.Created)
	case st.Vanished(w.Node) || st.UnreadableNode(w.Node):
		u.retain(RetainConflict, "node %q of pod %s does not exist, or could not be read", w.Node, w.FullName())
	}
	if u.Reason != "" {
		return
	}
	network := DefaultNetwork
	for _, of := range []string{w.Node, ""} {
		if names := networks[of]; len(names) > 1 {
			u.retain(RetainConflict, "handles of other pods begin with the names of several CNI networks: %s", phrase.List(names))
		} else if len(names) == 1 {
			network = names[0]
			break
		}
	}
	u.Handle = network + "." + w.ContainerID
	switch h, refs := st.Handle(u.Handle), st.HandleRefs(u.Handle); {
	case h != nil && h.SoftDeleted:
		u.retain(RetainMarked, "its handle %s is marked deleted", h.ID)
	case h == nil && len(refs) > 0:
		u.retain(RetainConflict, "its handle %s does not exist, and %s is recorded under it: --missing-handles first", u.Handle, refs[0].Addr())
	}
}

// recordableIn holds an address for its block.
func (st *State) recordableIn(u *UnrecordedIP) {
	b := u.Block
	ordinal, ok := b.Ordinal(u.Addr)
	switch {
	case st.BlockMayCover(netip.PrefixFrom(u.Addr, u.Addr.BitLen())):
		u.retain(RetainNotRead, "a block that cannot be read may record it")
	case st.BlockObjects(b.CIDR) > 1:
		u.retain(RetainConflict, "there are several block objects of %s", b.CIDR)
	case b.SoftDeleted:
		u.retain(RetainMarked, "its block %s is marked deleted", b.CIDR)
	case len(b.Faults) > 0:
		u.retain(RetainCorrupt, "its block %s is corrupt: %s", b.CIDR, b.Faults[0])
	case b.Owner != (blocks.Owner{}) && b.Owner.Kind != blocks.HostOwner:
		u.retain(RetainSpecial, "its block %s belongs to %s", b.CIDR, b.Owner)
	case !ok || b.Ordinals[ordinal] != blocks.Free:
		u.retain(RetainSpecial, "its block %s lets it cool down", b.CIDR)
	}
}

// claimableFor holds an address whose block does not exist for what stands in its slot,
// and settles who claims it.
func (st *State) claimableFor(u *UnrecordedIP, users map[string]int) {
	if st.BlockMayCover(u.Slot) {
		u.retain(RetainNotRead, "a block that cannot be read may record it")
	}
	if others := st.BlocksAt(u.Slot); len(others) > 0 {
		u.retain(RetainConflict, "block %s overlaps %s, where its block would be", others[0].CIDR, u.Slot)
	}
	var owners []string
	for _, a := range st.AffinitiesOf(u.Slot) {
		if a.SoftDeleted || a.Owner.Node() == "" {
			u.retain(RetainMarked, "affinity %s is marked deleted, or no node's", a.Name)
		}
		owners = append(owners, a.Owner.Node())
	}
	for node := range users {
		if u.Host == "" || cmp.Or(cmp.Compare(users[node], users[u.Host]), cmp.Compare(u.Host, node)) > 0 {
			u.Host = node
		}
	}
	switch {
	case len(owners) > 1:
		u.retain(RetainConflict, "%s have affinities to %s, which does not exist", phrase.List(owners), u.Slot)
	case len(owners) == 1:
		u.Host = owners[0]
	}
	if len(users) > 1 {
		u.retain(RetainConflict, "pods on %s use addresses of %s, which has no block: claimed for one of them, it would draw the traffic of the others", phrase.List(slices.Sorted(maps.Keys(users))), u.Slot)
	}
	if h := st.NodeState(u.Host); h != nil && h.Node != nil && h.Node.Windows {
		u.retain(RetainSpecial, "its block would be claimed for %s, a Windows node, which keeps addresses of each block back", u.Host)
	}
	if st.Vanished(u.Host) || st.UnreadableNode(u.Host) {
		u.retain(RetainConflict, "node %q, which has an affinity to %s, does not exist (--dead-nodes) or could not be read", u.Host, u.Slot)
	}
}

// DefaultNetwork is the name of the CNI network in Calico's own manifests.
const DefaultNetwork = "k8s-pod-network"

// networks returns the names of CNI networks by which the handles of pods begin
// (cni-plugin internal/pkg/utils, GetHandleID), by node, and under "" those of all.
func (st *State) networks() map[string][]string {
	out := map[string][]string{}
	st.EachAllocation(func(r AllocationRef, _ string) {
		attr := r.Attributes()
		if attr == nil {
			return
		}
		w := st.Pod(attr.Namespace, attr.Pod)
		if w == nil || w.ContainerID == "" {
			return
		}
		name, ok := strings.CutSuffix(attr.Handle, "."+w.ContainerID)
		for _, of := range []string{w.Node, ""} {
			if ok && name != "" && !slices.Contains(out[of], name) {
				out[of] = append(out[of], name)
			}
		}
	})
	return out
}
