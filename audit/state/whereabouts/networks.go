package whereabouts

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/calico-audit/calico-audit/blocks"
)

// Pool is a Whereabouts pool and the attachments that use it.
type Pool struct {
	*blocks.WhereaboutsPool
	// Attachments are the network attachments that assign from the pool, in order.
	Attachments []*blocks.NetworkAttachment
	Network     Network
	// Node is set if the pool is one node's slice of a range.
	Node string
}

// Network is a network, identified by its network_name; the unnamed network has an empty
// name. Different networks may use the same addresses.
type Network struct {
	Name string
	// Known is false if no attachment confirms the name. The name may then contain a node's
	// name.
	Known bool
}

// may reports whether two networks may be the same one.
func (n Network) may(be Network) bool { return !n.Known || !be.Known || n.Name == be.Name }

// NetworkNamed returns the network with a name. It is known if one of its attachments
// assigns the address.
func (v *Verdicts) NetworkNamed(name string, a netip.Addr) Network {
	return Network{name, slices.ContainsFunc(v.NetworkAttachments, func(n blocks.NetworkAttachment) bool {
		return n.Whereabouts && n.NetworkName == name && slices.ContainsFunc(n.Ranges, func(r blocks.AttachedRange) bool { return r.CIDR.Contains(a) })
	})}
}

// FullName returns "namespace/name".
func (p *Pool) FullName() string { return p.Key().String() }

// PoolNamed returns the pool with the given "namespace/name"; nil if there is none.
func (v *Verdicts) PoolNamed(name string) *Pool {
	if i := slices.IndexFunc(v.SecondaryPools, func(p *Pool) bool { return p.FullName() == name }); i >= 0 {
		return v.SecondaryPools[i]
	}
	return nil
}

// PoolsAt returns the pools of a namespace that may record an address of a network. They
// share one reservation for it.
func (v *Verdicts) PoolsAt(namespace, network string, a netip.Addr) (out []*Pool) {
	for _, p := range v.SecondaryPools {
		if p.Namespace == namespace && (p.Network.Name == network || !p.Network.Known) && p.Range.Masked().Contains(a) {
			out = append(out, p)
		}
	}
	return out
}

// FullNames returns the names of pools.
func FullNames(pools []*Pool) (out []string) {
	for _, p := range pools {
		out = append(out, p.FullName())
	}
	return out
}

// newPool determines the network of a pool. The pool's name consists of the network's name,
// the node's name if the range is sliced, and the range. Only an attachment shows where the
// network's name ends.
func (v *Verdicts) newPool(of *blocks.WhereaboutsPool) *Pool {
	p := &Pool{WhereaboutsPool: of}
	prefix, made := of.Network()
	var whole, sliced []*blocks.NetworkAttachment
	node := ""
	for i := range v.NetworkAttachments {
		n := &v.NetworkAttachments[i]
		of, serves := served(n, of.Range.Masked(), prefix)
		switch {
		case !made || !n.Whereabouts || !serves:
		case !n.Sliced:
			whole = append(whole, n)
		case v.hasSlice(of):
			sliced, node = append(sliced, n), of
		}
	}
	switch {
	case len(whole) > 0: // the prefix is exactly the network's name
		p.Attachments, p.Network = whole, Network{prefix, true}
	case len(sliced) > 0 && !slices.ContainsFunc(sliced, func(n *blocks.NetworkAttachment) bool { return n.NetworkName != sliced[0].NetworkName }):
		p.Attachments, p.Network, p.Node = sliced, Network{sliced[0].NetworkName, true}, node
	default: // the prefix may end in a node's name
		p.Network.Name = prefix
	}
	return p
}

// hasSlice reports whether a node may have a slice of a range: it exists, or a slice is
// recorded for it.
func (v *Verdicts) hasSlice(node string) bool {
	if h := v.NodeState(node); h != nil && h.Node != nil {
		return true
	}
	return slices.ContainsFunc(v.NodeSlicePools, func(p blocks.NodeSlicePool) bool {
		return slices.ContainsFunc(p.Slices, func(s blocks.NodeSlice) bool { return s.Node == node })
	})
}

// served reports whether an attachment assigns from the pool with a range and a name
// prefix. It also returns the node, if the pool is a node's slice.
func served(n *blocks.NetworkAttachment, of netip.Prefix, prefix string) (node string, ok bool) {
	in := slices.ContainsFunc(n.Ranges, func(r blocks.AttachedRange) bool {
		return r.CIDR == of || n.Sliced && blocks.PrefixContains(r.CIDR, of)
	})
	switch {
	case !in:
		return "", false
	case !n.Sliced:
		return "", prefix == n.NetworkName
	case n.NetworkName == "":
		return prefix, prefix != ""
	}
	return strings.CutPrefix(prefix, n.NetworkName+"-")
}

// overlapping reports whether every attachment of a pool checks all ranges of the network
// for an address before it assigns it. Each address then has a reservation.
func (p *Pool) overlapping() bool {
	return len(p.Attachments) > 0 && !slices.ContainsFunc(p.Attachments, func(n *blocks.NetworkAttachment) bool { return !n.Overlapping })
}

// attachment returns the network attachment of a pod's address; nil if it was not read.
func (v *Verdicts) attachment(w *blocks.Workload, name string) *blocks.NetworkAttachment {
	key := blocks.Key{Namespace: w.Namespace, Name: name}
	if namespace, rest, ok := strings.Cut(name, "/"); ok {
		key = blocks.Key{Namespace: namespace, Name: rest}
	}
	all := v.NetworkAttachments
	i, found := slices.BinarySearchFunc(all, key, func(n blocks.NetworkAttachment, k blocks.Key) int { return n.Key().Compare(k) })
	if !found {
		return nil
	}
	return &all[i]
}

// Asked are the networks that a pod asks for.
type Asked struct {
	// Absent are the networks without a NetworkAttachmentDefinition. In files, only namespaces with
	// at least one attachment count.
	Absent []string
	// Lacking are the networks with an IPAM plugin that the pod's network status does not list.
	Lacking blocks.Names
	// Full are the pools without an address left, of the other networks; OfFull are those networks.
	Full   []*Pool
	OfFull []string
}

// AskedBy returns the networks that a pod asks for. A network without an IPAM plugin may add no
// interface at all, such as Istio's.
func (v *Verdicts) AskedBy(w *blocks.Workload) (out Asked) {
	x := w.Extras()
	if _, unread := v.Missing(blocks.NetworkAttachments); unread || len(v.Unreadable(blocks.NetworkAttachments)) > 0 {
		return Asked{}
	}
	lacks := x.Lacks()
	for _, name := range x.AsksNetworks {
		n := v.attachment(w, name)
		namespace, _, _ := strings.Cut(name, "/")
		if n == nil {
			if v.Cluster.Live || slices.ContainsFunc(v.NetworkAttachments, func(n blocks.NetworkAttachment) bool { return n.Namespace == namespace }) {
				out.Absent = append(out.Absent, name)
			}
			continue
		}
		if slices.Contains(lacks, name) && (n.Whereabouts || n.OtherIPAM) {
			out.Lacking = append(out.Lacking, name)
		}
		for _, p := range v.SecondaryPools {
			if usable, used, ok := p.Capacity(); ok && used >= usable && slices.Contains(p.Attachments, n) && (p.Node == "" || p.Node == w.Node) {
				out.Full, out.OfFull = append(out.Full, p), append(out.OfFull, name)
			}
		}
	}
	return out
}

// Capacity counts the assignable addresses of a pool, and those in use. It returns false if
// they are unknown or too many to run out. The network and broadcast addresses are never
// assigned, nor are addresses outside the bounds or in exclusions (pkg/iphelpers,
// GetIPRange; pkg/allocate, IterateForAssignment). Bounds and exclusions do not apply to a
// node's slice (pkg/storage/kubernetes, IPManagementKubernetesUpdate).
func (p *Pool) Capacity() (usable, used uint64, ok bool) {
	if cidr := p.Range; cidr.Addr().BitLen()-cidr.Bits() > 32 || cidr.Addr().BitLen()-cidr.Bits() < 2 {
		return 0, 0, false
	}
	for _, set := range p.assignable() { // of several attachments, the one with the most addresses
		all, inUse := p.count(set)
		if all > usable || !ok {
			usable, used, ok = all, inUse, true
		}
	}
	return usable, used, ok
}

// Assignable returns the ranges that any attachment can assign from, in order.
func (p *Pool) Assignable() []netipx.IPRange {
	var b netipx.IPSetBuilder
	for _, set := range p.assignable() {
		b.AddSet(set)
	}
	all, _ := b.IPSet() // the sets contain only valid ranges
	return all.Ranges()
}

// assignable returns the assignable addresses of each attachment that assigns from the whole range.
func (p *Pool) assignable() []*netipx.IPSet {
	cidr := p.Range.Masked()
	ranges := []blocks.AttachedRange{{CIDR: cidr}}
	for _, n := range p.Attachments {
		for _, r := range n.Ranges {
			if r.CIDR == cidr && !n.Sliced {
				ranges = append(ranges, r)
			}
		}
	}
	if len(ranges) > 1 {
		ranges = ranges[1:]
	}
	sets := make([]*netipx.IPSet, len(ranges))
	for i, r := range ranges {
		sets[i] = assignableOf(r)
	}
	return sets
}

// assignableOf returns the assignable addresses of a range.
func assignableOf(r blocks.AttachedRange) *netipx.IPSet {
	whole := netipx.RangeOfPrefix(r.CIDR)
	first, last := whole.From().Next(), whole.To().Prev()
	within := netipx.IPRangeFrom(first, last)
	if within.Contains(r.First) {
		first = r.First
	}
	if within.Contains(r.Last) {
		last = r.Last
	}
	var b netipx.IPSetBuilder
	b.AddRange(netipx.IPRangeFrom(first, last))
	for _, e := range r.Exclude {
		b.RemovePrefix(e)
	}
	set, err := b.IPSet()
	if err != nil { // the bounds are reversed
		return new(netipx.IPSet)
	}
	return set
}

// count counts the addresses of a set, and the allocated ones among them.
func (p *Pool) count(set *netipx.IPSet) (usable, used uint64) {
	for _, one := range set.Ranges() {
		usable += distance(one.From(), one.To()) + 1
	}
	for _, a := range p.Allocations {
		if set.Contains(a.Addr) {
			used++
		}
	}
	return usable, used
}

// distance returns b - a. The range must have at most 32 bits.
func distance(a, b netip.Addr) uint64 {
	x, y := a.As16(), b.As16()
	return uint64(binary.BigEndian.Uint32(y[12:]) - binary.BigEndian.Uint32(x[12:]))
}
