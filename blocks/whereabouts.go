package blocks

import (
	"encoding/binary"
	"math"
	"net/netip"
	"strings"
)

// WhereaboutsPool is an IPPool of Whereabouts, the IPAM of secondary networks: a range,
// and who has which of its addresses (k8snetworkplumbingwg/whereabouts,
// pkg/api/whereabouts.cni.cncf.io/v1alpha1).
type WhereaboutsPool struct {
	Meta
	Namespace string
	// Range is the pool's range as it is written, host bits included: offsets are
	// counted from its address.
	Range netip.Prefix
	// RangeText is the range as it is written. The pool's name is made of it.
	RangeText string
	// Allocations are in order of their addresses.
	Allocations []WhereaboutsAllocation
	// Assigned is when anyone but this program wrote the pool last: no allocation is newer
	// that this program may release. Zero if that is not known.
	Assigned Time
}

// WhereaboutsAllocation is an address of a pool that is in use.
type WhereaboutsAllocation struct {
	Addr netip.Addr
	WhereaboutsOwner
}

// WhereaboutsOwner is what Whereabouts records of who has an address.
type WhereaboutsOwner struct {
	// Pod is the pod, namespace and name; zero if none is recorded, as by old releases,
	// or what is recorded names none.
	Pod Key
	// ContainerID is the sandbox, and Interface the name of the interface in it; empty
	// where they are not recorded.
	ContainerID, Interface string
}

// Key names the pool among those of its kind.
func (p *WhereaboutsPool) Key() Key { return Key{p.Namespace, p.Name} }

// Stores reports whether the pool can record an address by its [WhereaboutsPool.Offset]:
// Whereabouts reads one as a number of 63 bits, and cuts those that are longer, which are
// then other addresses' (pkg/iphelpers, IPGetOffset).
func (p *WhereaboutsPool) Stores(a netip.Addr) bool {
	first, at := p.Range.Addr().As16(), a.As16()
	return a.BitLen() == p.Range.Addr().BitLen() && !a.Less(p.Range.Addr()) && p.Offset(a) <= math.MaxInt64 &&
		// The high halves are one, or the sum of the low halves carries into the next.
		binary.BigEndian.Uint64(at[:8])-binary.BigEndian.Uint64(first[:8]) == carry(first, at)
}

// carry is 1 if the low half of one address is less than that of another.
func carry(first, at [16]byte) uint64 {
	if binary.BigEndian.Uint64(at[8:]) < binary.BigEndian.Uint64(first[8:]) {
		return 1
	}
	return 0
}

// Offset is how far an address of the range lies behind the address that the range is
// written with, by which allocations are stored. It is right for what the pool
// [WhereaboutsPool.Stores].
func (p *WhereaboutsPool) Offset(a netip.Addr) uint64 {
	first, at := p.Range.Addr().As16(), a.As16()
	return binary.BigEndian.Uint64(at[8:]) - binary.BigEndian.Uint64(first[8:])
}

// Network returns what the pool's name has before its range: the name of the network, of
// the node whose slice it is, or both, joined by "-"; "" for a pool of an unnamed network.
// It is false if the name is not made of the range (pkg/storage/kubernetes/ipam.go,
// IPPoolName).
func (p *WhereaboutsPool) Network() (string, bool) {
	rest, made := strings.CutSuffix(p.Name, strings.NewReplacer(":", "-", "/", "-").Replace(p.RangeText))
	if rest == "" {
		return "", made
	}
	network, joined := strings.CutSuffix(rest, "-")
	return network, made && joined
}

// WhereaboutsReservation is an OverlappingRangeIPReservation of Whereabouts: it keeps an
// address from being assigned out of several ranges of one network.
type WhereaboutsReservation struct {
	Meta
	Namespace string
	WhereaboutsOwner
}

// Key names the reservation among those of its kind.
func (r *WhereaboutsReservation) Key() Key { return Key{r.Namespace, r.Name} }

// ReservationName returns what Whereabouts calls the reservation of an address in a
// network (pkg/storage/kubernetes/ipam.go, NormalizeIP).
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

// Addresses returns what the reservation's name may mean: addresses, by the network that
// the rest of the name would be. The name of an IPv6 address in a network whose name ends
// in hexadecimal digits can be read in several ways.
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

// NodeSlice is a part of a range, and the node that assigns addresses from it; "" for one
// that no node has.
type NodeSlice struct {
	Node  string
	Range netip.Prefix
}

// Key names the object among those of its kind.
func (p *NodeSlicePool) Key() Key { return Key{p.Namespace, p.Name} }

// NetworkAttachment is a NetworkAttachmentDefinition: a network that pods may have
// interfaces on. Of those with another IPAM than Whereabouts there are no ranges.
type NetworkAttachment struct {
	Meta
	Namespace string
	// Whereabouts is true if it says that its addresses come from Whereabouts, OtherIPAM
	// that they come from elsewhere. Neither where it says nothing, as where its
	// configuration is a file on the nodes.
	Whereabouts, OtherIPAM bool
	// NetworkName keeps pools and reservations apart from those of other networks with the
	// same addresses (network_name); "" for the network without a name.
	NetworkName string
	// Sliced is true if each node has a range of its own (node_slice_size).
	Sliced bool
	// Overlapping is true unless enable_overlapping_ranges is false: an address is assigned
	// once in all ranges of the network, which reservations make sure of.
	Overlapping bool
	Ranges      []AttachedRange
}

// AttachedRange is a range that addresses of an attachment come from.
type AttachedRange struct {
	// CIDR is masked.
	CIDR netip.Prefix
	// First and Last bound what is assigned, if they lie in it; zero where nothing is said.
	First, Last netip.Addr
	// Exclude are never assigned.
	Exclude []netip.Prefix
}

// Key names the attachment among those of its kind.
func (n *NetworkAttachment) Key() Key { return Key{n.Namespace, n.Name} }

// AttachedAddress is an address of a pod's on a network other than the cluster's own.
type AttachedAddress struct {
	// Network is the attachment, as namespace/name, or as network-status has it.
	Network string
	Addr    netip.Addr
}

// AttachedOf returns the network that a pod has an address on; "" if it has none.
func (w *Workload) AttachedOf(a netip.Addr) string {
	for _, x := range w.Extras().Attached {
		if x.Addr == a {
			return x.Network
		}
	}
	return ""
}
