package blocks

import (
	"net/netip"
	"slices"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
)

// Use is an allowed use of a pool's addresses (IPPool spec.allowedUses).
type Use = apiv3.IPPoolAllowedUse

// The uses that Calico defines. A pool without allowedUses allows workloads and tunnels
// (libcalico-go clientv3/ippool.go, convertIpPoolFromStorage).
const (
	UseWorkload     = apiv3.IPPoolAllowedUseWorkload
	UseTunnel       = apiv3.IPPoolAllowedUseTunnel
	UseLoadBalancer = apiv3.IPPoolAllowedUseLoadBalancer
)

// ManagedBy is the label that names the manager of an object. TigeraOperator is the manager of pools
// that Tigera's operator owns.
const (
	ManagedBy      = "app.kubernetes.io/managed-by"
	TigeraOperator = "tigera-operator"
)

// Encap is a pool's encapsulation mode (ipipMode, vxlanMode).
type Encap string

// The encapsulation modes of a pool.
const (
	EncapNever       = Encap(apiv3.IPIPModeNever)
	EncapAlways      = Encap(apiv3.IPIPModeAlways)
	EncapCrossSubnet = Encap(apiv3.IPIPModeCrossSubnet)
)

// Pool is an IPPool, with Calico's defaults applied.
type Pool struct {
	Meta
	// CIDR is the pool's range.
	CIDR netip.Prefix
	// Unmasked is spec.cidr if it has host bits set, such as 10.0.0.5/16; else the zero value.
	// Calico masks the bits, and so does CIDR.
	Unmasked netip.Prefix
	// BlockSize is the prefix length of the pool's blocks.
	BlockSize int
	// DefaultSize is true if the object has no block size.
	DefaultSize bool
	// Disabled pools assign no addresses; existing allocations stay.
	Disabled bool
	// NodeSelector and NamespaceSelector limit the users of the pool; empty selects all.
	NodeSelector      string
	NamespaceSelector string
	// Uses are the pool's allowed uses.
	Uses []Use
	// Automatic is false for assignmentMode "Manual": only pods or namespaces that request
	// the pool use it.
	Automatic bool
	// IPIP and VXLAN are the encapsulation modes.
	IPIP, VXLAN Encap
	// NATOutgoing masquerades traffic to addresses outside all pools.
	NATOutgoing bool
	// DisableBGPExport stops the export of the pool's routes to BGP peers.
	DisableBGPExport bool
	// OfOperator pools belong to Tigera's operator, which undoes changes made by hand.
	OfOperator bool
	// NotAllocatable is the reason of an "Allocatable" condition that is false (Calico
	// v3.32 and newer), such as "CIDROverlap"; empty otherwise.
	NotAllocatable string
}

// Allows reports whether the pool allows a use.
func (p *Pool) Allows(u Use) bool { return slices.Contains(p.Uses, u) }

// ServesWorkloads reports whether pods may get addresses of the pool: it is enabled, allows
// workloads, and is neither being deleted nor marked not allocatable (Calico v3.32 and
// newer check both).
func (p *Pool) ServesWorkloads() bool {
	return !p.Disabled && p.Allows(UseWorkload) && p.NotAllocatable == "" && p.Deleting.IsZero()
}

// Encapsulated reports whether a mode sends any traffic through tunnels.
func (e Encap) Encapsulated() bool { return e == EncapAlways || e == EncapCrossSubnet }

// TunnelTypes are the types of tunnel addresses, in the order in which calico-node takes them
// (node/pkg/allocateip, reconcileTunnelAddrs).
var TunnelTypes = []string{TypeWireguard, TypeWireguardV6, TypeIPIP, TypeVXLAN, TypeVXLANv6}

// TunnelFamily returns the family of the addresses of a tunnel type.
func TunnelFamily(kind string) Family {
	if kind == TypeVXLANv6 || kind == TypeWireguardV6 {
		return IPv6
	}
	return IPv4
}

// GivesTunnel reports whether calico-node takes tunnel addresses of a type from the pool, on nodes
// that the pool selects (node/pkg/allocateip, determineEnabledPoolCIDRs).
func (p *Pool) GivesTunnel(kind string) bool {
	switch {
	case p.Disabled || !p.Allows(UseTunnel) || p.Family() != TunnelFamily(kind):
		return false
	case kind == TypeIPIP:
		return p.IPIP.Encapsulated()
	case kind == TypeVXLAN || kind == TypeVXLANv6:
		return p.VXLAN.Encapsulated()
	}
	return true // WireGuard takes an address from any pool
}

// Family returns the pool's address family.
func (p *Pool) Family() Family { return FamilyOf(p.CIDR.Addr()) }

// BlockAddresses returns the number of addresses per block.
func (p *Pool) BlockAddresses() Count {
	return PowerOfTwo(p.CIDR.Addr().BitLen() - p.BlockSize)
}

// Family is an IP version, 4 or 6.
type Family int

// The two address families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// FamilyOf returns the family of an address. IPv4-mapped IPv6 addresses count as IPv4, as
// in Calico.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() || a.Is4In6() {
		return IPv4
	}
	return IPv6
}

// String returns "IPv4" or "IPv6".
func (f Family) String() string {
	if f == IPv4 {
		return "IPv4"
	}
	return "IPv6"
}

// Reservation is an IPReservation: addresses that automatic assignment skips.
type Reservation struct {
	Meta
	CIDRs []netip.Prefix
	// Ours is the value of [OursAnnotation]; empty if absent.
	Ours string
}

// CoversBlockOf reports whether one of the reserved CIDRs covers a whole block of a pool.
func (r *Reservation) CoversBlockOf(p *Pool) bool {
	return slices.ContainsFunc(r.CIDRs, func(c netip.Prefix) bool { return c.Bits() <= p.BlockSize && c.Overlaps(p.CIDR) })
}
