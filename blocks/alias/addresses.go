package alias

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/projectcalico/api/pkg/lib/numorstring"

	"github.com/calico-audit/calico-audit/blocks"
)

// Address returns the replacement of an address outside all pools, such as a node's or a
// BGP peer's. Addresses of pools stay, because IPAM is about them. private marks the
// address for replacement everywhere.
func (n *Aliases) Address(a netip.Addr, private bool) netip.Addr {
	if n.collecting && private {
		n.addresses[a] = a
	}
	if to, ok := n.addresses[a]; ok {
		return to
	}
	return a
}

// Pool records the CIDR of a pool. Addresses in it are not replaced.
func (n *Aliases) Pool(p netip.Prefix) {
	if n.collecting {
		n.pools = append(n.pools, p)
	}
}

// templates are documentation addresses (RFC 5737, RFC 3849). Replacements have the
// template's value in all bits that are equal in all of a cluster's addresses.
var templates = []netip.Addr{
	netip.MustParseAddr("203.0.113.100"), netip.MustParseAddr("198.51.100.100"), netip.MustParseAddr("192.0.2.100"),
	netip.MustParseAddr("2001:db8::64"), netip.MustParseAddr("2001:db8:64::64"),
}

// replaceAddresses chooses the replacement of every collected address. Two replacements share as
// many leading bits as their originals, and sort in the same order, so addresses of one subnet, of
// any length, stay in one subnet.
func (n *Aliases) replaceAddresses() {
	for _, four := range []bool{true, false} {
		var all []netip.Addr
		for a := range n.addresses {
			switch {
			case slices.ContainsFunc(n.pools, func(p netip.Prefix) bool { return p.Contains(a) }):
				delete(n.addresses, a)
			case a.Is4() == four:
				all = append(all, a)
			}
		}
		slices.SortFunc(all, netip.Addr.Compare)
		for _, t := range templates {
			if t.Is4() == four && n.replaceLike(all, t.AsSlice(), 0) {
				break
			}
		}
	}
}

// replaceLike replaces sorted addresses that share their first bits by addresses that share as many
// bits with like. It reports whether all of these lie outside the pools.
func (n *Aliases) replaceLike(all []netip.Addr, like []byte, bits int) bool {
	if len(all) == 0 {
		return true
	}
	if bits == len(like)*8 {
		to, _ := netip.AddrFromSlice(like)
		n.addresses[all[0]] = to
		return !slices.ContainsFunc(n.pools, func(p netip.Prefix) bool { return p.Contains(to) })
	}
	mask := byte(0x80) >> (bits % 8)
	set := func(a netip.Addr) bool { return a.AsSlice()[bits/8]&mask != 0 }
	at := slices.IndexFunc(all, set)
	if at <= 0 { // all agree
		return n.replaceLike(all, like, bits+1)
	}
	zero, one := slices.Clone(like), slices.Clone(like)
	zero[bits/8] &^= mask
	one[bits/8] |= mask
	free := n.replaceLike(all[:at], zero, bits+1)
	return n.replaceLike(all[at:], one, bits+1) && free
}

// defaultAS is Calico's default AS number (libcalico-go clientv3/bgpconfig.go). It reveals
// nothing about the cluster's owner.
const defaultAS = 64512

// ASNumber anonymizes an AS number; an invalid one becomes [Bad].
func (n *Aliases) ASNumber(s string) string {
	as, err := numorstring.ASNumberFromString(s)
	switch {
	case err != nil:
		return Bad
	case as == defaultAS:
		return s
	}
	return n.Name(AS, strconv.FormatUint(uint64(as), 10))
}

// NodeAddress anonymizes a node's address, with or without a subnet length.
func (n *Aliases) NodeAddress(s string) string {
	p, ok := blocks.ParseNodeAddress(s)
	if !ok {
		return Bad
	}
	to := n.Address(p.Addr(), true)
	if strings.Contains(s, "/") {
		return netip.PrefixFrom(to, p.Bits()).String()
	}
	return to.String()
}

// Endpoint anonymizes a BGP peer's address, with or without a port.
func (n *Aliases) Endpoint(s string) string {
	if a, ok := blocks.ParseAddr(s); ok {
		return n.Address(a, true).String()
	}
	if p, err := netip.ParseAddrPort(s); err == nil {
		return netip.AddrPortFrom(n.Address(p.Addr().Unmap().WithZone(""), true), p.Port()).String()
	}
	return Bad
}

// PoolCIDR keeps the CIDR of a pool, and records it.
func (n *Aliases) PoolCIDR(s string) string {
	if p, ok := blocks.ParseCIDR(s); ok {
		n.Pool(p)
	}
	return n.AddressList(s)
}

// AddressList keeps the addresses and CIDRs of a comma-separated list. It replaces addresses that
// are anonymized elsewhere, such as that of a host-network pod, which is its node's.
func (n *Aliases) AddressList(s string) string {
	parts := strings.Split(s, ",")
	for i, p := range parts {
		trimmed := strings.TrimSpace(p)
		one, ok := blocks.ParseNodeAddress(trimmed)
		a := one.Addr()
		switch to := n.Address(a, false); {
		case trimmed == "":
		case !ok:
			parts[i] = Bad
		case to != a && one.IsSingleIP():
			if parts[i] = to.String(); strings.Contains(trimmed, "/") {
				parts[i] = netip.PrefixFrom(to, to.BitLen()).String()
			}
		}
	}
	return strings.Join(parts, ",")
}

// AddressJSON keeps the addresses of a JSON list as [Aliases.AddressList] does.
func (n *Aliases) AddressJSON(s string) string {
	var list []string
	if json.Unmarshal([]byte(s), &list) != nil {
		return Bad
	}
	for i := range list {
		list[i] = n.AddressList(list[i])
	}
	out, _ := json.Marshal(list) // strings always marshal
	return string(out)
}
