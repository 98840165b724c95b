package hostviews

import (
	"math"
	"net/netip"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// rawRoute is a route as the ip command or an agent writes it.
type rawRoute struct {
	route blocks.HostRoute
	dst   string
	// sixth is true if the route is known to be one of IPv6.
	sixth, fourth  bool
	dead, linkdown bool
	badMetric      bool
}

// routes reads a list of routes. Those of other networks than the cluster's pools
// are passed over, and so are those that are dead, which no packet takes.
func (d *viewDraft) routes(r *decode.JSONReader) {
	d.entries(r, "routes", "a route", &d.view.RoutesPartial, func(r *decode.JSONReader, bad func(field, reason string)) (decode.Members, func()) {
		var raw rawRoute
		known := raw.hop(r)
		known["dst"], known["type"] = &raw.dst, &raw.route.Type
		known["protocol"], known["table"] = (*decode.Word)(&raw.route.Protocol), (*decode.Word)(&raw.route.Table)
		known["pref"] = func() { raw.sixth = true } // of IPv6 routes only
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

// nexthops reads where the packets of a route are spread to.
func (raw *rawRoute) nexthops(r *decode.JSONReader) {
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

// hop is where the members go that say where a route leads.
func (raw *rawRoute) hop(r *decode.JSONReader) decode.Members {
	return decode.Members{
		"dev": &raw.route.Dev,
		"gateway": func() {
			raw.route.Gateway = r.String()
			if a, err := netip.ParseAddr(raw.route.Gateway); err == nil {
				raw.fourth, raw.sixth = raw.fourth || a.Is4(), raw.sixth || !a.Is4()
			}
		},
		"via": func() { // a gateway of the other family, or in what old versions write a text
			if r.Peek() != '{' {
				raw.route.Gateway = r.String()
				return
			}
			r.Fields(decode.Members{"host": &raw.route.Gateway})
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

// routeLinkDown stands for the kind of a route whose link is down: whether it is
// taken all the same is a setting of the kernel.
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
			bad(".dst", decode.NotA("CIDR", raw.dst))
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

// defaults returns the destinations that "default" may stand for: it does not tell
// the family, which other members may. Where nothing tells, a route in a table that
// may be asked or not counts for both; one that drops is no statement about the
// other family, and is passed over.
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

// routeUnsure stands for the kind of a route that may not be one of the family at
// hand.
const routeUnsure = "unknown"

// exactPrefix reads a destination: a CIDR without host bits, or an address.
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

// lookups reads the kernel's own answers.
func (d *viewDraft) lookups(r *decode.JSONReader) {
	d.entries(r, "lookups", "a lookup", &d.view.LookupsPartial, func(_ *decode.JSONReader, bad func(field, reason string)) (decode.Members, func()) {
		var l blocks.HostLookup
		var dst, match string
		return decode.Members{"dst": &dst, "result": &l.Result, "match": &match, "gateway": &l.Gateway, "dev": &l.Dev, "table": (*decode.Word)(&l.Table)}, func() {
			var ok, okMatch bool
			l.Dst, ok = exactPrefix(dst)
			l.Match, okMatch = exactPrefix(match)
			switch {
			case !ok:
				bad(".dst", decode.NotA("CIDR", dst))
			case l.Result == "":
				bad(".result", "is missing")
			case match != "" && (!okMatch || !l.Match.Overlaps(l.Dst)):
				bad(".match", decode.NotA("CIDR around dst", match))
			case !d.concerned.OverlapsPrefix(l.Dst) || d.full(len(d.view.Lookups), "lookups"):
			default:
				d.view.Lookups = append(d.view.Lookups, l)
			}
		}
	})
}
