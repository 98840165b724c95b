package host

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"go4.org/netipx"
	"golang.org/x/sys/unix"

	"github.com/calico-audit/calico-audit/blocks"
)

// lookup asks the kernel where the node itself would send packets to an address, without a
// mark and without a source address. An answer without a result is unknown.
func (s *scan) lookup(a netip.Addr, table *covers, t *texts) (blocks.HostLookup, error) {
	answers, err := s.kernel.RouteGetWithOptions(a.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err != nil {
		return table.refused(a, err)
	}
	var l blocks.HostLookup
	if len(answers) > 0 {
		if r, ok := t.route(&answers[0]); ok {
			l = blocks.HostLookup{Result: r.Type, Gateway: r.Gateway, Dev: r.Dev, Table: r.Table}
			if answers[0].Flags&unix.RTM_F_CLONED == 0 { // otherwise the kernel is too old to name the matching route
				l.Match = r.Dst
			}
		}
	}
	return l, nil
}

// refused interprets a kernel error. The kernel returns an error if a route drops or
// refuses: EINVAL for blackhole, EHOSTUNREACH for unreachable, EACCES for prohibit
// (fib_props in net/ipv4/fib_semantics.c, ip6_rt_type_to_error in net/ipv6/route.c), and
// ENETUNREACH without a matching route. It also returns EINVAL for other reasons, such as
// an invalid source address, so a blackhole needs a listed blackhole route.
func (c *covers) refused(a netip.Addr, err error) (blocks.HostLookup, error) {
	for refusal, result := range refusals {
		if !errors.Is(err, refusal) {
			continue
		}
		if result == blocks.RouteNone {
			return blocks.HostLookup{Result: result}, nil
		}
		match, table, listed := c.refusal(a, result)
		if result == blocks.RouteBlackhole && !listed {
			return blocks.HostLookup{}, nil
		}
		return blocks.HostLookup{Result: result, Match: match, Table: table}, nil
	}
	return blocks.HostLookup{}, fmt.Errorf("looking up %s: %w", a, err)
}

var refusals = map[unix.Errno]string{
	unix.EINVAL: blocks.RouteBlackhole, unix.EHOSTUNREACH: blocks.RouteUnreachable,
	unix.EACCES: blocks.RouteProhibit, unix.ENETUNREACH: blocks.RouteNone,
}

// lookups looks up the addresses within routes that drop or refuse.
func (s *scan) lookups(t *texts) error {
	cidrs := candidates(s.view.Routes)
	table := newCovers(s.view.Routes, cidrs, s.blackholeRule)
	left := s.MaxLookups
	var beyond int
	var odd []netip.Addr
	for _, cidr := range cidrs {
		if size(cidr) > left {
			beyond++
			continue
		}
		left -= size(cidr)
		if err := s.ctx.Err(); err != nil {
			return err
		}
		answers := make([]blocks.HostLookup, size(cidr))
		for i, a := 0, cidr.Addr(); i < len(answers); i, a = i+1, a.Next() {
			var err error
			if answers[i], err = s.lookup(a, table, t); err != nil {
				return err
			}
			if unknown(answers[i]) {
				odd = append(odd, a)
			}
		}
		s.view.Lookups = append(s.view.Lookups, compact(cidr, answers)...)
	}
	if beyond > 0 {
		s.gap("the addresses of %d blackhole, unreachable or prohibit routes were not looked up: together they hold more than %d", beyond, s.MaxLookups)
	}
	if len(odd) > 0 {
		s.gap("the kernel refused to look up %s with \"invalid argument\", although no listed route is a blackhole for it; the answer is ignored", few(odd))
	}
	return nil
}

// covers finds listed routes for an address.
type covers struct {
	tables        map[string]map[netip.Prefix]blocks.HostRoute
	blackholeRule bool
}

// newCovers indexes the routes that may match an address of the CIDRs, which must be sorted
// and disjoint.
func newCovers(routes []blocks.HostRoute, cidrs []netip.Prefix, blackholeRule bool) *covers {
	c := &covers{tables: map[string]map[netip.Prefix]blocks.HostRoute{}, blackholeRule: blackholeRule}
	for _, r := range routes {
		// The first CIDR that does not end before the start of the route's destination.
		i, _ := slices.BinarySearchFunc(cidrs, r.Dst.Addr(), func(p netip.Prefix, a netip.Addr) int {
			return netipx.PrefixLastIP(p).Compare(a)
		})
		if i == len(cidrs) || !cidrs[i].Overlaps(r.Dst) {
			continue
		}
		t := c.tables[r.Table]
		if t == nil {
			t = map[netip.Prefix]blocks.HostRoute{}
			c.tables[r.Table] = t
		}
		if old, ok := t[r.Dst]; !ok || r.Metric < old.Metric {
			t[r.Dst] = r
		}
	}
	return c
}

// refusal returns the destination and table of the listed route that explains a refused lookup. If
// routes of several tables or a rule may explain it, match is invalid, but listed is true.
func (c *covers) refusal(a netip.Addr, result string) (match netip.Prefix, table string, listed bool) {
	var found []blocks.HostRoute
	for _, t := range c.tables {
		for bits := a.BitLen(); bits >= 0; bits-- {
			p, err := a.Prefix(bits)
			if err != nil {
				break
			}
			if r, ok := t[p]; ok {
				if r.Type == result {
					found = append(found, r)
				}
				break
			}
		}
	}
	switch {
	case len(found) == 1 && !c.blackholeRule:
		return found[0].Dst, found[0].Table, true
	case len(found) > 0:
		return netip.Prefix{}, "", true
	}
	return netip.Prefix{}, "", c.blackholeRule && result == blocks.RouteBlackhole
}
