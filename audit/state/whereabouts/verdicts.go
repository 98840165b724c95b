package whereabouts

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Verdicts holds the evaluation of a snapshot's Whereabouts records. It is computed once
// and never changed.
type Verdicts struct {
	*state.State
	// SecondaryPools are the pools, sorted. Allocations are their allocations.
	SecondaryPools []*Pool
	Allocations    []*Allocation
	// reserved holds the reservations with an allocation.
	reserved map[blocks.Key]bool
	// named holds the pods' addresses on networks, by address.
	named []naming
	// recorded indexes the allocations by address.
	recorded map[netip.Addr][]*Allocation
	// byInterface indexes the allocations by pool, pod and interface.
	byInterface map[claim][]*Allocation
	// machines is the result of [Verdicts.AllMachines].
	machines []string
}

// Allocation is an address that a pool records, with its verdict.
type Allocation struct {
	*blocks.WhereaboutsAllocation
	Pool *Pool
	// Pod is the recorded pod; nil if it does not exist or the record names no pod.
	Pod *blocks.Workload
	// Reservation is the reservation of the address; nil if there is none, or its name is
	// unknown.
	Reservation *blocks.WhereaboutsReservation
	// Named is true if the recorded pod names, or may name, the address on the pool's
	// network.
	Named  bool
	Status Status
	// Why explains the status.
	Why string
}

// Subject returns the subject for findings and steps. It includes the pool's name, because
// pools of other networks may record the same address.
func (a *Allocation) Subject() state.Subject {
	node := a.Pool.Node
	if a.Pod != nil {
		node = a.Pod.Node
	}
	s := state.IPSubject(a.Addr, node)
	s.Name = a.Pool.FullName()
	return s
}

// Status classifies an allocation.
type Status int8

const (
	// PossiblyInUse means that a pod has the address, or may have it.
	PossiblyInUse Status = iota
	// Stranded means that the recorded pod does not exist, and no other pod names the address.
	Stranded
	// Stale means that the pod exists, but no longer uses the address.
	Stale
	// Ownerless means that no pod is recorded, so the owner cannot be looked up.
	Ownerless
)

// naming is an address that a pod names on a network.
type naming struct {
	blocks.AttachedAddress
	pod *blocks.Workload
	// attachment is nil if it was not read.
	attachment *blocks.NetworkAttachment
}

type claim struct {
	pool  *Pool
	pod   blocks.Key
	iface string
}

// Of returns the verdicts on a state, computing them on first use.
func Of(st *state.State) *Verdicts { return state.Derived(st, find) }

func find(s *state.State) *Verdicts {
	v := &Verdicts{State: s, reserved: map[blocks.Key]bool{}, recorded: map[netip.Addr][]*Allocation{}, byInterface: map[claim][]*Allocation{}}
	if len(s.WhereaboutsPools)+len(s.WhereaboutsReservations)+len(s.NetworkAttachments) == 0 {
		return v
	}
	v.indexPods()
	v.indexMachines()
	for i := range s.WhereaboutsPools {
		p := v.newPool(&s.WhereaboutsPools[i])
		v.SecondaryPools = append(v.SecondaryPools, p)
		for j := range p.Allocations {
			a := &Allocation{WhereaboutsAllocation: &p.Allocations[j], Pool: p}
			a.Pod = v.podOf(a.WhereaboutsOwner)
			a.Named = a.Pod != nil && slices.Contains(a.Pod.Extras().NetworkIPs, a.Addr) && !v.elsewhere(a.Pod, p.Network, a.Addr)
			v.Allocations = append(v.Allocations, a)
			v.recorded[a.Addr] = append(v.recorded[a.Addr], a)
			of := claim{pool: p, pod: a.WhereaboutsOwner.Pod, iface: a.Interface}
			v.byInterface[of] = append(v.byInterface[of], a)
			if _, made := p.WhereaboutsPool.Network(); made {
				if a.Reservation = v.reservation(a.ReservationKey()); a.Reservation != nil {
					v.reserved[a.ReservationKey()] = true
				}
			}
		}
	}
	for _, a := range v.Allocations {
		a.Status, a.Why = v.evaluate(a)
	}
	return v
}

// WithStatus returns the allocations with a status.
func (v *Verdicts) WithStatus(s Status) []*Allocation {
	return once(slices.DeleteFunc(slices.Clone(v.Allocations), func(a *Allocation) bool { return a.Status != s }))
}

// once removes duplicates: a pool may record an address under several spellings of one
// offset, such as 5 and 05.
func once(all []*Allocation) []*Allocation {
	return slices.CompactFunc(all, func(a, b *Allocation) bool { return a.Pool == b.Pool && a.Addr == b.Addr })
}

// Recorded returns the allocations of an address, by pool.
func (v *Verdicts) Recorded(a netip.Addr) []*Allocation { return v.recorded[a] }

// RecordedOn returns the allocations of an address that may belong to a network.
func (v *Verdicts) RecordedOn(n Network, a netip.Addr) []*Allocation {
	return slices.DeleteFunc(slices.Clone(v.recorded[a]), func(x *Allocation) bool { return !x.Pool.Network.may(n) })
}

func (v *Verdicts) indexPods() {
	for _, w := range v.Workloads {
		for _, a := range w.Extras().Attached {
			v.named = append(v.named, naming{a, w, v.attachment(w, a.Network)})
		}
	}
	slices.SortStableFunc(v.named, func(a, b naming) int { return a.Addr.Compare(b.Addr) })
}

func (v *Verdicts) podOf(o blocks.WhereaboutsOwner) *blocks.Workload {
	return v.Pod(o.Pod.Namespace, o.Pod.Name)
}

// Ended names, in order, the finished pod of each address that a pool records for one. Whereabouts
// frees the addresses of deleted pods only.
func (v *Verdicts) Ended(p *Pool) (out blocks.Names) {
	for _, a := range v.Allocations {
		if a.Pool == p && a.Pod != nil && v.LongFinished(a.Pod) {
			out = append(out, a.Pod.FullName())
		}
	}
	slices.Sort(out)
	return out
}

func (v *Verdicts) reservation(key blocks.Key) *blocks.WhereaboutsReservation {
	all := v.WhereaboutsReservations
	i, found := slices.BinarySearchFunc(all, key, func(r blocks.WhereaboutsReservation, k blocks.Key) int { return r.Key().Compare(k) })
	if !found {
		return nil
	}
	return &all[i]
}

// UsersOn returns the pods that may have an address on a network.
func (v *Verdicts) UsersOn(n Network, a netip.Addr) []*blocks.Workload {
	return slices.DeleteFunc(v.Users(a), func(w *blocks.Workload) bool { return v.elsewhere(w, n, a) })
}

// elsewhere reports whether a pod names an address only on other networks.
func (v *Verdicts) elsewhere(w *blocks.Workload, of Network, a netip.Addr) bool {
	on, other := 0, 0
	for _, x := range w.Extras().Attached {
		if x.Addr != a {
			continue
		}
		on++
		n := v.attachment(w, x.Network)
		_, assigned := rangeOf(naming{x, w, n})
		if n != nil && n.OtherIPAM || assigned && of.Known && n.NetworkName != of.Name {
			other++
		}
	}
	return on > 0 && other == on
}

// user returns a pod that may have an address on a network, preferably one that has not
// finished; nil if there is none. The sandbox of a finished pod may still exist.
func (v *Verdicts) user(n Network, a netip.Addr) *blocks.Workload {
	users := v.UsersOn(n, a)
	if i := slices.IndexFunc(users, func(w *blocks.Workload) bool { return !w.Finished() }); i >= 0 {
		return users[i]
	}
	if len(users) > 0 {
		return users[0]
	}
	return nil
}

// names returns the predicate "names it", with a note if the pod has finished.
func names(w *blocks.Workload) string {
	if w.Finished() {
		return " has ended but still names it, and its sandbox may still exist"
	}
	return " names it"
}

// evaluate returns the status of an allocation and the reason.
func (v *Verdicts) evaluate(a *Allocation) (Status, string) {
	if a.WhereaboutsOwner.Pod == (blocks.Key{}) {
		return Ownerless, "no pod is recorded for it"
	}
	w := a.Pod
	if a.Named {
		return PossiblyInUse, "pod " + w.FullName() + " names it"
	}
	if other := v.user(a.Pool.Network, a.Addr); other != nil {
		return PossiblyInUse, "pod " + other.FullName() + names(other)
	}
	if name, unread := v.UnreadPod(); unread {
		return PossiblyInUse, "pod " + name + " could not be read, and may name it"
	}
	switch {
	case w == nil:
		return Stranded, "pod " + a.WhereaboutsOwner.Pod.String() + " does not exist"
	case !Settled(w):
		return PossiblyInUse, "pod " + w.FullName() + " " + unsettled(w)
	}
	for _, other := range v.byInterface[claim{pool: a.Pool, pod: a.WhereaboutsOwner.Pod, iface: a.Interface}] {
		// If the interface is unknown, the other address may be on another one. The sandbox
		// may also still have an address that the network status no longer names.
		if other != a && a.Interface != "" && !v.showsSandbox(a, w) && slices.ContainsFunc(w.Extras().Attached, func(x blocks.AttachedAddress) bool { return x.Addr == other.Addr }) {
			return Stale, fmt.Sprintf("pod %s has %s of the pool on that interface", w.FullName(), other.Addr)
		}
	}
	if now, replaced := v.replacedSandbox(a, w); replaced {
		return Stale, fmt.Sprintf("pod %s does not name it, and runs in sandbox %s, no longer in %s", w.FullName(), now, a.ContainerID)
	}
	return PossiblyInUse, "pod " + w.FullName() + " exists, and nothing shows that it no longer runs in the sandbox that had the address"
}

// Settled reports whether a pod's network status lists all its addresses: the pod runs, is
// not being deleted, and its network status exists and could be parsed.
func Settled(w *blocks.Workload) bool {
	return w.Phase == "Running" && w.Deleting.IsZero() && w.Extras().NetworkStatus && w.Extras().Unreadable == ""
}

// unsettled explains why a pod may have any address that is recorded for it.
func unsettled(w *blocks.Workload) string {
	switch {
	case w.Phase == "Pending" || !w.Deleting.IsZero():
		return "is starting or ending"
	case w.Extras().Unreadable != "":
		return "has " + w.Extras().Unreadable + ", which cannot be parsed and may name it"
	case !w.Extras().NetworkStatus:
		return "has no network status, and may have it"
	}
	return "is in phase " + w.Phase
}

// showsSandbox reports whether a view of the pod's node shows the allocation's sandbox.
func (v *Verdicts) showsSandbox(a *Allocation, w *blocks.Workload) bool {
	view := v.Views.Of(w.Node)
	return view != nil && a.ContainerID != "" &&
		slices.ContainsFunc(view.Namespaces, func(ns blocks.HostNamespace) bool { return ns.Sandbox == a.ContainerID })
}

// replacedSandbox returns the present sandbox of a pod, and reports whether it differs from
// the allocation's. It is taken from Calico's annotation, or from an authenticated,
// complete view of the pod's node that is newer than the pod. A view that shows the
// allocation's sandbox overrides both.
func (v *Verdicts) replacedSandbox(a *Allocation, w *blocks.Workload) (now string, replaced bool) {
	if w.ContainerID != "" && a.ContainerID != "" && w.ContainerID != a.ContainerID && !v.showsSandbox(a, w) {
		return w.ContainerID, true
	}
	view := v.Views.Of(w.Node)
	if view == nil || view.Stale() || !view.Authenticated || !view.NamespacesComplete || a.ContainerID == "" || view.TakenBefore(w.Created.Std()) {
		return "", false
	}
	for i := range view.Namespaces {
		ns := &view.Namespaces[i]
		if ns.Sandbox == a.ContainerID {
			return "", false
		}
		if ns.Sandbox != "" && ns.PodUID != "" && ns.PodUID == w.UID() {
			now = ns.Sandbox
		}
	}
	return now, now != ""
}
