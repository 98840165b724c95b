package host

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strconv"
)

// parseIfInet6 returns the IPv6 addresses of the text of /proc/PID/net/if_inet6. A
// line has the address in 32 hexadecimal digits, then, in hexadecimal, the number
// of the interface, the prefix length, scope and flags, and the interface's name.
// Lines that are not understood are passed over.
func parseIfInet6(text []byte) []netip.Prefix {
	var out []netip.Prefix
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) < 3 || len(fields[0]) != 32 {
			continue
		}
		var raw [16]byte
		if _, err := hex.Decode(raw[:], fields[0]); err != nil {
			continue
		}
		bits, err := strconv.ParseUint(string(fields[2]), 16, 8)
		if err != nil || bits > 128 {
			continue
		}
		out = append(out, netip.PrefixFrom(netip.AddrFrom16(raw), int(bits)))
	}
	return tidyAddresses(out)
}
