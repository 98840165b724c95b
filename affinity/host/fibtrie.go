package host

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"
)

// parseFibTrie returns the IPv4 addresses that the text of /proc/PID/net/fib_trie
// shows as configured: the single local addresses of the tables main and local,
// which the kernel prints as one where no routing rule tells them apart.
//
// The file has no lengths of prefixes for addresses. They are taken from the most
// specific route to a connected network that contains the address, which the
// kernel makes for every address but those of /32, such as a pod of Calico has.
// Lines that are not understood are passed over.
func parseFibTrie(text []byte) []netip.Prefix {
	var locals []netip.Addr
	var connected []netip.Prefix
	var at netip.Addr // the leaf that the following lines tell about
	inTable := false
	for line := range bytes.Lines(text) {
		line = bytes.TrimRight(line, "\n")
		if len(line) > 0 && line[0] != ' ' {
			inTable = bytes.Equal(line, []byte("Main:")) || bytes.Equal(line, []byte("Local:"))
			at = netip.Addr{}
			continue
		}
		if !inTable {
			continue
		}
		line = bytes.TrimLeft(line, " ")
		switch {
		case bytes.HasPrefix(line, []byte("|-- ")):
			at, _ = netip.ParseAddr(string(line[4:]))
		case bytes.HasPrefix(line, []byte("+-- ")):
			at = netip.Addr{}
		case bytes.HasPrefix(line, []byte("/")) && at.Is4():
			switch {
			case bytes.Equal(line, []byte("/32 host LOCAL")):
				locals = append(locals, at)
			case bytes.HasSuffix(line, []byte(" link UNICAST")):
				if bits, ok := decimal(line[1 : len(line)-len(" link UNICAST")]); ok && bits < 32 {
					connected = append(connected, netip.PrefixFrom(at, int(bits)))
				}
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

// tidyAddresses sorts addresses and leaves out repeated ones, and those that every
// namespace has or that mean nothing outside of it: loopback, link-local and
// multicast addresses.
func tidyAddresses(all []netip.Prefix) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(all))
	for _, p := range all {
		a := p.Addr()
		if !p.IsValid() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
			continue
		}
		out = append(out, p)
	}
	slices.SortFunc(out, compareAddresses)
	return slices.Compact(out)
}

// compareAddresses orders by address, unlike [netip.Prefix.Compare], which orders
// networks.
func compareAddresses(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// decimal reads an unsigned number that is all of b.
func decimal(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 19 {
		return 0, false
	}
	var n uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}
