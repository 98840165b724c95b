package source

import (
	"math"
	"net/netip"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// rawRoute is a route as the ip command or an agent writes it.
type rawRoute struct {
	route blocks.HostRoute
	dst   string
	// sixth is true if the route is known to be one of IPv6.
	sixth, fourth  bool
	dead, linkdown bool
	badMetric      bool
	hops           int
}

// routes reads a list of routes. Those of other networks than the cluster's pools
// are passed over, and so are those that are dead, which no packet takes.
func (d *viewDraft) routes(r *jsonReader) {
	if r.peek() != '[' {
		if !r.null() {
			d.view.RoutesPartial = true
			d.problem("routes", "is no list")
		}
		return
	}
	r.array(func(int) {
		if d.refused != "" {
			return
		}
		field := r.field()
		if field == "" || field[0] == '[' {
			field = "routes" + field
		}
		before := len(r.faults)
		var raw rawRoute
		object := r.object(func(key []byte) { d.routeField(r, &raw, string(key)) })
		faults := r.faults[before:]
		r.faults = r.faults[:before]
		bad := func(what, reason string) {
			d.view.RoutesPartial = true
			d.problem(field+what, reason)
		}
		switch {
		case !object:
			bad("", "is no object")
			return
		case len(faults) > 0:
			bad("", "is not a route: "+faults[0].reason)
			return
		}
		d.keepRoute(&raw, bad)
	})
}

// routeField reads one member of a route.
func (d *viewDraft) routeField(r *jsonReader, raw *rawRoute, key string) {
	switch key {
	case "dst":
		raw.dst = string(orEmpty(r.str()))
	case "type":
		raw.route.Type = d.text(r)
	case "protocol":
		raw.route.Protocol = d.word(r)
	case "table":
		raw.route.Table = d.word(r)
	case "metric":
		n, ok := r.int()
		raw.badMetric = !ok || n < 0 || n > math.MaxUint32
		raw.route.Metric = int(n)
	case "pref": // of IPv6 routes only
		raw.sixth = true
	case "gateway", "via", "dev", "flags":
		d.hopField(r, raw, key)
	case "nexthops":
		if r.peek() != '[' {
			r.skip()
			return
		}
		dead := 0
		r.array(func(int) {
			hop := rawRoute{}
			r.object(func(key []byte) { d.hopField(r, &hop, string(key)) })
			raw.hops++
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
		raw.dead = raw.dead || raw.hops > 0 && dead == raw.hops
	}
}

// hopField reads a member that says where a route leads.
func (d *viewDraft) hopField(r *jsonReader, raw *rawRoute, key string) {
	gateway := func(s string) {
		raw.route.Gateway = d.strings.bytes([]byte(s))
		if a, err := netip.ParseAddr(s); err == nil && a.Is4() {
			raw.fourth = true
		} else if err == nil {
			raw.sixth = true
		}
	}
	switch key {
	case "gateway":
		gateway(string(orEmpty(r.str())))
	case "via": // a gateway of the other family, or in what old versions write a text
		if r.peek() != '{' {
			raw.route.Gateway = d.text(r)
			return
		}
		r.object(func(key []byte) {
			if string(key) == "host" {
				raw.route.Gateway = d.text(r)
			}
		})
	case "dev":
		raw.route.Dev = d.text(r)
	case "flags":
		r.array(func(int) {
			switch string(orEmpty(r.str())) {
			case "dead":
				raw.dead = true
			case "linkdown":
				raw.linkdown = true
			}
		})
	}
}

// word reads a name or a number as text.
func (d *viewDraft) word(r *jsonReader) string {
	if c := r.peek(); c >= '0' && c <= '9' {
		n, ok := r.integer()
		if !ok {
			return ""
		}
		return d.strings.bytes(n)
	}
	return d.text(r)
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
		bad(".metric", "is no metric: those are 0 to 4294967295")
		return
	}
	var to []netip.Prefix
	if raw.dst == "default" {
		to = d.defaults(raw, &h)
	} else {
		p, ok := exactPrefix(raw.dst)
		if !ok {
			bad(".dst", notA("CIDR", raw.dst))
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
		a, ok := parseAddr(s)
		if !ok {
			return netip.Prefix{}, false
		}
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, ok := parseNetwork(s)
	return p, ok && p == p.Masked()
}
