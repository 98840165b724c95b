package host

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"
)

// parseFibTrie returns the configured IPv4 addresses in the text of /proc/PID/net/fib_trie:
// the single local addresses of the tables main and local. The kernel prints these as one
// table unless a routing rule separates them.
//
// The file has no prefix lengths of addresses. They are taken from the most specific route
// to a connected network that contains the address. The kernel makes such a route for every
// address except those with /32, such as a Calico pod's. Unparseable lines are skipped.
func parseFibTrie(text []byte) []netip.Prefix {
	var locals []netip.Addr
	var connected []netip.Prefix
	var at netip.Addr // the leaf of the following lines
	inTable := false
	for line := range bytes.Lines(text) {
		line = bytes.TrimRight(line, "\n")
		if len(line) > 0 && line[0] != ' ' {
			inTable = string(line) == "Main:" || string(line) == "Local:"
			at = netip.Addr{}
			continue
		}
		if !inTable {
			continue
		}
		line = bytes.TrimLeft(line, " ")
		if leaf, ok := bytes.CutPrefix(line, []byte("|-- ")); ok {
			at, _ = netip.ParseAddr(string(leaf))
		} else if bytes.HasPrefix(line, []byte("+-- ")) {
			at = netip.Addr{}
		} else if length, ok := bytes.CutPrefix(line, []byte("/")); !ok || !at.Is4() {
			continue
		} else if string(length) == "32 host LOCAL" {
			locals = append(locals, at)
		} else if length, ok := bytes.CutSuffix(length, []byte(" link UNICAST")); ok {
			if bits, err := strconv.ParseUint(string(length), 10, 8); err == nil && bits < 32 {
				connected = append(connected, netip.PrefixFrom(at, int(bits)))
			}
		}
	}
	slices.SortFunc(connected, func(a, b netip.Prefix) int { return b.Bits() - a.Bits() })
	var out []netip.Prefix
	for _, a := range locals {
		bits := 32
		if i := slices.IndexFunc(connected, func(p netip.Prefix) bool { return p.Contains(a) }); i >= 0 {
			bits = connected[i].Bits()
		}
		out = append(out, netip.PrefixFrom(a, bits))
	}
	return tidyAddresses(out)
}

// parseIfInet6 returns the IPv6 addresses in the text of /proc/PID/net/if_inet6. A line has
// the address in 32 hexadecimal digits, then, in hexadecimal, the number of the interface,
// the prefix length, scope and flags, and the interface's name. Unparseable lines are
// skipped.
func parseIfInet6(text []byte) []netip.Prefix {
	var out []netip.Prefix
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) < 3 || len(fields[0]) != 32 {
			continue
		}
		var raw [16]byte
		_, err := hex.Decode(raw[:], fields[0])
		bits, bitsErr := strconv.ParseUint(string(fields[2]), 16, 8)
		if err == nil && bitsErr == nil && bits <= 128 {
			out = append(out, netip.PrefixFrom(netip.AddrFrom16(raw), int(bits)))
		}
	}
	return tidyAddresses(out)
}

// tidyAddresses sorts addresses. It removes duplicates, and loopback, link-local and
// multicast addresses, which every namespace has or which mean nothing outside of it.
func tidyAddresses(all []netip.Prefix) []netip.Prefix {
	all = slices.DeleteFunc(all, func(p netip.Prefix) bool {
		a := p.Addr()
		return !p.IsValid() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified()
	})
	slices.SortFunc(all, compareAddresses)
	return slices.Compact(all)
}

// compareAddresses orders by address first; [netip.Prefix.Compare] orders by network.
func compareAddresses(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
