package blocks

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"strings"
)

// OwnerKind is the type part of an affinity.
type OwnerKind string

// The kinds of owner. Calico writes "host:NODE" for nodes and
// "virtual:load-balancer" for the blocks of LoadBalancer services.
const (
	NoOwner      OwnerKind = ""
	HostOwner    OwnerKind = "host"
	VirtualOwner OwnerKind = "virtual"
)

// Owner is the owner of a block. The zero Owner means that the block has none.
type Owner struct {
	Kind OwnerKind
	Name string
}

// ParseOwner parses a block's affinity, such as "host:node-1". Unknown kinds are kept. A
// string without a colon becomes a Name without a Kind, so that reports can show it.
func ParseOwner(s string) Owner {
	kind, name, found := strings.Cut(s, ":")
	if !found {
		return Owner{Name: s}
	}
	return Owner{Kind: OwnerKind(kind), Name: name}
}

// Node returns the owning node's name, or "" if the owner is not a node.
func (o Owner) Node() string {
	if o.Kind == HostOwner {
		return o.Name
	}
	return ""
}

// String returns the owner as people read it: the node's name, or "no node" for the zero
// Owner.
func (o Owner) String() string {
	if o == (Owner{}) {
		return "no node"
	}
	return cmp.Or(o.Node(), o.Affinity())
}

// Affinity returns the owner as Calico writes it in spec.affinity, "KIND:NAME".
func (o Owner) Affinity() string {
	if o.Kind == NoOwner {
		return o.Name
	}
	return string(o.Kind) + ":" + o.Name
}

// Free is the owner index of an ordinal that is not allocated.
const Free = int32(-1)

// Block is an IPAMBlock.
type Block struct {
	Meta
	CIDR netip.Prefix
	// Owner is the block's affinity; zero if it has none.
	Owner Owner
	// Ordinals holds, for each address of the block in order, the index into Attributes of
	// its allocation, or [Free]. An index outside Attributes is kept, and makes the block
	// corrupt. Indices that are negative or too large for an int32 become the largest
	// int32.
	Ordinals []int32
	// Unallocated is the stored queue of ordinals to assign next.
	Unallocated []int32
	// Attributes describe the allocations; several ordinals may share one entry.
	Attributes []Attributes
	// Sequence is the block's sequenceNumber, which every write raises.
	Sequence uint64
	// OrdinalSequences records, by ordinal, the block's sequence number at each allocation.
	OrdinalSequences []OrdinalSequence
	// SoftDeleted is spec.deleted: a deletion has started.
	SoftDeleted bool
	// DeprecatedStrict is the block's own strictAffinity, which Calico ignores.
	DeprecatedStrict bool
	// Claimed is spec.affinityClaimTime (Calico v3.32 and newer); zero if unset.
	Claimed Time
}

// OrdinalSequence is one entry of a block's sequenceNumberForAllocation.
type OrdinalSequence struct {
	Ordinal  int32
	Sequence uint64
}

// Attributes describes an allocation. Fields are named after the keys that Calico writes
// (libcalico-go backend/model/block.go).
type Attributes struct {
	// Handle is the handle's ID. If the block stores none, it is empty and HasHandle is
	// false.
	Handle    string
	Pod       string
	Namespace string
	Node      string
	// Assigned is when the address was assigned; zero if not recorded.
	Assigned Time
	// Extra holds rare attributes; nil for most allocations. [Attributes.Extras] reads it.
	Extra *AttributesExtra
	// Digest is a hash of all stored keys and values of both attribute maps, including keys
	// without a field here. It changes with either map. It is 0 if both maps are empty.
	Digest uint64

	HasHandle bool
	// VM is true if either attribute map has an attribute of KubeVirt (vmi-name, vmi-uid,
	// vm-uid, vmim-uid; Calico v3.32). A stopped virtual machine keeps the handle but has
	// no attributes: see [VMOfHandle].
	VM bool
}

// AttributesExtra holds attributes that few allocations have. A pointer to it saves memory for the
// 150,000 allocations of a large cluster that have none.
type AttributesExtra struct {
	// Type is set for tunnel addresses ("ipipTunnelAddress", …) and for LoadBalancer
	// services.
	Type    string
	Service string
	// Released is when a released address started to cool down (newer Calico); zero for
	// addresses in use.
	Released Time
	// VMI is vmi-name of either attribute map; empty if both lack it. The VirtualMachine
	// has the same name.
	VMI string
	// Alternate is alternateOwnerAttrs (Calico v3.32): the second pod that may take over
	// the address, the target of a live migration. It is nil if the map is absent or empty.
	// Only Pod, Namespace, Node, VM and VMI are set.
	Alternate *Attributes
}

// Extras returns the rare attributes; the zero value if there are none.
func (a *Attributes) Extras() AttributesExtra {
	if a.Extra == nil {
		return AttributesExtra{}
	}
	return *a.Extra
}

// Extend returns the rare attributes for writing, and allocates them if necessary.
func (a *Attributes) Extend() *AttributesExtra {
	if a.Extra == nil {
		a.Extra = &AttributesExtra{}
	}
	return a.Extra
}

// Values of [AttributesExtra.Type], after libcalico-go backend/model/block.go.
const (
	TypeIPIP         = "ipipTunnelAddress"
	TypeVXLAN        = "vxlanTunnelAddress"
	TypeVXLANv6      = "vxlanV6TunnelAddress"
	TypeWireguard    = "wireguardTunnelAddress"
	TypeWireguardV6  = "wireguardV6TunnelAddress"
	TypeLoadBalancer = "LoadBalancer"
)

// vmHandle separates the network from the virtual machine in a handle:
// "NETWORK.vmi.NAMESPACE.NAME" (libcalico-go ipam/vmipam of Calico v3.32,
// CreateVMHandleID).
const vmHandle = ".vmi."

// VMOfHandle returns the virtual machine that a handle belongs to. isVM reports whether it
// belongs to a virtual machine. namespace and name may be empty even then:
//
//   - Calico hashes long handles after the network ("NETWORK.vmi._…").
//   - If the network or the machine contains the marker, the handle is ambiguous.
//
// The namespace ends at the first dot after the marker, because names of namespaces contain
// no dots.
func VMOfHandle(handle string) (namespace, name string, isVM bool) {
	network, rest, found := strings.Cut(handle, vmHandle)
	if !found || network == "" || rest == "" {
		return "", "", false
	}
	if strings.HasPrefix(rest, "_") || strings.Contains(handle[len(network)+1:], vmHandle) {
		return "", "", true
	}
	namespace, name, found = strings.Cut(rest, ".")
	if !found || namespace == "" || name == "" {
		return "", "", true
	}
	return namespace, name, true
}

// WindowsReservedHandle is the handle of the addresses that Windows nodes reserve in each
// block (libcalico-go ipam/ipam_block.go).
const WindowsReservedHandle = "windows-reserved-ipam-handle"

// tunnelHandles maps the prefixes of tunnel handles to allocation types; the node's name
// follows the prefix (node/pkg/allocateip/allocateip.go). Old releases recorded no type,
// only the handle.
var tunnelHandles = []struct{ prefix, kind string }{
	{"ipip-tunnel-addr-", TypeIPIP},
	{"vxlan-tunnel-addr-", TypeVXLAN},
	{"vxlan-v6-tunnel-addr-", TypeVXLANv6},
	{"wireguard-tunnel-addr-", TypeWireguard},
	{"wireguard-v6-tunnel-addr-", TypeWireguardV6},
}

// TunnelOf returns the tunnel type of the allocation and its node, from the type attribute
// or the handle. Both are empty for other allocations. node is empty if only a type is
// recorded.
func (a *Attributes) TunnelOf() (kind, node string) {
	if t := a.Extras().Type; strings.HasSuffix(t, "TunnelAddress") {
		kind, node = t, a.Node
	}
	for _, h := range tunnelHandles {
		if name, ok := strings.CutPrefix(a.Handle, h.prefix); ok && name != "" {
			return cmp.Or(kind, h.kind), cmp.Or(a.Node, name)
		}
	}
	return kind, node
}

// Tunnel reports whether the allocation is a node's tunnel address.
func (a *Attributes) Tunnel() bool {
	kind, _ := a.TunnelOf()
	return kind != ""
}

// VMOf returns the virtual machine that the allocation belongs to, from its handle or from
// KubeVirt's attributes. isVM reports whether it belongs to one; namespace and name are
// empty if they are unknown.
func (a *Attributes) VMOf() (namespace, name string, isVM bool) {
	namespace, name, isVM = VMOfHandle(a.Handle)
	if isVM || !a.VM {
		return namespace, name, isVM
	}
	for _, owner := range []*Attributes{a, a.Extras().Alternate} {
		if owner != nil && owner.Namespace != "" && owner.Extras().VMI != "" {
			return owner.Namespace, owner.Extras().VMI, true
		}
	}
	return "", "", true
}

// Cooling reports whether the address was released and is still cooling down.
func (a *Attributes) Cooling() bool { return !a.Extras().Released.IsZero() }

// WindowsReserved reports whether the address is reserved by a Windows node.
func (a *Attributes) WindowsReserved() bool {
	return strings.EqualFold(a.Handle, WindowsReservedHandle)
}

// Family returns the block's address family.
func (b *Block) Family() Family { return FamilyOf(b.CIDR.Addr()) }

// Within returns the ordinals that lie in the CIDR. A malformed block may record more; in
// Calico those have no address.
func (b *Block) Within() []int32 {
	if free := b.CIDR.Addr().BitLen() - b.CIDR.Bits(); free < 31 && len(b.Ordinals) > 1<<free {
		return b.Ordinals[:1<<free]
	}
	return b.Ordinals
}

// InUse returns the number of allocated addresses, including those cooling down and those
// reserved for Windows.
func (b *Block) InUse() int {
	n := 0
	for _, o := range b.Within() {
		if o != Free {
			n++
		}
	}
	return n
}

// Address returns the address at ordinal.
func (b *Block) Address(ordinal int) netip.Addr { return addOffset(b.CIDR.Addr(), uint64(ordinal)) }

// Ordinal returns the ordinal of an address. It returns false if the address is outside the
// block or beyond its recorded ordinals.
func (b *Block) Ordinal(a netip.Addr) (int, bool) {
	if !b.CIDR.Contains(a) {
		return 0, false
	}
	n, ok := offset(b.CIDR.Addr(), a)
	if !ok || n >= uint64(len(b.Ordinals)) {
		return 0, false
	}
	return int(n), true
}

// At returns the attributes of an ordinal; nil if it is free or its index is out of range.
func (b *Block) At(ordinal int) *Attributes {
	i := b.Ordinals[ordinal]
	if i < 0 || int(i) >= len(b.Attributes) {
		return nil
	}
	return &b.Attributes[i]
}

// SequenceAt returns the sequence number stored for an ordinal's allocation.
func (b *Block) SequenceAt(ordinal int) (uint64, bool) {
	for _, s := range b.OrdinalSequences {
		if int(s.Ordinal) == ordinal {
			return s.Sequence, true
		}
	}
	return 0, false
}

// addOffset returns the address n after a.
func addOffset(a netip.Addr, n uint64) netip.Addr {
	if a.Is4() {
		b := a.As4()
		v := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
		v += uint32(n)
		return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
	}
	b := a.As16()
	for i := 15; i >= 0 && n > 0; i-- {
		n += uint64(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	return netip.AddrFrom16(b)
}

// offset returns the distance from base to a. It returns false if the distance exceeds 64
// bits, as in an IPv6 block larger than Calico makes.
func offset(base, a netip.Addr) (uint64, bool) {
	x, y := base.As16(), a.As16()
	low, borrow := bits.Sub64(binary.BigEndian.Uint64(y[8:]), binary.BigEndian.Uint64(x[8:]), 0)
	over, _ := bits.Sub64(binary.BigEndian.Uint64(y[:8]), binary.BigEndian.Uint64(x[:8]), borrow)
	return low, over == 0
}
