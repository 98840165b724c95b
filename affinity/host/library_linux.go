package host

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/calico-audit/calico-audit/blocks"
)

// allTables makes the library list the routes of every table; without it, it lists
// those of the main one alone.
var allTables = &netlink.Route{Table: unix.RT_TABLE_UNSPEC}

// listRoutesLibrary lists the routes of one address family and calls f with each.
func (k *kernel) listRoutesLibrary(family int, f func(*netlink.Route)) error {
	return k.handle.RouteListFilteredIter(family, allTables, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
		f(&r)
		return true
	})
}

// destination returns what a route is for; false if that is no IP network.
func destination(r *netlink.Route) (netip.Prefix, bool) {
	if r.Dst == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(r.Dst.IP)
	bits, _ := r.Dst.Mask.Size()
	if r.Dst.IP.IsUnspecified() && r.Family == unix.AF_INET {
		a = netip.IPv4Unspecified() // the library makes 16 bytes of it
	}
	return netip.PrefixFrom(a, bits).Masked(), ok
}

// hop returns where a route leads: its only next hop, or the first of several.
func hop(r *netlink.Route) (gateway net.IP, link int) {
	gateway, link, via := r.Gw, r.LinkIndex, r.Via
	if len(r.MultiPath) > 0 && link == 0 {
		first := r.MultiPath[0]
		gateway, link, via = first.Gw, first.LinkIndex, first.Via
	}
	if v, ok := via.(*netlink.Via); ok && v != nil { // a gateway of the other family
		gateway = v.Addr
	}
	return gateway, link
}

func (t *texts) ip(ip net.IP) string {
	a, _ := netip.AddrFromSlice(ip)
	return t.gateway(a)
}

func (t *texts) libraryRoute(r *netlink.Route) (blocks.HostRoute, bool) {
	dst, ok := destination(r)
	gateway, link := hop(r)
	return blocks.HostRoute{
		Dst: dst, Type: typeName(uint8(r.Type)), Protocol: protocolName(uint8(r.Protocol)), Table: tableName(uint32(r.Table)),
		Metric: r.Priority, Gateway: t.ip(gateway), Dev: t.link(link),
	}, ok
}

// lookupLibrary asks the kernel where packets to an address go.
func (k *kernel) lookupLibrary(a netip.Addr, table *covers, t *texts) (blocks.HostLookup, error) {
	routes, err := k.handle.RouteGetWithOptions(a.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err != nil {
		return table.refused(a, err)
	}
	if len(routes) == 0 {
		return blocks.HostLookup{}, nil
	}
	r, ok := t.libraryRoute(&routes[0])
	if !ok {
		return blocks.HostLookup{}, nil
	}
	l := blocks.HostLookup{Result: r.Type, Gateway: r.Gateway, Dev: r.Dev, Table: r.Table}
	if routes[0].Flags&unix.RTM_F_CLONED == 0 { // else the kernel is too old to name the route that matched
		l.Match = r.Dst
	}
	return l, nil
}
