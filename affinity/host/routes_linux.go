package host

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/calico-audit/calico-audit/blocks"
)

// routes reads the routes of both families in the tables that rules refer to.
func (s *scan) routes(t *texts, links []netlink.Link) error {
	var all chunks
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		listed, err := s.familyRoutes(t, links, family)
		all = append(all, listed...)
		if family == unix.AF_INET6 && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)) {
			continue // the kernel has no IPv6
		}
		if err != nil {
			return err
		}
	}
	s.view.Routes = slices.Concat(all...)
	slices.SortFunc(s.view.Routes, compareRoutes)
	// Drop routes that differ only in fields that a view omits, such as their TOS.
	s.view.Routes = slices.Compact(s.view.Routes)
	if s.view.Routes == nil {
		s.view.Routes = []blocks.HostRoute{}
	}
	return nil
}

// familyRoutes reads the routes of a family. It limits ordinary routes, but keeps all that
// drop.
func (s *scan) familyRoutes(t *texts, links []netlink.Link, family int) (chunks, error) {
	name := blocks.IPv4.String()
	if family == unix.AF_INET6 {
		name = blocks.IPv6.String()
	}
	set, kept, err := steady(s.ctx, func() (ruleSet, error) { return readRules(family) })
	if err != nil {
		return nil, fmt.Errorf("listing the %s routing rules: %w", name, err)
	}
	if !kept {
		s.gap(neverSteady, name+" routing rules", dumpTries)
	}
	s.blackholeRule = s.blackholeRule || set.blackhole
	for _, l := range links {
		if vrf, ok := l.(*netlink.Vrf); ok && set.l3mdev && vrf.Table != 0 {
			set.tables = append(set.tables, vrf.Table)
		}
	}
	var ordinary, cut int
	listed, kept, err := steady(s.ctx, func() (out chunks, err error) {
		ordinary, cut = 0, 0
		// Without this filter, the library lists only the main table.
		all := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
		err = s.kernel.RouteListFilteredIter(family, all, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
			if !slices.Contains(set.tables, uint32(r.Table)) {
				return true
			}
			if !drops(nameIn(typeNames, uint8(r.Type))) {
				if ordinary == s.MaxRoutes {
					cut++
					return true
				}
				ordinary++
			}
			if route, ok := t.route(&r); ok {
				out.add(route)
			}
			return true
		})
		return out, err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the %s routes: %w", name, err)
	}
	if !kept {
		s.gap(neverSteady, name+" routes", dumpTries)
	}
	if cut > 0 {
		s.gap("%d %s routes are omitted: a view holds %d, plus those that drop or refuse traffic", cut, name, s.MaxRoutes)
	}
	return listed, nil
}

// chunks holds routes in portions, because a growing slice would leave several times its
// size as garbage.
type chunks [][]blocks.HostRoute

func (c *chunks) add(r blocks.HostRoute) {
	if n := len(*c); n == 0 || len((*c)[n-1]) == cap((*c)[n-1]) {
		*c = append(*c, make([]blocks.HostRoute, 0, 1024))
	}
	last := &(*c)[len(*c)-1]
	*last = append(*last, r)
}

// ruleSet summarises the routing rules of one address family.
type ruleSet struct {
	// tables are the tables that rules refer to, without local, in the order of the rules.
	tables []uint32
	// l3mdev is true if a rule sends packets of VRF devices to their tables.
	l3mdev bool
	// blackhole is true if a rule itself drops packets.
	blackhole bool
}

// readRules lists the routing rules. It ignores the conditions of rules (mark, source): a
// table counts if any packet may reach it. The library's own list omits the actions of
// rules, and whether they are for VRF devices.
func readRules(family int) (ruleSet, error) {
	var set ruleSet
	var bad error
	request := nl.NewNetlinkRequest(unix.RTM_GETRULE, unix.NLM_F_DUMP)
	request.AddData(nl.NewIfInfomsg(family))
	err := request.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWRULE, func(m []byte) bool {
		bad = set.add(m)
		return bad == nil
	})
	return set, cmp.Or(bad, err)
}

// add adds a rule from a kernel message: a fib_rule_hdr, which is laid out like an rtmsg
// with the action in place of the type, followed by attributes.
func (s *ruleSet) add(m []byte) error {
	if len(m) < unix.SizeofRtMsg {
		return unix.EBADMSG
	}
	attributes, err := nl.ParseRouteAttr(m[unix.SizeofRtMsg:])
	if err != nil {
		return err
	}
	table, action := uint32(m[4]), m[7]
	l3mdev := false
	for _, a := range attributes {
		switch {
		case a.Attr.Type == nl.FRA_TABLE && len(a.Value) >= 4:
			table = binary.NativeEndian.Uint32(a.Value)
		case a.Attr.Type == nl.FRA_L3MDEV && len(a.Value) > 0:
			l3mdev = a.Value[0] != 0
		}
	}
	switch {
	case action == nl.FR_ACT_BLACKHOLE:
		s.blackhole = true
	case action == nl.FR_ACT_TO_TBL && l3mdev:
		s.l3mdev = true
	case action == nl.FR_ACT_TO_TBL && table != 0 && table != tableLocal && !slices.Contains(s.tables, table):
		s.tables = append(s.tables, table)
	}
	return nil
}

// route converts a route for a view; of several next hops it keeps the first. It returns
// false if the route is not to an IP network.
func (t *texts) route(r *netlink.Route) (blocks.HostRoute, bool) {
	if r.Dst == nil {
		return blocks.HostRoute{}, false
	}
	dst, ok := netip.AddrFromSlice(r.Dst.IP)
	if r.Family == unix.AF_INET {
		dst = dst.Unmap() // the library returns 0.0.0.0 with 16 bytes
	}
	bits, _ := r.Dst.Mask.Size()
	gateway, link, via := r.Gw, r.LinkIndex, r.Via
	if link == 0 && len(r.MultiPath) > 0 {
		first := r.MultiPath[0]
		gateway, link, via = first.Gw, first.LinkIndex, first.Via
	}
	if v, ok := via.(*netlink.Via); ok { // a gateway of the other family
		gateway = v.Addr
	}
	return blocks.HostRoute{
		Dst: netip.PrefixFrom(dst, bits).Masked(), Type: nameIn(typeNames, uint8(r.Type)), Protocol: nameIn(protocolNames, uint8(r.Protocol)), Table: nameIn(tableNames, uint32(r.Table)),
		Metric: r.Priority, Gateway: t.gateway(gateway), Dev: t.link(link),
	}, ok && bits <= dst.BitLen()
}

func (t *texts) link(index int) string {
	if index == 0 {
		return ""
	}
	if name, ok := t.links[index]; ok {
		return name
	}
	return "if" + strconv.Itoa(index) // created after the links were listed
}

func (t *texts) gateway(ip net.IP) string {
	a, ok := netip.AddrFromSlice(ip)
	if !ok {
		return ""
	}
	text, ok := t.gateways[a]
	if !ok {
		text = a.String()
		t.gateways[a] = text
	}
	return text
}

// compareRoutes orders routes: the main table first, then by table and destination.
func compareRoutes(a, b blocks.HostRoute) int {
	return cmp.Or(before(a.Table == "main", b.Table == "main"), cmp.Compare(a.Table, b.Table), a.Dst.Compare(b.Dst), cmp.Compare(a.Metric, b.Metric),
		cmp.Compare(a.Type, b.Type), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Gateway, b.Gateway), cmp.Compare(a.Dev, b.Dev))
}
