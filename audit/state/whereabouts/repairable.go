package whereabouts

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

// ReleaseBar explains why an allocation must not be removed from its pool, together with
// its reservation. It considers records and pods; [Verdicts.HostEvidence] considers the
// nodes' kernels.
func (v *Verdicts) ReleaseBar(a *Allocation) state.Bar {
	switch {
	case a.Status == PossiblyInUse:
		return state.Bar{Code: state.RetainInUse, Reason: a.Why}
	case a.Status == Ownerless:
		return state.Because(state.RetainUnknownOwner, "no pod is recorded for it (podref), so its owner cannot be looked up")
	case a.Pod != nil && a.ContainerID != "" && a.Pod.ContainerID == a.ContainerID:
		return state.Because(state.RetainInUse, "it is recorded for the sandbox that pod %s runs in", a.Pod.FullName())
	case a.ContainerID == "":
		return state.Because(state.RetainUnpinned, "the pool records no container for it, so a later write could not check that it is still the same allocation")
	case v.unread(blocks.WhereaboutsPools, a.Pool.FullName()):
		return state.Because(state.RetainNotRead, "its pool %s could not be read completely", a.Pool.FullName())
	case !a.Pool.Network.Known:
		return state.Because(state.RetainNotRead, "no network attachment that assigns from pool %s was read, so neither the network nor the address's reservation is known", a.Pool.FullName())
	case v.unread(blocks.WhereaboutsReservations, a.ReservationKey().String()):
		return state.Because(state.RetainNotRead, "its reservation %s could not be read", a.ReservationKey())
	}
	for _, other := range v.recorded[a.Addr] {
		switch {
		case other == a:
		case other.Pool == a.Pool:
			return state.Because(state.RetainConflict, "its pool records it twice")
		case a.Reservation != nil && other.Reservation == a.Reservation:
			return state.Because(state.RetainConflict, "pool %s of the same network records it, too, and both share one reservation", other.Pool.FullName())
		}
	}
	for _, other := range v.byInterface[claim{pool: a.Pool, pod: a.WhereaboutsOwner.Pod, iface: a.Interface}] {
		if a.Status == Stale && other != a && other.ContainerID == a.ContainerID {
			return state.Because(state.RetainInUse, "it is recorded for the same sandbox as %s", other.Addr)
		}
	}
	if r := a.Reservation; r != nil && !sameOwner(r.WhereaboutsOwner, a.WhereaboutsOwner) {
		return state.Because(state.RetainConflict, "its reservation %s belongs to another owner: pod %s, container %s", r.Key(), cmp.Or(r.Pod.String(), "none"), cmp.Or(r.ContainerID, "none"))
	}
	return state.Bar{}
}

// sameOwner reports whether a reservation belongs to the pod that the pool records. Older
// CRDs drop the pod of a reservation; the container IDs are compared then.
func sameOwner(r, a blocks.WhereaboutsOwner) bool {
	if r.Pod != (blocks.Key{}) {
		return r.Pod == a.Pod
	}
	return r.ContainerID != "" && r.ContainerID == a.ContainerID
}

// ReservationKey returns the name of the reservation for the address, whether or not it
// exists.
func (a *Allocation) ReservationKey() blocks.Key {
	return blocks.Key{Namespace: a.Pool.Namespace, Name: blocks.ReservationName(a.Pool.Network.Name, a.Addr)}
}

func (v *Verdicts) unread(r blocks.Resource, name string) bool {
	return slices.ContainsFunc(v.Unreadable(r), func(g blocks.Gap) bool { return g.Name == name })
}

// DeleteBar explains why a reservation without an allocation must not be deleted. It
// considers records and pods.
func (v *Verdicts) DeleteBar(l *LoneReservation) state.Bar {
	unread := v.Unreadable(blocks.WhereaboutsPools)
	switch {
	case len(unread) > 0:
		return state.Because(state.RetainNotRead, "pool %s could not be read completely, and may record its address", unread[0].Name)
	case !l.Addr.IsValid():
		return state.Because(state.RetainNotRead, "its name shows neither the address nor the network that it reserves")
	case !l.Network.Known:
		return state.Because(state.RetainNotRead, "no network attachment of its network that assigns %s was read, so the use of the reservation is unknown", l.Addr)
	case l.User != nil:
		return state.Because(state.RetainInUse, "pod %s names %s", l.User.FullName(), l.Addr)
	case l.Reason != "":
		return state.Bar{Code: state.RetainInUse, Reason: l.Reason}
	case l.WhereaboutsOwner.Pod == (blocks.Key{}):
		return state.Because(state.RetainUnknownOwner, "it names no pod (podref), so its owner cannot be looked up")
	case l.Pod != nil:
		return state.Because(state.RetainInUse, "pod %s exists, and nothing that was read shows that it has given %s up", l.Pod.FullName(), l.Addr)
	}
	if others := v.RecordedOn(l.Network, l.Addr); len(others) > 0 {
		return state.Because(state.RetainConflict, "pool %s records %s for another pod", others[0].Pool.FullName(), l.Addr)
	}
	return state.Bar{}
}

// Restoration is a missing pool entry for a reservation in use.
type Restoration struct {
	Pool  *Pool
	Owner blocks.WhereaboutsOwner
}

// Restoration returns the pool entry to restore for a reservation whose pod names the address, or
// why it must not be restored. The entry equals the one that Whereabouts wrote, so that Whereabouts
// finds it by sandbox and interface when the pod ends (pkg/allocate, DeallocateIP).
func (v *Verdicts) Restoration(l *LoneReservation) (Restoration, state.Bar) {
	w := l.User
	if b := v.restoreBar(l); b.Code != "" {
		return Restoration{}, b
	}
	out := Restoration{Owner: l.WhereaboutsOwner}
	out.Owner.ContainerID = cmp.Or(w.ContainerID, l.ContainerID)
	switch {
	case out.Owner.ContainerID == "":
		return out, state.Because(state.RetainUnpinned, "the sandbox of pod %s, by which Whereabouts releases the address, is not known: neither the reservation nor the annotation cni.projectcalico.org/containerID names it", w.FullName())
	case l.ContainerID != "" && l.ContainerID != out.Owner.ContainerID:
		return out, state.Because(state.RetainConflict, "the reservation names container %s, but pod %s runs in %s", l.ContainerID, w.FullName(), out.Owner.ContainerID)
	case l.Interface == "":
		return out, state.Because(state.RetainUnpinned, "the reservation names no interface, by which the address is released")
	}
	for _, p := range v.SecondaryPools {
		if !p.Network.Known || p.Namespace != l.Namespace || p.Network.Name != l.Network.Name || !p.Range.Masked().Contains(l.Addr) || p.Node != "" && p.Node != w.Node {
			continue
		}
		if out.Pool != nil {
			return out, state.Because(state.RetainConflict, "both pool %s and pool %s may be the one that lacks it", out.Pool.FullName(), p.FullName())
		}
		out.Pool = p
	}
	if out.Pool == nil {
		return out, state.Because(state.RetainNotRead, "no pool of its network with %s in its range was read", l.Addr)
	}
	if !out.Pool.Stores(l.Addr) {
		return out, state.Because(state.RetainConflict, "Whereabouts cannot record %s in pool %s: it is before %s, or its offset does not fit in 63 bits", l.Addr, out.Pool.FullName(), out.Pool.Range.Addr())
	}
	if has := v.byInterface[claim{pool: out.Pool, pod: l.WhereaboutsOwner.Pod, iface: l.Interface}]; len(has) > 0 {
		return out, state.Because(state.RetainConflict, "pool %s records %s for that interface of the pod", out.Pool.FullName(), has[0].Addr)
	}
	return out, state.Bar{}
}

// restoreBar explains why the pod of a reservation may not be the user of the address.
func (v *Verdicts) restoreBar(l *LoneReservation) state.Bar {
	unread, w := v.Unreadable(blocks.WhereaboutsPools), l.User
	switch {
	case len(unread) > 0:
		return state.Because(state.RetainNotRead, "pool %s could not be read completely, and may record its address", unread[0].Name)
	case l.WhereaboutsOwner.Pod == (blocks.Key{}):
		return state.Because(state.RetainUnknownOwner, "it names no pod (podref), so it is not known whether it belongs to pod %s", w.FullName())
	case l.Pod == nil || l.Pod.Key() != w.Key():
		return state.Because(state.RetainConflict, "it belongs to pod %s, but pod %s names %s", l.WhereaboutsOwner.Pod, w.FullName(), l.Addr)
	case !Settled(w):
		return state.Because(state.RetainHeals, "pod %s %s", w.FullName(), unsettled(w))
	case w.UID() == "":
		return state.Because(state.RetainUnpinned, "pod %s was read without UID", w.FullName())
	}
	for _, other := range v.UsersOn(l.Network, l.Addr) {
		if other != w && !other.Finished() {
			return state.Because(state.RetainConflict, "pods %s and %s both name %s", w.FullName(), other.FullName(), l.Addr)
		}
	}
	if others := v.RecordedOn(l.Network, l.Addr); len(others) > 0 {
		return state.Because(state.RetainConflict, "pool %s records %s for pod %s", others[0].Pool.FullName(), l.Addr, others[0].WhereaboutsOwner.Pod)
	}
	return state.Bar{}
}

// Machines returns the nodes on which the sandbox of an allocation may have run. If the
// pool is a node's slice, that is the node. Otherwise it is every node: Whereabouts records
// none, and a pod may have been recreated under its name elsewhere. Windows nodes have no
// secondary networks.
func (v *Verdicts) Machines(a *Allocation) blocks.Names {
	if a.Pool.Node != "" {
		return []string{a.Pool.Node}
	}
	return v.AllMachines()
}

// Unused reports whether each of the nodes is proven not to use an address of a pod any
// more: by a host view, or because its machine is off.
func (v *Verdicts) Unused(a netip.Addr, o blocks.WhereaboutsOwner, nodes []string, since time.Time) bool {
	if _, used := v.ShownInUse(a, o, since); used || len(nodes) == 0 {
		return false
	}
	return !slices.ContainsFunc(nodes, func(node string) bool {
		off, _ := v.MachineOff(node)
		return !off && v.HostEvidence(node, o, since).Verdict != hosts.ShowsFree
	})
}

// AllMachines returns, sorted, all nodes that may run pods with secondary networks. Deleted
// nodes are included as long as anything refers to them: a Calico record, a pod, a slice or
// a host view. The caller must not change the slice.
func (v *Verdicts) AllMachines() blocks.Names { return v.machines }

func (v *Verdicts) indexMachines() {
	all := map[string]bool{"": true}
	add := func(node string) {
		if !all[node] {
			all[node] = true
			if h := v.NodeState(node); h == nil || h.Node == nil || !h.Node.Windows {
				v.machines = append(v.machines, node)
			}
		}
	}
	for _, h := range v.NodeStates {
		add(h.Name)
	}
	for i := range v.Affinities {
		add(v.Affinities[i].Owner.Node())
	}
	v.EachAllocation(func(_ state.AllocationRef, node string) { add(node) })
	for i := range v.Workloads {
		add(v.Workloads[i].Node)
	}
	for i := range v.NodeSlicePools {
		for _, s := range v.NodeSlicePools[i].Slices {
			add(s.Node)
		}
	}
	for i := range v.Hosts.Views {
		add(v.Hosts.Views[i].Node)
	}
	slices.Sort(v.machines)
}

// Unanswered returns the unreachable nodes that may still run a sandbox and thus prevent the
// release of an address.
func (v *Verdicts) Unanswered() blocks.Names {
	asked := map[string]bool{}
	for _, a := range v.Allocations {
		if v.ReleaseBar(a).Code == "" {
			for _, node := range v.Machines(a) {
				asked[node] = true
			}
		}
	}
	lone := v.Lone()
	if slices.ContainsFunc(lone, func(l LoneReservation) bool { return v.DeleteBar(&l).Code == "" }) {
		for _, node := range v.machines {
			asked[node] = true
		}
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(asked)), func(node string) bool { return !v.MachineMayRun(node) })
}

// ShownInUse returns the evidence of any host view, regardless of its age and machine, that
// shows an address or the sandbox that had it; false if there is none.
func (v *Verdicts) ShownInUse(a netip.Addr, o blocks.WhereaboutsOwner, since time.Time) (hosts.Evidence, bool) {
	if e := v.Views.Evidence(a, &blocks.Attributes{}, "", since); e.Verdict == hosts.ShowsInUse {
		return e, true
	}
	if e := v.Views.SandboxEvidence(o.ContainerID, since); e.Verdict == hosts.ShowsInUse {
		return e, true
	}
	return hosts.Evidence{}, false
}

// HostEvidence returns what the views of one node prove about a pod's address, assigned before
// since, that no view shows in use. A namespace of a deleted pod without a known sandbox may belong
// to that pod, on an interface that the kernel does not show; the evidence is then inconclusive.
func (v *Verdicts) HostEvidence(node string, o blocks.WhereaboutsOwner, since time.Time) hosts.Evidence {
	e := v.Views.Evidence(netip.Addr{}, &blocks.Attributes{Namespace: o.Pod.Namespace, Pod: o.Pod.Name}, node, since)
	view := v.Views.Of(node)
	if e.Verdict != hosts.ShowsFree || view == nil {
		return e
	}
	for i := range view.Namespaces {
		ns := &view.Namespaces[i]
		uid := blocks.PinOf(ns.PodUID, "")
		if ns.PodUID != "" && ns.Sandbox == "" && !slices.ContainsFunc(v.Workloads, func(w *blocks.Workload) bool { return w.SameUID(uid) }) {
			return hosts.Evidence{Node: node, Reason: fmt.Sprintf("the host view of %s shows network namespace %s of a pod that does not exist, and not its sandbox", node, ns.ID)}
		}
	}
	return e
}
