package host

import (
	"cmp"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/calico-audit/calico-audit/blocks"
)

// candidates returns the CIDRs whose addresses to look up: the destinations of routes that
// drop or refuse. CIDRs with more than maxCIDR addresses, and CIDRs within another, are
// omitted. So are IPv4-mapped IPv6 addresses (::ffff:10.0.0.1): no one uses them, and the
// library cannot look them up.
func candidates(routes []blocks.HostRoute) []netip.Prefix {
	var all []netip.Prefix
	for _, r := range routes {
		if drops(r.Type) && !r.Dst.Addr().Is4In6() && r.Dst.Addr().BitLen()-r.Dst.Bits() <= maxHostBits {
			all = append(all, r.Dst)
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare) // a CIDR sorts before those within it
	var out []netip.Prefix
	for _, p := range all {
		if n := len(out); n == 0 || !out[n-1].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out
}

// size returns the number of addresses of a CIDR from candidates.
func size(p netip.Prefix) int { return 1 << (p.Addr().BitLen() - p.Bits()) }

// compact summarises the answers for the addresses of a CIDR, in order, in few lookups: one with
// the most common answer for the whole CIDR, and more specific ones for different answers. An
// answer without a result is unknown; the lookups then do not cover its address.
func compact(cidr netip.Prefix, answers []blocks.HostLookup) []blocks.HostLookup {
	var out []blocks.HostLookup
	if slices.ContainsFunc(answers, unknown) {
		out = split(nil, cidr, answers, blocks.HostLookup{})
	} else {
		common := mostCommon(answers)
		out = split([]blocks.HostLookup{at(common, cidr)}, cidr, answers, common)
	}
	slices.SortFunc(out, func(a, b blocks.HostLookup) int { return a.Dst.Compare(b.Dst) })
	return out
}

// split adds lookups for the parts of a CIDR whose answer differs from said, which already covers
// the CIDR.
func split(out []blocks.HostLookup, cidr netip.Prefix, answers []blocks.HostLookup, said blocks.HostLookup) []blocks.HostLookup {
	if !slices.ContainsFunc(answers, func(a blocks.HostLookup) bool { return a != answers[0] }) {
		if answers[0] != said && !unknown(answers[0]) {
			out = append(out, at(answers[0], cidr))
		}
		return out
	}
	half := len(answers) / 2
	low := netip.PrefixFrom(cidr.Addr(), cidr.Bits()+1)
	high := netip.PrefixFrom(netipx.PrefixLastIP(low).Next(), cidr.Bits()+1)
	return split(split(out, low, answers[:half], said), high, answers[half:], said)
}

func unknown(l blocks.HostLookup) bool { return l.Result == "" }

func at(l blocks.HostLookup, cidr netip.Prefix) blocks.HostLookup {
	l.Dst = cidr
	return l
}

// mostCommon returns the most frequent answer; the first of several.
func mostCommon(answers []blocks.HostLookup) blocks.HostLookup {
	count := map[blocks.HostLookup]int{}
	for _, a := range answers {
		count[a]++
	}
	return slices.MaxFunc(answers, func(a, b blocks.HostLookup) int { return cmp.Compare(count[a], count[b]) })
}
