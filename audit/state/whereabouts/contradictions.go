package whereabouts

import (
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Unreserved returns the allocations without a reservation, in pools whose networks require
// one. If the snapshot has no reservations, Unreserved returns nil: Whereabouts recorded
// none, or they were not read.
func (v *Verdicts) Unreserved() (out []*Allocation) {
	if len(v.WhereaboutsReservations) == 0 {
		return nil
	}
	for _, a := range v.Allocations {
		if a.Reservation == nil && a.Pool.overlapping() && (a.Pod == nil || Settled(a.Pod)) {
			out = append(out, a)
		}
	}
	return once(out)
}

// LoneReservation is a reservation without an allocation in a pool.
type LoneReservation struct {
	*blocks.WhereaboutsReservation
	// Network and Addr are parsed from the name; Addr is zero if the name is ambiguous.
	Network Network
	Addr    netip.Addr
	// Pod is the recorded pod; nil if it does not exist or the record names no pod.
	Pod *blocks.Workload
	// User is a live pod that names the address; nil if there is none.
	User *blocks.Workload
	// Reason explains why a pod may hold the address without naming it; empty if there is
	// no such sign.
	Reason string
}

// InFlight reports whether the pod is starting or ending, so that the pool may be written
// next: Whereabouts writes the reservation first in both cases.
func (l *LoneReservation) InFlight() bool {
	return l.Pod != nil && (l.Pod.Phase == "Pending" || !l.Pod.Deleting.IsZero())
}

// Lone returns the reservations without an allocation.
func (v *Verdicts) Lone() (out []LoneReservation) {
	for i := range v.WhereaboutsReservations {
		r := &v.WhereaboutsReservations[i]
		if v.reserved[r.Key()] {
			continue
		}
		l := LoneReservation{WhereaboutsReservation: r, Pod: v.podOf(r.WhereaboutsOwner)}
		l.Network, l.Addr = v.Meaning(r)
		if v.allocated(l) {
			continue
		}
		user := v.user(l.Network, l.Addr)
		name, unread := v.UnreadPod()
		switch {
		case user != nil && user.Extras().Partial != "":
			l.Reason = "pod " + user.FullName() + " names it and was read only in part"
		case user != nil && !user.Finished():
			l.User = user
		case user != nil && user != l.Pod:
			l.Reason = "pod " + user.FullName() + names(user)
		}
		switch {
		case l.Reason != "":
		case unread:
			l.Reason = "pod " + name + " could not be read, and may have it"
		case l.Pod != nil && !Settled(l.Pod):
			l.Reason = "pod " + l.Pod.FullName() + " " + unsettled(l.Pod)
		}
		out = append(out, l)
	}
	return out
}

// Meaning parses the name of a reservation. If the name is ambiguous, it returns the reading with
// an address in a range of its network. The network is known if an attachment assigns the address
// from it.
func (v *Verdicts) Meaning(r *blocks.WhereaboutsReservation) (Network, netip.Addr) {
	all := r.Addresses()
	for network, a := range all {
		if len(all) == 1 {
			return v.NetworkNamed(network, a), a
		}
	}
	for _, p := range v.SecondaryPools {
		if a, ok := all[p.Network.Name]; ok && p.Range.Masked().Contains(a) {
			return v.NetworkNamed(p.Network.Name, a), a
		}
	}
	return Network{}, netip.Addr{}
}

// allocated reports whether a pool records the address for the same pod, or a pool of an unknown
// network records it.
func (v *Verdicts) allocated(l LoneReservation) bool {
	return slices.ContainsFunc(v.recorded[l.Addr], func(a *Allocation) bool {
		return !a.Pool.Network.Known || a.WhereaboutsOwner.Pod == l.WhereaboutsOwner.Pod && a.Pool.Network.may(l.Network)
	})
}

// Duplicate is an address that several live pods name on one network.
type Duplicate struct {
	Addr    netip.Addr
	Network string // as Whereabouts calls it; "" for the unnamed network
	Pods    []*blocks.Workload
	// LocalIPAM is the plugin that assigned the address without checking other pods
	// ([blocks.NetworkAttachment]).
	LocalIPAM string
}

// Severity is critical, or warning if the pods may be on separate networks: they run on different
// nodes, and no IPAM plugin knows both addresses.
func (d *Duplicate) Severity() state.Severity {
	for i, w := range d.Pods {
		if d.LocalIPAM == "" || slices.ContainsFunc(d.Pods[:i], func(o *blocks.Workload) bool { return o.Node == w.Node }) {
			return state.Critical
		}
	}
	return state.Warning
}

// Why explains how an IPAM plugin assigned one address twice; "" if Whereabouts did.
func (d *Duplicate) Why() string {
	how := map[string]string{"host-local": ": host-local assigns it on each node by itself", "static": ": the IPAM plugin static gives it to each pod that asks for it"}[d.LocalIPAM]
	if how == "" || d.Severity() == state.Critical {
		return how
	}
	return how + ", so both fail if the nodes share the network"
}

// Duplicates returns the addresses that several live pods name on one network, if Whereabouts or a
// plugin that knows only one node or one pod assigns them. The pods of one virtual machine count as
// one.
func (v *Verdicts) Duplicates() (out []Duplicate) {
	type place struct {
		network, within, local string
	}
	for i := 0; i < len(v.named); {
		users := map[place][]*blocks.Workload{}
		var places []place
		j := i
		for ; j < len(v.named) && v.named[j].Addr == v.named[i].Addr; j++ {
			n := v.named[j]
			of, serves := rangeOf(n)
			local := ""
			if n.attachment != nil {
				local = n.attachment.LocalIPAM
			}
			if !serves && local == "" || !n.pod.Live() {
				continue
			}
			if local == "static" && (!n.pod.Deleting.IsZero() || !v.PastGrace(n.pod.Started.Later(n.pod.Created))) {
				continue // the pod and its replacement share the address until the update ends
			}
			at := place{network: n.attachment.NetworkName}
			if local != "" {
				at = place{network: n.attachment.Key().String(), local: local}
			} else if !n.attachment.Overlapping {
				at.within = of.String()
			}
			if users[at] == nil {
				places = append(places, at)
			}
			if !slices.ContainsFunc(users[at], func(w *blocks.Workload) bool { return oneOwner(w, n.pod) }) {
				users[at] = append(users[at], n.pod)
			}
		}
		for _, at := range places {
			found := func(d Duplicate) bool { return d.Addr == v.named[i].Addr && d.Network == at.network }
			if len(users[at]) > 1 && !slices.ContainsFunc(out, found) {
				out = append(out, Duplicate{v.named[i].Addr, at.network, users[at], at.local})
			}
		}
		i = j
	}
	return out
}

// Kept is an address that the guest of a virtual machine may still use after a live migration:
// KubeVirt moves the guest with its addresses, and Whereabouts gives the target pod another one
// (kubevirt/kubevirt#13709).
type Kept struct {
	blocks.AttachedAddress
	NetworkName string
	// Former is the pod that had the address. The guest now runs in pod Now, which has NowAddr.
	Former, Now *blocks.Workload
	NowAddr     netip.Addr
	// Others are the live pods that name the address on the network.
	Others []*blocks.Workload
}

// Kept returns the addresses of each virtual machine's first pod that its guest may have kept. A
// finished pod that is older than the present one shows a migration: pods of an earlier instance
// are deleted with it, and the target of a failed migration is newer.
func (v *Verdicts) Kept() (out []Kept) {
	first := map[blocks.Key]*blocks.Workload{}
	for _, n := range v.named {
		key := blocks.Key{Namespace: n.pod.Namespace, Name: n.pod.Extras().VM}
		if f := first[key]; key.Name != "" && (f == nil || f.Created.After(n.pod.Created)) {
			first[key] = n.pod
		}
	}
	for _, n := range v.named {
		_, assigned := rangeOf(n)
		if !assigned || !n.pod.Ended() || first[blocks.Key{Namespace: n.pod.Namespace, Name: n.pod.Extras().VM}] != n.pod || !v.PastGrace(n.pod.EndedAt()) {
			continue
		}
		k := Kept{AttachedAddress: n.AttachedAddress, NetworkName: n.attachment.NetworkName, Former: n.pod}
		for _, o := range v.named {
			switch {
			case o.attachment == nil || o.attachment.NetworkName != k.NetworkName || !o.pod.Live():
			case o.Addr == n.Addr && !slices.Contains(k.Others, o.pod):
				k.Others = append(k.Others, o.pod)
			case o.Network == n.Network && o.Addr.Is4() == n.Addr.Is4() && oneOwner(o.pod, n.pod) && Settled(o.pod) && o.pod.Created.After(n.pod.Created) && !n.pod.Created.IsZero():
				k.Now, k.NowAddr = o.pod, o.Addr
			}
		}
		if k.Now != nil && !slices.ContainsFunc(k.Others, func(w *blocks.Workload) bool { return oneOwner(w, n.pod) }) {
			out = append(out, k)
		}
	}
	return out
}

func oneOwner(a, b *blocks.Workload) bool {
	return a == b || a.Extras().VM != "" && a.Extras().VM == b.Extras().VM && a.Namespace == b.Namespace
}

// rangeOf returns the Whereabouts range of an address; false if the address comes from
// elsewhere, or its origin is unknown.
func rangeOf(n naming) (netip.Prefix, bool) {
	if n.attachment == nil || !n.attachment.Whereabouts {
		return netip.Prefix{}, false
	}
	for _, r := range n.attachment.Ranges {
		if r.CIDR.Contains(n.Addr) {
			return r.CIDR, true
		}
	}
	return netip.Prefix{}, false
}

// Unrecorded is an address that live pods of one node name on a network, but no pool
// records.
type Unrecorded struct {
	Addr netip.Addr
	Pods []*blocks.Workload
	// Attachment is the network attachment of the first pod.
	Attachment *blocks.NetworkAttachment
}

// Unrecorded returns the addresses that live pods name on networks of Whereabouts, but that no pool
// of the network records. If the snapshot has no pools, it returns nil, because they were not read.
func (v *Verdicts) Unrecorded() (out []Unrecorded) {
	if len(v.SecondaryPools) == 0 {
		return nil
	}
	for _, n := range v.named {
		if _, assigned := rangeOf(n); !assigned || !n.pod.Live() || !Settled(n.pod) {
			continue
		}
		if slices.ContainsFunc(v.recorded[n.Addr], func(a *Allocation) bool {
			return !a.Pool.Network.Known || a.Pool.Network.Name == n.attachment.NetworkName || a.Pod == n.pod
		}) {
			continue
		}
		i := slices.IndexFunc(out, func(u Unrecorded) bool {
			return u.Addr == n.Addr && u.Pods[0].Node == n.pod.Node && u.Attachment.NetworkName == n.attachment.NetworkName
		})
		switch {
		case i < 0:
			out = append(out, Unrecorded{n.Addr, []*blocks.Workload{n.pod}, n.attachment})
		case !slices.Contains(out[i].Pods, n.pod):
			out[i].Pods = append(out[i].Pods, n.pod)
		}
	}
	return out
}

// DeadSlice is the part of a range that belongs to a deleted node.
type DeadSlice struct {
	Pool *blocks.NodeSlicePool
	blocks.NodeSlice
}

// DeadSlices returns the slices of deleted nodes.
func (v *Verdicts) DeadSlices() (out []DeadSlice) {
	for i := range v.NodeSlicePools {
		p := &v.NodeSlicePools[i]
		for _, slice := range p.Slices {
			if slice.Node != "" && v.Vanished(slice.Node) {
				out = append(out, DeadSlice{p, slice})
			}
		}
	}
	return out
}
