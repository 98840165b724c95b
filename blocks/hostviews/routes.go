package hostviews

import (
	"math"
	"net/netip"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// rawRoute is a route from the ip command or from an agent.
type rawRoute struct {
	route blocks.HostRoute
	dst   string
	// sixth and fourth are true if the route is known to be IPv6 or IPv4.
	sixth, fourth  bool
	dead, linkdown bool
	badMetric      bool
}

// routes reads a list of routes. It skips routes outside the cluster's pools, and dead
// routes, which the kernel does not use.
func (d *viewDraft) routes(r *parse.Reader) {
	d.entries(r, "routes", "a route", &d.view.RoutesPartial, func(r *parse.Reader, bad func(field, reason string)) (parse.Members, func()) {
		var raw rawRoute
		known := raw.hop(r)
		known["dst"], known["type"] = &raw.dst, &raw.route.Type
		known["protocol"], known["table"] = (*parse.Word)(&raw.route.Protocol), (*parse.Word)(&raw.route.Table)
		known["pref"] = func() { raw.sixth = true } // only IPv6 routes have it
		known["metric"] = func() {
			n, ok := r.Int()
			raw.badMetric = !ok || n < 0 || n > math.MaxUint32
			raw.route.Metric = int(n)
		}
		known["nexthops"] = func() {
			if r.Peek() == '[' {
				raw.nexthops(r)
			}
		}
		return known, func() { d.keepRoute(&raw, bad) }
	})
}

// nexthops reads the next hops of a multipath route.
func (raw *rawRoute) nexthops(r *parse.Reader) {
	hops, dead := 0, 0
	r.Array(func(int) {
		var hop rawRoute
		r.Fields(hop.hop(r))
		hops++
		if hop.dead {
			dead++
			return
		}
		raw.linkdown = raw.linkdown || hop.linkdown
		raw.sixth, raw.fourth = raw.sixth || hop.sixth, raw.fourth || hop.fourth
		if raw.route.Gateway == "" && raw.route.Dev == "" {
			raw.route.Gateway, raw.route.Dev = hop.route.Gateway, hop.route.Dev
		}
	})
	raw.dead = raw.dead || hops > 0 && dead == hops
}

// hop returns the members that describe a next hop.
func (raw *rawRoute) hop(r *parse.Reader) parse.Members {
	return parse.Members{
		"dev": &raw.route.Dev,
		"gateway": func() {
			raw.route.Gateway = r.String()
			if a, err := netip.ParseAddr(raw.route.Gateway); err == nil {
				raw.fourth, raw.sixth = raw.fourth || a.Is4(), raw.sixth || !a.Is4()
			}
		},
		"via": func() { // a gateway of the other family; old versions write a string
			if r.Peek() != '{' {
				raw.route.Gateway = r.String()
				return
			}
			r.Fields(parse.Members{"host": &raw.route.Gateway})
		},
		"flags": func() {
			r.Array(func(int) {
				flag := r.String()
				raw.dead = raw.dead || flag == "dead"
				raw.linkdown = raw.linkdown || flag == "linkdown"
			})
		},
	}
}

// routeLinkDown is the type of a route whose link is down. A kernel setting decides whether
// it is used.
const routeLinkDown = "linkdown"

// keepRoute keeps a route that concerns the cluster.
func (d *viewDraft) keepRoute(raw *rawRoute, bad func(what, reason string)) {
	h := raw.route
	if h.Type == "" {
		h.Type = blocks.RouteUnicast
	}
	if h.Table == "" {
		h.Table = "main"
	}
	if raw.dst == "" {
		bad(".dst", "is missing")
		return
	}
	if raw.badMetric {
		bad(".metric", "is not a metric: those are 0 to 4294967295")
		return
	}
	var to []netip.Prefix
	if raw.dst == "default" {
		to = d.defaults(raw, &h)
	} else {
		p, ok := exactPrefix(raw.dst)
		if !ok {
			bad(".dst", parse.NotA("CIDR", raw.dst))
			return
		}
		to = []netip.Prefix{p}
	}
	if raw.dead {
		return
	}
	if raw.linkdown && h.Type == blocks.RouteUnicast {
		h.Type = routeLinkDown
	}
	for _, p := range to {
		if !d.concerned.OverlapsPrefix(p) {
			continue
		}
		if d.full(len(d.view.Routes), "routes") {
			return
		}
		h.Dst = p
		d.view.Routes = append(d.view.Routes, h)
	}
}

// defaults returns the destinations that "default" may mean. Other members may reveal the
// family. If they do not, a unicast route counts for both families. A dropping route in the
// main table is skipped, because it may be of the other family. In another table, which the
// kernel may not use, it counts for both families with an unknown type.
func (d *viewDraft) defaults(raw *rawRoute, h *blocks.HostRoute) []netip.Prefix {
	four, six := netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	switch {
	case raw.sixth && !raw.fourth:
		return []netip.Prefix{six}
	case raw.fourth && !raw.sixth:
		return []netip.Prefix{four}
	case h.Type == blocks.RouteUnicast:
		return []netip.Prefix{four, six}
	case h.Table == "main" || h.Table == "254":
		return nil
	}
	h.Type = routeUnsure
	return []netip.Prefix{four, six}
}

// routeUnsure is the type of a route that may be of the other family.
const routeUnsure = "unknown"

// exactPrefix parses a destination: a CIDR without host bits, or an address.
func exactPrefix(s string) (netip.Prefix, bool) {
	if !strings.Contains(s, "/") {
		a, ok := blocks.ParseAddr(s)
		if !ok {
			return netip.Prefix{}, false
		}
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, ok := blocks.ParseNetwork(s)
	return p, ok && p == p.Masked()
}

// lookups reads the kernel's lookup results.
func (d *viewDraft) lookups(r *parse.Reader) {
	d.entries(r, "lookups", "a lookup", &d.view.LookupsPartial, func(_ *parse.Reader, bad func(field, reason string)) (parse.Members, func()) {
		var l blocks.HostLookup
		var dst, match string
		return parse.Members{"dst": &dst, "result": &l.Result, "match": &match, "gateway": &l.Gateway, "dev": &l.Dev, "table": (*parse.Word)(&l.Table)}, func() {
			var ok, okMatch bool
			l.Dst, ok = exactPrefix(dst)
			l.Match, okMatch = exactPrefix(match)
			switch {
			case !ok:
				bad(".dst", parse.NotA("CIDR", dst))
			case l.Result == "":
				bad(".result", "is missing")
			case match != "" && (!okMatch || !l.Match.Overlaps(l.Dst)):
				bad(".match", parse.NotA("CIDR around dst", match))
			case !d.concerned.OverlapsPrefix(l.Dst) || d.full(len(d.view.Lookups), "lookups"):
			default:
				d.view.Lookups = append(d.view.Lookups, l)
			}
		}
	})
}
