package decode

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// defaultAS is the AS number of a cluster that sets none (libcalico-go
// clientv3/bgpconfig.go), which tells nothing about its owner.
const defaultAS = 64512

// privateAS is what the replacements of AS numbers count up from: the private use
// range of RFC 6996.
const privateAS = 4200000000

// asNumber replaces an AS number; what is none becomes [bad].
func (n *Anonymizer) asNumber(s string) string {
	as, ok := parseASNumber(s)
	switch {
	case !ok:
		return bad
	case as == defaultAS:
		return s
	}
	return n.name(someAS, strconv.FormatUint(uint64(as), 10))
}

// address returns what stands for an address that no pool holds, such as a node's or
// a BGP peer's. The addresses of pools stay: IPAM is about them. private makes the
// address one to replace, wherever it stands.
func (n *Anonymizer) address(a netip.Addr, private bool) netip.Addr {
	if n.collecting && private {
		n.addresses[a] = a
	}
	if to, ok := n.addresses[a]; ok {
		return to
	}
	return a
}

// nodeAddress replaces a node's address, which may have the length of its subnet.
func (n *Anonymizer) nodeAddress(s string) string {
	p, ok := parseNodeAddress(s)
	if !ok {
		return bad
	}
	to := n.address(p.Addr(), true)
	if strings.Contains(s, "/") {
		return netip.PrefixFrom(to, p.Bits()).String()
	}
	return to.String()
}

// endpoint replaces a BGP peer's address, which may have a port.
func (n *Anonymizer) endpoint(s string) string {
	if a, ok := ParseAddr(s); ok {
		return n.address(a, true).String()
	}
	if p, err := netip.ParseAddrPort(s); err == nil {
		return netip.AddrPortFrom(n.address(p.Addr().Unmap().WithZone(""), true), p.Port()).String()
	}
	return bad
}

// poolCIDR keeps the CIDR of a pool, and remembers it.
func (n *Anonymizer) poolCIDR(s string) string {
	if p, ok := parseCIDR(s); ok && n.collecting {
		n.pools = append(n.pools, p)
	}
	return n.addressList(s)
}

// addressList keeps the addresses and CIDRs in a text, with commas between, but for
// addresses that are replaced elsewhere: a host-network pod has its node's.
func (n *Anonymizer) addressList(s string) string {
	parts := strings.Split(s, ",")
	for i, p := range parts {
		trimmed := strings.TrimSpace(p)
		one, ok := parseNodeAddress(trimmed)
		a := one.Addr()
		switch to := n.address(a, false); {
		case trimmed == "":
		case !ok:
			parts[i] = bad
		case to != a && one.IsSingleIP():
			if parts[i] = to.String(); strings.Contains(trimmed, "/") {
				parts[i] = netip.PrefixFrom(to, to.BitLen()).String()
			}
		}
	}
	return strings.Join(parts, ",")
}

// networks keeps the addresses in a network status, as [Anonymizer.addressList] does, and
// whether anything in it could not be parsed, and replaces the names of its networks.
func (n *Anonymizer) networks(s string) string {
	all := []any{}
	reason := networkStatuses([]byte(s), func(one networkStatus) {
		for i, a := range one.IPs {
			one.IPs[i] = n.address(a, false)
		}
		one.IPs = append([]netip.Addr{}, one.IPs...)
		if namespace, name, ok := strings.Cut(one.Name, "/"); ok {
			one.Name = n.name(someNamespace, namespace) + "/" + n.name(someNetwork, name)
		} else {
			one.Name = n.name(someNetwork, one.Name)
		}
		all = append(all, one)
	})
	if reason != "" {
		all = append(all, map[string][]string{"ips": {bad}})
	}
	out, _ := json.Marshal(all) // texts always can be
	return string(out)
}

// templates are addresses for documentation (RFC 5737, RFC 3849): replacements have
// their bits where all the addresses of a cluster agree.
var templates = []netip.Addr{
	netip.MustParseAddr("203.0.113.100"), netip.MustParseAddr("198.51.100.100"), netip.MustParseAddr("192.0.2.100"),
	netip.MustParseAddr("2001:db8::64"), netip.MustParseAddr("2001:db8:64::64"),
}

// replaceAddresses gives every address that was collected its replacement. Two that
// share so many leading bits share as many after, and sort as before: what lies in one
// subnet goes on doing so, whatever its length.
func (n *Anonymizer) replaceAddresses() {
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

// replaceLike gives sorted addresses that share their first bits replacements that
// begin with as many bits of like. It reports whether none of those lies in a pool.
func (n *Anonymizer) replaceLike(all []netip.Addr, like []byte, bits int) bool {
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
