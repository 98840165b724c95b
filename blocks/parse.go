package blocks

import (
	"net"
	"net/netip"
	"strings"
)

// ParseCIDR parses a CIDR as Calico does, with net.ParseCIDR: it masks host bits, and
// converts IPv4-mapped IPv6 networks to IPv4.
func ParseCIDR(s string) (netip.Prefix, bool) {
	p, ok := ParseNetwork(s)
	return p.Masked(), ok
}

// ParseNetwork is [ParseCIDR], but keeps the host bits.
func ParseNetwork(s string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		// net.ParseCIDR accepts more, such as "10.0.0.0/08".
		ip, network, err := net.ParseCIDR(s)
		if err != nil {
			return netip.Prefix{}, false
		}
		a, _ := netip.AddrFromSlice(ip)
		bits, _ := network.Mask.Size()
		if a.Is4In6() && len(network.Mask) == net.IPv4len {
			a = a.Unmap()
		}
		p = netip.PrefixFrom(a, bits)
	}
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p, p.IsValid()
}

// ParseAddr parses an address, with or without a prefix length.
func ParseAddr(s string) (netip.Addr, bool) {
	if strings.Contains(s, "/") {
		p, ok := ParseNetwork(s)
		return p.Addr(), ok
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}

// ParseNodeAddress parses the address of a node with an optional subnet length, and keeps the host
// bits.
func ParseNodeAddress(s string) (netip.Prefix, bool) {
	if p, ok := ParseNetwork(s); ok {
		return p, true
	}
	a, ok := ParseAddr(s)
	if !ok {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, a.BitLen()), true
}
