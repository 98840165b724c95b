package blocks

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"strings"
)

// WhereaboutsPool is an IPPool of Whereabouts, the IPAM of secondary networks: a range, and
// the owners of its addresses (k8snetworkplumbingwg/whereabouts,
// pkg/api/whereabouts.cni.cncf.io/v1alpha1).
type WhereaboutsPool struct {
	Meta
	Namespace string
	// Range is the pool's range as written, with host bits; offsets count from its address.
	Range netip.Prefix
	// RangeText is the range as written. It is part of the pool's name.
	RangeText string
	// Allocations are in address order.
	Allocations []WhereaboutsAllocation
	// Assigned is the last write of the pool by a writer other than this program. Every allocation
	// that this program may release is at least as old. Zero if unknown.
	Assigned Time
}

// WhereaboutsAllocation is an address in use.
type WhereaboutsAllocation struct {
	Addr netip.Addr
	WhereaboutsOwner
}

// WhereaboutsOwner is the recorded owner of an address.
type WhereaboutsOwner struct {
	// Pod is the owning pod; zero if not recorded (old releases) or not parseable.
	Pod Key
	// ContainerID is the sandbox and Interface the name of the interface in it; both empty
	// if not recorded.
	ContainerID, Interface string
}

// Key identifies the pool among those of its kind.
func (p *WhereaboutsPool) Key() Key { return Key{p.Namespace, p.Name} }

// Stores reports whether the pool can record an address by its [WhereaboutsPool.Offset].
// Whereabouts parses offsets as 63-bit numbers and truncates longer ones, which then denote
// other addresses (pkg/iphelpers, IPGetOffset).
func (p *WhereaboutsPool) Stores(a netip.Addr) bool {
	first, at := p.Range.Addr().As16(), a.As16()
	return a.BitLen() == p.Range.Addr().BitLen() && !a.Less(p.Range.Addr()) && p.Offset(a) <= math.MaxInt64 &&
		// Either the high halves are equal, or the sum of the low halves carries.
		binary.BigEndian.Uint64(at[:8])-binary.BigEndian.Uint64(first[:8]) == carry(first, at)
}

// carry returns 1 if the low half of at is less than that of first.
func carry(first, at [16]byte) uint64 {
	if binary.BigEndian.Uint64(at[8:]) < binary.BigEndian.Uint64(first[8:]) {
		return 1
	}
	return 0
}

// Offset is the distance of an address from the range's written address, under which
// Whereabouts stores allocations. It is valid only for addresses that the pool
// [WhereaboutsPool.Stores].
func (p *WhereaboutsPool) Offset(a netip.Addr) uint64 {
	first, at := p.Range.Addr().As16(), a.As16()
	return binary.BigEndian.Uint64(at[8:]) - binary.BigEndian.Uint64(first[8:])
}

// Network returns the part of the pool's name before its range: the name of the network, of
// the node that owns the slice, or both, joined by "-". It is "" for the unnamed network.
// It returns false if the name does not end in the range (pkg/storage/kubernetes/ipam.go,
// IPPoolName).
func (p *WhereaboutsPool) Network() (string, bool) {
	rest, made := strings.CutSuffix(p.Name, strings.NewReplacer(":", "-", "/", "-").Replace(p.RangeText))
	if rest == "" {
		return "", made
	}
	network, joined := strings.CutSuffix(rest, "-")
	return network, made && joined
}

// WhereaboutsReservation is an OverlappingRangeIPReservation of Whereabouts: it prevents
// the assignment of one address from several ranges of a network.
type WhereaboutsReservation struct {
	Meta
	Namespace string
	WhereaboutsOwner
}

// Key identifies the reservation among those of its kind.
func (r *WhereaboutsReservation) Key() Key { return Key{r.Namespace, r.Name} }

// ReservationName returns Whereabouts' name for the reservation of an address in a network
// (pkg/storage/kubernetes/ipam.go, NormalizeIP).
func ReservationName(network string, a netip.Addr) string {
	name := a.String()
	if strings.HasSuffix(name, ":") {
		name += "0"
	}
	if name = strings.ReplaceAll(name, ":", "-"); network == "" {
		return name
	}
	return network + "-" + name
}

// Addresses returns the possible meanings of the reservation's name: addresses by network.
// An IPv6 address in a network whose name ends in hexadecimal digits is ambiguous.
func (r *WhereaboutsReservation) Addresses() map[string]netip.Addr {
	out := map[string]netip.Addr{}
	for at := -1; at < len(r.Name); {
		network, ip := "", r.Name
		if at >= 0 {
			network, ip = r.Name[:at], r.Name[at+1:]
		}
		if a, err := netip.ParseAddr(strings.ReplaceAll(ip, "-", ":")); err == nil && ReservationName(network, a) == r.Name {
			out[network] = a
		}
		next := strings.IndexByte(r.Name[at+1:], '-')
		if next < 0 {
			break
		}
		at += 1 + next
	}
	return out
}

// NodeSlicePool divides a range among nodes.
type NodeSlicePool struct {
	Meta
	Namespace string
	Slices    []NodeSlice
}

// NodeSlice is a part of a range, and the node that assigns from it; Node is "" if the
// slice is unassigned.
type NodeSlice struct {
	Node  string
	Range netip.Prefix
}

// Key identifies the object among those of its kind.
func (p *NodeSlicePool) Key() Key { return Key{p.Namespace, p.Name} }

// NetworkAttachment is a NetworkAttachmentDefinition: a network for additional pod
// interfaces. Ranges are only read from those that use Whereabouts.
type NetworkAttachment struct {
	Meta
	Namespace string
	// Whereabouts is true if its addresses come from Whereabouts, OtherIPAM if they come
	// from elsewhere. Both are false if that is unknown, as when the configuration is a
	// file on the nodes.
	Whereabouts, OtherIPAM bool
	// LocalIPAM is the IPAM plugin of a network that nodes share, if the plugin does not know the
	// addresses of others: "host-local" knows one node, "static" one pod. It is empty otherwise.
	LocalIPAM string
	// NetworkName (network_name) separates pools and reservations of networks with the same
	// addresses; "" for the unnamed network.
	NetworkName string
	// Sliced is true if each node has its own range (node_slice_size).
	Sliced bool
	// Overlapping is true unless enable_overlapping_ranges is false. Reservations then
	// prevent the assignment of one address from several ranges of the network.
	Overlapping bool
	Ranges      []AttachedRange
}

// AttachedRange is an address range of an attachment.
type AttachedRange struct {
	// CIDR is masked.
	CIDR netip.Prefix
	// First and Last bound assignment if they lie in CIDR; zero if unset.
	First, Last netip.Addr
	// Exclude are CIDRs that are never assigned.
	Exclude []netip.Prefix
}

// Key identifies the attachment among those of its kind.
func (n *NetworkAttachment) Key() Key { return Key{n.Namespace, n.Name} }

// AttachedAddress is a pod's address on a secondary network.
type AttachedAddress struct {
	// Network is the attachment: namespace/name, or the text in the pod's network-status.
	Network string
	Addr    netip.Addr
}

// AttachedOf returns the network of a pod's address; "" if there is none.
func (w *Workload) AttachedOf(a netip.Addr) string {
	for _, x := range w.Extras().Attached {
		if x.Addr == a {
			return x.Network
		}
	}
	return ""
}

// ForgetAttachments drops the tolerated gaps of network attachments that do not matter: no pod names
// them, and there are no objects of Whereabouts.
func (s *Snapshot) ForgetAttachments() {
	if len(s.WhereaboutsPools)+len(s.WhereaboutsReservations)+len(s.NodeSlicePools) > 0 {
		return
	}
	named := map[string]bool{}
	for _, w := range s.Workloads {
		x := w.Extras()
		for _, name := range x.AsksNetworks {
			named[name] = true
		}
		for _, a := range x.Attached {
			named[a.Network] = true
		}
	}
	s.Gaps = slices.DeleteFunc(s.Gaps, func(g Gap) bool {
		return g.Resource == NetworkAttachments && g.Tolerated && !named[g.Name]
	})
}
