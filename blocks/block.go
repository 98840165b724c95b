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

// Owner is who a block belongs to. The zero Owner means that no one owns it.
type Owner struct {
	Kind OwnerKind
	Name string
}

// ParseOwner reads a block's affinity, such as "host:node-1". A kind other than
// host and virtual is kept as it stands, and so is a text without a colon (as a
// name without kind), so that nothing is hidden.
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

// String writes the owner as Calico does.
func (o Owner) String() string {
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
	// Owner is the block's affinity; the zero Owner when it has none.
	Owner Owner
	// Ordinals holds, for each address of the block in order, the index into
	// Attributes of what it is allocated to, or [Free]. An index that Attributes
	// does not have is kept as it stands: it makes the block corrupt. One that is
	// negative or too large for an int32 is kept as the largest int32.
	Ordinals []int32
	// Unallocated is the queue of ordinals that may be handed out next, as
	// stored.
	Unallocated []int32
	// Attributes says what the allocations are for; several ordinals may share
	// one entry.
	Attributes []Attributes
	// Sequence is the block's sequenceNumber, which every write raises.
	Sequence uint64
	// OrdinalSequences are the block's sequence numbers at the time of each
	// allocation, by ordinal.
	OrdinalSequences []OrdinalSequence
	// SoftDeleted is spec.deleted: a deletion that was begun.
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

// Attributes says what an allocation is for. Field names follow the keys that
// Calico writes (libcalico-go backend/model/block.go).
type Attributes struct {
	// Handle is the handle's ID; empty, and HasHandle false, where none was stored.
	Handle    string
	Pod       string
	Namespace string
	Node      string
	// Assigned is when the address was assigned; zero if not recorded.
	Assigned Time
	// Extra is what most allocations have nothing of; nil for those. [Attributes.Extras]
	// reads it.
	Extra *AttributesExtra
	// Digest is a hash of all keys and values of both attribute maps as stored, also
	// of those that no field here holds: it changes whenever either map does. 0 where
	// both are empty.
	Digest uint64

	HasHandle bool
	// VM is true if any of KubeVirt's attributes is present, in either attribute map
	// (vmi-name, vmi-uid, vm-uid, vmim-uid; Calico v3.32). A stopped virtual machine
	// keeps the handle and has no attributes: see [VMOfHandle].
	VM bool
}

// AttributesExtra is what few allocations have; behind a pointer it costs the 150,000 others
// nothing.
type AttributesExtra struct {
	// Type is set for tunnel addresses ("ipipTunnelAddress", …) and
	// LoadBalancer services.
	Type    string
	Service string
	// Released is when a released address began to cool down (newer Calico);
	// zero for one in use.
	Released Time
	// VMI is vmi-name of either attribute map, which is the name of the VirtualMachine,
	// too; empty where no map has it.
	VMI string
	// Alternate is alternateOwnerAttrs (Calico v3.32): a second pod that may take the
	// address over, the target of a live migration. Nil where the map is absent or
	// empty. Of it only Pod, Namespace, Node, VM and VMI are set.
	Alternate *Attributes
}

// Extras returns what few allocations have, all empty for the others.
func (a *Attributes) Extras() AttributesExtra {
	if a.Extra == nil {
		return AttributesExtra{}
	}
	return *a.Extra
}

// Extend returns the allocation's extras, which it has from then on, to be set.
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

// vmHandle comes between the network's name and the virtual machine in a handle:
// "NETWORK.vmi.NAMESPACE.NAME" (libcalico-go ipam/vmipam of Calico v3.32,
// CreateVMHandleID).
const vmHandle = ".vmi."

// VMOfHandle returns the virtual machine that a handle is for. isVM reports whether
// it is one's at all; namespace and name are empty for a handle so long that Calico
// hashed what follows the network ("NETWORK.vmi._…"), which does not tell which.
// Names of namespaces hold no dot, so that the first one after the marker ends
// theirs. A handle that holds the marker twice, because the network or the machine is
// called so, does not tell either.
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

// WindowsReservedHandle is the handle of the addresses that Windows nodes keep
// back in each block (libcalico-go ipam/ipam_block.go).
const WindowsReservedHandle = "windows-reserved-ipam-handle"

// tunnelHandles are what the handles of tunnel addresses begin with, before the
// node's name, and the type of each (node/pkg/allocateip/allocateip.go). Old releases
// recorded no type, so that the handle alone tells.
var tunnelHandles = []struct{ prefix, kind string }{
	{"ipip-tunnel-addr-", TypeIPIP},
	{"vxlan-tunnel-addr-", TypeVXLAN},
	{"vxlan-v6-tunnel-addr-", TypeVXLANv6},
	{"wireguard-tunnel-addr-", TypeWireguard},
	{"wireguard-v6-tunnel-addr-", TypeWireguardV6},
}

// TunnelOf returns the type of tunnel that the allocation is for and its node, by the
// type attribute or by the handle; "" for both if it is for none. The node is empty
// where only a type is recorded.
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

// VMOf returns the virtual machine that the allocation is for, by its handle or by
// KubeVirt's attributes. isVM reports whether it is one's at all; namespace and name
// are empty where nothing tells which.
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

// Cooling reports whether the address was released and waits out its cooldown.
func (a *Attributes) Cooling() bool { return !a.Extras().Released.IsZero() }

// WindowsReserved reports whether the address is one that a Windows node keeps
// back.
func (a *Attributes) WindowsReserved() bool {
	return strings.EqualFold(a.Handle, WindowsReservedHandle)
}

// Family returns the block's address family.
func (b *Block) Family() Family { return FamilyOf(b.CIDR.Addr()) }

// Within returns the part of Ordinals that the CIDR has addresses for. A malformed
// block may record more; they are no one's, and in Calico have no address.
func (b *Block) Within() []int32 {
	if free := b.CIDR.Addr().BitLen() - b.CIDR.Bits(); free < 31 && len(b.Ordinals) > 1<<free {
		return b.Ordinals[:1<<free]
	}
	return b.Ordinals
}

// InUse returns how many of the block's addresses are allocated, those cooling
// down and those reserved for Windows included.
func (b *Block) InUse() int {
	n := 0
	for _, o := range b.Within() {
		if o != Free {
			n++
		}
	}
	return n
}

// Address returns the address of an ordinal.
func (b *Block) Address(ordinal int) netip.Addr { return addOffset(b.CIDR.Addr(), uint64(ordinal)) }

// Ordinal returns the ordinal of an address, and false if the block does not
// contain it or it lies beyond what the block records.
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

// At returns the attributes of an allocated ordinal; nil if it is free or points
// to attributes that do not exist.
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

// offset returns how far an address lies after base, and false if that does not
// fit into 64 bits, as in an IPv6 block that is larger than Calico makes them.
func offset(base, a netip.Addr) (uint64, bool) {
	x, y := base.As16(), a.As16()
	low, borrow := bits.Sub64(binary.BigEndian.Uint64(y[8:]), binary.BigEndian.Uint64(x[8:]), 0)
	over, _ := bits.Sub64(binary.BigEndian.Uint64(y[:8]), binary.BigEndian.Uint64(x[:8]), borrow)
	return low, over == 0
}
