// Package recordable decides whether an address that a live pod uses may be recorded for it. No
// block records the address, or a block records it for another pod.
package recordable

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/misrecorded"
	"github.com/calico-audit/calico-audit/blocks"
)

// Address is an unrecorded address, with the verdict whether it may be recorded for its
// user.
type Address struct {
	state.UnrecordedIP
	// Replaces is the allocation of the address that names another pod; nil if no block records
	// the address.
	Replaces *state.AllocationRef
	// Slot is the CIDR of the block to claim for node Host, if no block exists.
	Slot netip.Prefix
	Host string
	// Beside are all unrecorded addresses of the Slot, including this one. They are recorded
	// together with the claimed block, because the block could otherwise assign them.
	Beside []*Address
	// Blocking is an address that cannot be recorded, so the Slot's block is not claimed; nil if
	// there is none.
	Blocking *Address
	// Handle is the handle with which Calico's CNI plugin would release the address.
	Handle string
	// Bar is why the address may not be recorded; empty if it may.
	state.Bar
}

// retain sets the reason against recording the address, if it has none yet.
func (u *Address) retain(code state.RetainReason, format string, args ...any) {
	if u.Code == "" {
		u.Bar = state.Because(code, format, args...)
	}
}

// verdicts evaluates a state.
type verdicts struct{ *state.State }

// Of returns the unrecorded addresses of a state, sorted, with their verdicts. An address may be
// recorded for a single live pod with a known sandbox, if its block permits it. If no block exists,
// it is claimed by the node with the only affinity to the slot, else by the node whose pods use the
// slot. All addresses of the slot must be recordable together with the block, because it would
// assign the others again.
func Of(s *state.State) (all []*Address) {
	st := verdicts{s}
	users, slots := map[netip.Prefix]map[string]int{}, map[netip.Prefix][]*Address{}
	st.EachUnrecorded(func(x state.UnrecordedIP) {
		u := &Address{UnrecordedIP: x}
		all = append(all, u)
		if u.Block != nil {
			return
		}
		u.Slot = netip.PrefixFrom(u.Addr, u.Pool.BlockSize).Masked()
		if slots[u.Slot] = append(slots[u.Slot], u); users[u.Slot] == nil {
			users[u.Slot] = map[string]int{}
		}
		for _, x := range u.Users {
			users[u.Slot][x.Node]++
		}
	})
	for _, x := range misrecorded.Of(s) {
		a := x.Addr()
		all = append(all, &Address{Replaces: &x.AllocationRef, UnrecordedIP: state.UnrecordedIP{
			Addr: a, Pool: x.Block.Pool, Users: s.LiveUses(a, s.NamedBy(a)), Block: x.Block,
		}})
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *Address) int { return a.Addr.Compare(b.Addr) })
	networks := st.networks()
	for _, u := range all {
		st.recordableFor(u, networks)
		if u.Block != nil {
			st.recordableIn(u)
		} else {
			st.claimableFor(u, users[u.Slot])
		}
	}
	// A claimed block assigns its unrecorded addresses, the lowest first.
	for _, beside := range slots {
		blocking := slices.IndexFunc(beside, func(u *Address) bool { return u.Reason != "" })
		for _, u := range beside {
			if blocking < 0 {
				u.Beside = beside
			} else {
				u.Blocking = beside[blocking]
				u.retain(state.RetainConflict, "its block is not claimed, because it would assign %s, which cannot be recorded: %s", beside[blocking].Addr, beside[blocking].Reason)
			}
		}
	}
	return all
}

// recordableFor checks the users of an address.
func (st verdicts) recordableFor(u *Address, networks map[string][]string) {
	w := u.Users[0].Pod
	switch {
	case u.OtherIPAM != "":
		u.retain(state.RetainSpecial, "%s", u.OtherIPAM)
	case len(u.Users) > 1:
		var who []string
		for _, x := range u.Users {
			who = append(who, x.String())
		}
		u.retain(state.RetainConflict, "%s use it: one of them must be removed first", strings.Join(who, " and "))
	case w == nil:
		u.retain(state.RetainSpecial, "it is %s: restart calico-node there, which then assigns itself another", u.Users[0])
	case w.Extras().VM != "":
		u.retain(state.RetainSpecial, "it belongs to virtual machine %s, which has another handle than the pod", w.Extras().VM)
	case w.Extras().Unreadable != "":
		u.retain(state.RetainNotRead, "%s of pod %s cannot be parsed, and may name another address", w.Extras().Unreadable, w.FullName())
	case w.ContainerID == "":
		u.retain(state.RetainUnpinned, "pod %s has no annotation cni.projectcalico.org/containerID, so that its CNI plugin would not find the address again to release it", w.FullName())
	case len(w.AnnotationIPs) > 0 && !slices.Contains(w.AnnotationIPs, u.Addr):
		u.retain(state.RetainConflict, "Calico's annotation of pod %s names other addresses", w.FullName())
	case !primary(w, u.Addr):
		u.retain(state.RetainConflict, "the status of pod %s does not name it, so it may be of another network", w.FullName())
	case w.Phase == "Pending" || !w.Deleting.IsZero():
		u.retain(state.RetainInUse, "pod %s is starting or ending", w.FullName())
	case !st.PastGrace(w.Created):
		u.retain(state.RetainYoung, "pod %s was created at %s, within the grace period", w.FullName(), w.Created)
		u.Due = st.Due(w.Created)
	case st.Vanished(w.Node) || st.UnreadableNode(w.Node):
		u.retain(state.RetainConflict, "node %q of pod %s does not exist, or could not be read", w.Node, w.FullName())
	}
	if whole := st.WholeBar([]blocks.Resource{blocks.Blocks, blocks.Pods}, false); whole.Code != "" {
		u.retain(whole.Code, "its handle is not known: %s", whole.Reason) // another block or pod may reveal another network, or use the handle
	}
	if u.Reason != "" {
		return
	}
	network := DefaultNetwork
	for _, of := range []string{w.Node, ""} {
		if names := networks[of]; len(names) > 1 {
			u.retain(state.RetainConflict, "handles of other pods begin with the names of several CNI networks: %s", phrase.List(names))
		} else if len(names) == 1 {
			network = names[0]
			break
		}
	}
	u.Handle = network + "." + w.ContainerID
	switch h, refs := st.Handle(u.Handle), st.HandleRefs(u.Handle); {
	case slices.ContainsFunc(st.Unreadable(blocks.Handles), func(g blocks.Gap) bool { return strings.EqualFold(g.Name, u.Handle) }):
		u.retain(state.RetainNotRead, "its handle %s cannot be read", u.Handle)
	case u.Replaces != nil && strings.EqualFold(u.Replaces.Attributes().Handle, u.Handle):
		u.retain(state.RetainConflict, "its allocation has the handle of the pod's sandbox, and names another pod")
	case h != nil && h.SoftDeleted:
		u.retain(state.RetainMarked, "its handle %s is marked deleted", h.ID)
	case h == nil && len(refs) > 0:
		u.retain(state.RetainConflict, "its handle %s does not exist, and %s is recorded under it: --missing-handles first", u.Handle, refs[0].Addr())
	}
}

// recordableIn checks the block of an address.
func (st verdicts) recordableIn(u *Address) {
	b := u.Block
	ordinal, ok := b.Ordinal(u.Addr)
	switch {
	case st.BlockObjects(b.CIDR) > 1:
		u.retain(state.RetainConflict, "there are several block objects of %s", b.CIDR)
	case b.SoftDeleted:
		u.retain(state.RetainMarked, "its block %s is marked deleted", b.CIDR)
	case len(b.Faults) > 0:
		u.retain(state.RetainCorrupt, "its block %s is corrupt: %s", b.CIDR, b.Faults[0])
	case b.Owner != (blocks.Owner{}) && b.Owner.Kind != blocks.HostOwner:
		u.retain(state.RetainSpecial, "its block %s belongs to %s", b.CIDR, b.Owner)
	case u.Replaces != nil && !pinned(*u.Replaces):
		u.retain(state.RetainUnpinned, "its allocation has no handle or no sequence number, so a later write could not check that it is still the same")
	case u.Replaces == nil && (!ok || b.Ordinals[ordinal] != blocks.Free):
		u.retain(state.RetainSpecial, "it is in cooldown in its block %s", b.CIDR)
	}
}

// pinned reports whether an allocation has a handle and a sequence number.
func pinned(r state.AllocationRef) bool {
	_, known := r.Block.SequenceAt(r.Ordinal)
	return known && r.Attributes().Handle != ""
}

// claimableFor checks the slot of an address without a block, and picks the node that
// claims it.
func (st verdicts) claimableFor(u *Address, users map[string]int) {
	if st.AffinityMayExist(u.Slot) {
		u.retain(state.RetainNotRead, "the affinity of its block may be among those that cannot be read")
	}
	if others := st.BlocksAt(u.Slot); len(others) > 0 {
		u.retain(state.RetainConflict, "block %s overlaps %s, where its block would be", others[0].CIDR, u.Slot)
	}
	var owners blocks.Names
	for _, a := range st.AffinitiesOf(u.Slot) {
		if a.SoftDeleted || a.Owner.Node() == "" {
			u.retain(state.RetainMarked, "affinity %s is marked deleted, or its owner is not a node", a.Name)
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
		u.retain(state.RetainConflict, "%s have affinities to %s, which does not exist", owners, u.Slot)
	case len(owners) == 1:
		u.Host = owners[0]
	}
	if len(users) > 1 {
		u.retain(state.RetainConflict, "pods on %s use addresses of %s, which has no block: if one node claimed it, the traffic of the others would go there", phrase.List(slices.Sorted(maps.Keys(users))), u.Slot)
	}
	if h := st.NodeState(u.Host); h != nil && h.Node != nil && h.Node.Windows {
		u.retain(state.RetainSpecial, "its block would be claimed for %s, a Windows node, which reserves addresses of each block", u.Host)
	}
	if st.Vanished(u.Host) || st.UnreadableNode(u.Host) {
		u.retain(state.RetainConflict, "node %q, which has an affinity to %s, does not exist (--dead-nodes) or could not be read", u.Host, u.Slot)
	}
}

// DefaultNetwork is the name of the CNI network in Calico's own manifests.
const DefaultNetwork = "k8s-pod-network"

// primary reports whether an address belongs to the pod's first network. Calico may also serve
// secondary networks, but their addresses are only in Multus' annotation, and their handles begin
// with other network names.
func primary(w *blocks.Workload, a netip.Addr) bool {
	return slices.Contains(w.StatusIPs, a) || slices.Contains(w.AnnotationIPs, a)
}

// networks returns the CNI network names at the beginning of pods' handles (cni-plugin
// internal/pkg/utils, GetHandleID), by node, and under "" for all nodes.
func (st verdicts) networks() map[string][]string {
	out := map[string][]string{}
	st.EachAllocation(func(r state.AllocationRef, _ string) {
		attr := r.Attributes()
		if attr == nil {
			return
		}
		w := st.Pod(attr.Namespace, attr.Pod)
		if w == nil || w.ContainerID == "" || !primary(w, r.Addr()) {
			return
		}
		name, ok := strings.CutSuffix(attr.Handle, "."+w.ContainerID)
		for _, of := range []string{cmp.Or(w.Node, attr.Node), ""} {
			if ok && name != "" && !slices.Contains(out[of], name) {
				out[of] = append(out[of], name)
			}
		}
	})
	return out
}
