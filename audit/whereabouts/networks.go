package whereabouts

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/calico-audit/calico-audit/blocks"
)

// Pool is a pool with the attachments whose addresses come from it.
type Pool struct {
	*blocks.WhereaboutsPool
	// Attachments are those that assign from it, in order.
	Attachments []*blocks.NetworkAttachment
	// Network is the name of the network; NetworkKnown is false if nothing tells it.
	Network      string
	NetworkKnown bool
	// Node is the node whose slice of a range the pool is; empty for other pools.
	Node string
}

// FullName returns "namespace/name".
func (p *Pool) FullName() string { return p.Key().String() }

// newPool finds out of which network a pool is. Its name has the network's before the
// range and, where a range is divided among nodes, the node's between the two: only an
// attachment tells these apart.
func (v *Verdicts) newPool(of *blocks.WhereaboutsPool) *Pool {
	p := &Pool{WhereaboutsPool: of}
	prefix, made := of.Network()
	for i := range v.NetworkAttachments {
		n := &v.NetworkAttachments[i]
		node, serves := served(n, of.Range.Masked(), prefix)
		if made && n.Whereabouts && serves {
			p.Attachments = append(p.Attachments, n)
			p.Network, p.NetworkKnown, p.Node = n.NetworkName, true, node
		}
	}
	if len(p.Attachments) == 0 && made && len(v.NodeSlicePools) == 0 {
		p.Network, p.NetworkKnown = prefix, true
	}
	return p
}

// served reports whether an attachment assigns from the pool of a range whose name begins
// with a prefix, and for which node alone, if it is one's.
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

// overlapping reports whether every attachment of a pool makes sure of addresses in all
// ranges of the network, so that each has a reservation.
func (p *Pool) overlapping() bool {
	return len(p.Attachments) > 0 && !slices.ContainsFunc(p.Attachments, func(n *blocks.NetworkAttachment) bool { return !n.Overlapping })
}

// attachment returns the network attachment that a pod's address is on; nil if it was not
// read.
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

// mayBeOf reports whether an address on an attachment may be one of a network: unless the
// attachment is known to be of another, or of another IPAM.
func mayBeOf(n *blocks.NetworkAttachment, network string, known bool) bool {
	return n == nil || n.Whereabouts && (!known || n.NetworkName == network)
}

// Capacity is how many addresses of a pool can be assigned and how many of them are; false
// if that is not known, or more than could be used up: the network's own and its
// broadcast address are never assigned, nor what lies outside the bounds or is excluded
// (pkg/iphelpers, GetIPRange; pkg/allocate, IterateForAssignment).
func (p *Pool) Capacity() (usable, used uint64, ok bool) {
	cidr := p.Range.Masked()
	ranges := []blocks.AttachedRange{{CIDR: cidr}}
	for _, n := range p.Attachments {
		for _, r := range n.Ranges {
			if r.CIDR == cidr {
				ranges = append(ranges, r)
			}
		}
	}
	if len(ranges) > 1 {
		ranges = ranges[1:]
	}
	if hostBits := cidr.Addr().BitLen() - cidr.Bits(); hostBits < 2 || hostBits > 32 {
		return 0, 0, false
	}
	for _, r := range ranges { // of several attachments the one that has most
		all, inUse := p.count(r)
		if all > usable || !ok {
			usable, used, ok = all, inUse, true
		}
	}
	return usable, used, ok
}

// count counts the addresses that can be assigned of a range, and those that are.
func (p *Pool) count(r blocks.AttachedRange) (usable, used uint64) {
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
	if err != nil { // the bounds are no range: nothing can be assigned
		return 0, 0
	}
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

// distance is how far b lies behind a, in a range of no more than 32 bits.
func distance(a, b netip.Addr) uint64 {
	x, y := a.As16(), b.As16()
	return uint64(binary.BigEndian.Uint32(y[12:]) - binary.BigEndian.Uint32(x[12:]))
}
