package blocks

import (
	"net/netip"
	"slices"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
)

// Use is what a pool's addresses may serve for (IPPool spec.allowedUses).
type Use = apiv3.IPPoolAllowedUse

// The uses that Calico knows. A pool that names none allows workloads and
// tunnels (libcalico-go clientv3/ippool.go, convertIpPoolFromStorage).
const (
	UseWorkload     = apiv3.IPPoolAllowedUseWorkload
	UseTunnel       = apiv3.IPPoolAllowedUseTunnel
	UseLoadBalancer = apiv3.IPPoolAllowedUseLoadBalancer
)

// Encap is how a pool's traffic is encapsulated (ipipMode, vxlanMode).
type Encap string

// The encapsulation modes of a pool.
const (
	EncapNever       = Encap(apiv3.IPIPModeNever)
	EncapAlways      = Encap(apiv3.IPIPModeAlways)
	EncapCrossSubnet = Encap(apiv3.IPIPModeCrossSubnet)
)

// Pool is an IPPool, with Calico's defaults filled in.
type Pool struct {
	Meta
	// CIDR is the pool's range.
	CIDR netip.Prefix
	// BlockSize is the prefix length of the blocks that the pool is cut into.
	BlockSize int
	// Disabled pools hand out nothing; what they handed out stays in use.
	Disabled bool
	// NodeSelector and NamespaceSelector limit who may use the pool; empty
	// selects all.
	NodeSelector      string
	NamespaceSelector string
	// Uses are the pool's allowed uses.
	Uses []Use
	// Automatic is false for assignmentMode "Manual": such a pool is used only
	// where a pod or its namespace asks for it.
	Automatic bool
	// IPIP and VXLAN are the encapsulation modes.
	IPIP, VXLAN Encap
	// DisableBGPExport keeps the pool's routes from BGP peers.
	DisableBGPExport bool
	// NotAllocatable is the reason of a false "Allocatable" condition (Calico
	// v3.32 and newer), such as "CIDROverlap"; empty otherwise.
	NotAllocatable string
}

// Allows reports whether the pool's addresses may serve for a use.
func (p *Pool) Allows(u Use) bool { return slices.Contains(p.Uses, u) }

// ServesWorkloads is true for a pool whose addresses pods may get: it is
// enabled, allows workloads, and is neither being deleted nor marked as not
// allocatable (both of which Calico v3.32 and newer heed).
func (p *Pool) ServesWorkloads() bool {
	return !p.Disabled && p.Allows(UseWorkload) && p.NotAllocatable == "" && p.Deleting.IsZero()
}

// Family returns the pool's address family.
func (p *Pool) Family() Family { return FamilyOf(p.CIDR.Addr()) }

// BlockAddresses returns how many addresses one block of the pool holds.
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

// FamilyOf returns the family of an address. An IPv4 address mapped into IPv6
// counts as IPv4, as Calico reads it.
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
	// Ours is the value of [OursAnnotation]; empty where there is none.
	Ours string
}
