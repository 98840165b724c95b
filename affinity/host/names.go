package host

import (
	"strconv"

	"github.com/calico-audit/calico-audit/blocks"
)

// The ip command's names for kernel numbers (rtnetlink.h, and iproute2's files rt_protos
// and rt_tables). Numbers without a name are written in decimal.

var typeNames = map[uint8]string{
	1: blocks.RouteUnicast, 2: blocks.RouteLocal, 3: "broadcast", 4: "anycast", 5: "multicast",
	6: blocks.RouteBlackhole, 7: blocks.RouteUnreachable, 8: blocks.RouteProhibit, 9: blocks.RouteThrow,
	10: "nat", 11: "xresolve",
}

var protocolNames = map[uint8]string{
	1: "redirect", 2: "kernel", 3: "boot", 4: "static", 8: "gated", 9: "ra", 10: "mrt",
	11: "zebra", 12: "bird", 13: "dnrouted", 14: "xorp", 15: "ntk", 16: "dhcp",
	18: "keepalived", 42: "babel", 99: "openr", 186: "bgp", 187: "isis", 188: "ospf",
	189: "rip", 192: "eigrp",
}

const tableLocal = 255

var tableNames = map[uint32]string{253: "default", 254: "main", tableLocal: "local"}

func nameIn[N uint8 | uint32](names map[N]string, n N) string {
	if s, ok := names[n]; ok {
		return s
	}
	return strconv.FormatUint(uint64(n), 10)
}
