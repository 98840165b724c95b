package host

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"strconv"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/calico-audit/calico-audit/blocks"
)

// listRoutes lists the routes of one address family and calls f with each.
func (k *kernel) listRoutes(family int, f func(rawRoute)) error {
	request := newRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP, &nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family)}})
	return k.routes.list(request, func(message []byte) {
		if r, ok := parseRoute(message); ok && r.family == family && !r.cloned {
			f(r)
		}
	})
}

// rawRoute is a route in the kernel's numbers.
type rawRoute struct {
	family   int
	dst      netip.Prefix
	kind     uint8
	protocol uint8
	table    uint32
	metric   uint32
	gateway  netip.Addr
	link     int
	// cloned is true for a route that the kernel derived for one destination: a
	// cached exception in listings, a plain answer in lookups.
	cloned bool
}

// parseRoute reads an RTM_NEWROUTE message: an rtmsg, then attributes. It returns
// false for what is no route to an IP network.
func parseRoute(m []byte) (rawRoute, bool) {
	if len(m) < unix.SizeofRtMsg {
		return rawRoute{}, false
	}
	r := rawRoute{
		family: int(m[0]), table: uint32(m[4]), protocol: m[5], kind: m[7],
		cloned: binary.NativeEndian.Uint32(m[8:])&unix.RTM_F_CLONED != 0,
	}
	var dst netip.Addr
	switch r.family {
	case unix.AF_INET:
		dst = netip.IPv4Unspecified()
	case unix.AF_INET6:
		dst = netip.IPv6Unspecified()
	default:
		return rawRoute{}, false
	}
	ok := true
	attributes(m[unix.SizeofRtMsg:], func(kind uint16, value []byte) {
		switch kind {
		case unix.RTA_DST:
			dst, ok = netip.AddrFromSlice(value)
		case unix.RTA_TABLE:
			r.table = number(value)
		case unix.RTA_PRIORITY:
			r.metric = number(value)
		case unix.RTA_MULTIPATH:
			// A list of struct rtnexthop (length, flags, hops, link), each with attributes.
			if len(value) < unix.SizeofRtNexthop || r.link != 0 {
				break
			}
			r.link = int(binary.NativeEndian.Uint32(value[4:]))
			if size := int(binary.NativeEndian.Uint16(value)); size >= unix.SizeofRtNexthop && size <= len(value) {
				attributes(value[unix.SizeofRtNexthop:size], r.hop)
			}
		default:
			r.hop(kind, value)
		}
	})
	if !ok || int(m[1]) > dst.BitLen() {
		return rawRoute{}, false
	}
	r.dst = netip.PrefixFrom(dst, int(m[1])).Masked()
	return r, true
}

// hop reads an attribute that says where a route leads.
func (r *rawRoute) hop(kind uint16, value []byte) {
	switch kind {
	case unix.RTA_OIF:
		r.link = int(number(value))
	case unix.RTA_GATEWAY:
		r.gateway, _ = netip.AddrFromSlice(value)
	case unix.RTA_VIA: // a gateway of the other family: its family in 2 bytes, its address
		if len(value) > 2 {
			r.gateway, _ = netip.AddrFromSlice(value[2:])
		}
	}
}

func number(value []byte) uint32 {
	if len(value) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(value)
}

// texts turns the kernel's numbers into text. Equal texts share memory: a node may
// have very many routes through few gateways.
type texts struct {
	links    map[int]string
	gateways map[netip.Addr]string
}

func (t *texts) link(index int) string {
	if index == 0 {
		return ""
	}
	if name, ok := t.links[index]; ok {
		return name
	}
	return "if" + strconv.Itoa(index) // it came after the links were listed
}

func (t *texts) gateway(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	text, ok := t.gateways[a]
	if !ok {
		text = a.String()
		t.gateways[a] = text
	}
	return text
}

func (t *texts) route(r rawRoute) blocks.HostRoute {
	return blocks.HostRoute{
		Dst: r.dst, Type: typeName(r.kind), Protocol: protocolName(r.protocol), Table: tableName(r.table),
		Metric: int(r.metric), Gateway: t.gateway(r.gateway), Dev: t.link(r.link),
	}
}

// compareRoutes orders routes: those of the main table first, then by destination.
func compareRoutes(a, b blocks.HostRoute) int {
	if a.Table != b.Table && (a.Table == "main" || b.Table == "main") {
		if a.Table == "main" {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.Table, b.Table), a.Dst.Compare(b.Dst), cmp.Compare(a.Metric, b.Metric),
		cmp.Compare(a.Type, b.Type), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Gateway, b.Gateway), cmp.Compare(a.Dev, b.Dev))
}
