package whereabouts

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Verdicts are what a snapshot's records of Whereabouts prove. They are made once and never
// changed.
type Verdicts struct {
	*state.State
	// SecondaryPools are the pools, in order, and Allocations theirs.
	SecondaryPools []*Pool
	Allocations    []*Allocation
	// reserved has the reservations that some allocation explains.
	reserved map[blocks.Key]bool
	// named has the pods' addresses on networks, in order.
	named []naming
	// recorded has the allocations of each address.
	recorded map[netip.Addr][]*Allocation
	// byInterface has the addresses that one pod has on one interface of a pool.
	byInterface map[claim][]*Allocation
	// machines are those of [Verdicts.AllMachines].
	machines []string
}

// Allocation is an address that a pool records, with the verdict on it.
type Allocation struct {
	*blocks.WhereaboutsAllocation
	Pool *Pool
	// Pod is the pod that is recorded; nil if it does not exist, or none is.
	Pod *blocks.Workload
	// Reservation is the one of the address; nil if there is none, or its name is not known.
	Reservation *blocks.WhereaboutsReservation
	Status      Status
	// Why is the evidence for the status.
	Why string
}

// Status says how an allocation stands to the pods.
type Status int8

// The statuses of an allocation.
const (
	// PossiblyInUse: something has the address, or may have it.
	PossiblyInUse Status = iota
	// Stranded: the pod that is recorded does not exist, and no other names the address.
	Stranded
	// Stale: the pod exists and has given the address up.
	Stale
	// Ownerless: no pod is recorded, so that no one can look the owner up.
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

// Of returns what the records of a state prove, which is found once.
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

// Recorded returns the allocations of an address, in order of their pools.
func (v *Verdicts) Recorded(a netip.Addr) []*Allocation { return v.recorded[a] }

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

func (v *Verdicts) reservation(key blocks.Key) *blocks.WhereaboutsReservation {
	all := v.WhereaboutsReservations
	i, found := slices.BinarySearchFunc(all, key, func(r blocks.WhereaboutsReservation, k blocks.Key) int { return r.Key().Compare(k) })
	if !found {
		return nil
	}
	return &all[i]
}

// user returns a pod that names an address anywhere, one that has not ended if there is any;
// nil if none does. The sandbox of one that has ended may still be there. One that names it on
// networks of another IPAM alone does not count. That a network has
// another name rules nothing out: a name that is changed holds for pods to come.
func (v *Verdicts) user(a netip.Addr) (ended *blocks.Workload) {
	for _, w := range v.Users(a) {
		on := 0
		other := 0
		for _, x := range w.Extras().Attached {
			if x.Addr != a {
				continue
			}
			on++
			if n := v.attachment(w, x.Network); n != nil && n.OtherIPAM {
				other++
			}
		}
		switch {
		case on > 0 && other == on:
		case !w.Finished():
			return w
		case ended == nil:
			ended = w
		}
	}
	return ended
}

// names says that a pod names an address.
func names(w *blocks.Workload) string {
	if w.Finished() {
		return ", which has ended, names it, and its sandbox may still be there"
	}
	return " names it"
}

// evaluate says how an allocation stands.
func (v *Verdicts) evaluate(a *Allocation) (Status, string) {
	if a.WhereaboutsOwner.Pod == (blocks.Key{}) {
		return Ownerless, "no pod is recorded for it"
	}
	w := a.Pod
	if a.Named() {
		return PossiblyInUse, "pod " + w.FullName() + " names it"
	}
	if other := v.user(a.Addr); other != nil {
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
		// Without the interface it may be that of another one, and the sandbox may still have
		// what the network status no longer names.
		if other != a && a.Interface != "" && !v.showsSandbox(a, w) && slices.ContainsFunc(w.Extras().Attached, func(x blocks.AttachedAddress) bool { return x.Addr == other.Addr }) {
			return Stale, fmt.Sprintf("pod %s has %s of the pool on that interface", w.FullName(), other.Addr)
		}
	}
	if now, replaced := v.replacedSandbox(a, w); replaced {
		return Stale, fmt.Sprintf("pod %s does not name it, and runs in sandbox %s, no longer in %s", w.FullName(), now, a.ContainerID)
	}
	return PossiblyInUse, "pod " + w.FullName() + " exists, and no host view shows that the sandbox which had the address is gone"
}

// Settled reports whether what a pod's network status does not name is not the pod's: it
// runs, is not being deleted, and its network status is there and could be parsed.
func Settled(w *blocks.Workload) bool {
	return w.Phase == "Running" && w.Deleting.IsZero() && w.Extras().NetworkStatus && w.Extras().Unreadable == ""
}

// unsettled says why a pod may have any address that is recorded for it.
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

// showsSandbox reports whether a view of the pod's node shows the sandbox that an
// allocation names.
func (v *Verdicts) showsSandbox(a *Allocation, w *blocks.Workload) bool {
	view := v.Views.Of(w.Node)
	return view != nil && a.ContainerID != "" &&
		slices.ContainsFunc(view.Namespaces, func(ns blocks.HostNamespace) bool { return ns.Sandbox == a.ContainerID })
}

// replacedSandbox reports whether a view of the pod's own node shows the pod in another
// sandbox than the one that an allocation names, and that one in none. The view is newer
// than the pod, of all its namespaces, and proven to be the node's.
func (v *Verdicts) replacedSandbox(a *Allocation, w *blocks.Workload) (now string, replaced bool) {
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
