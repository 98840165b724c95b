package hosts

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// Outcome classifies how a node's kernel treats packets to an address.
type Outcome int

const (
	// Unclear means that the view does not show it.
	Unclear Outcome = iota
	// Drops means that a blackhole, unreachable or prohibit route wins, or no route matches.
	Drops
	// Forwards means that a route at least as specific as the block leads to another machine.
	Forwards
	// FallsBack means that a route less specific than the block wins, such as the default route. Its
	// destination is unknown.
	FallsBack
	// Delivers means that the node delivers to itself or to one of its own pods.
	Delivers
)

// Answer is the route that a kernel chooses for an address, with its source.
type Answer struct {
	Outcome Outcome
	// Result is the type of the winning route, such as "blackhole".
	Result string
	// Match is the destination of that route; invalid if unknown.
	Match                         netip.Prefix
	Table, Protocol, Gateway, Dev string
	// Lookup is true if the kernel was asked, and false if the answer was derived from its
	// routes.
	Lookup bool
	// Why explains an unclear outcome.
	Why string
	// View is the source of the answer.
	View *blocks.HostView
}

// String describes the winning route in the words of the ip command.
func (r Answer) String() string {
	if r.Outcome == Unclear {
		return "not known: " + r.Why
	}
	return r.route()
}

func (r Answer) route() string {
	out := "a route of type " + r.Result
	switch {
	case r.Result == blocks.RouteNone:
		out = "no route"
	case r.Match.IsValid():
		out = r.Result + " route " + r.Match.String()
	}
	var how []string
	for _, x := range []struct{ word, value string }{{"via", r.Gateway}, {"dev", r.Dev}, {"proto", r.Protocol}, {"table", r.Table}} {
		if x.value != "" {
			how = append(how, x.word+" "+x.value)
		}
	}
	if len(how) > 0 {
		out += " (" + strings.Join(how, ", ") + ")"
	}
	return out
}

// Basis describes how the answer was obtained.
func (r Answer) Basis() string {
	if r.Lookup {
		return "the kernel's own answer"
	}
	return "the most specific of its routes"
}

// AnswerAt returns how a view's kernel treats packets to an address of a block. It prefers
// the kernel's own lookup, if the view has one, over its routes.
func (v *View) AnswerAt(a netip.Addr, block netip.Prefix) Answer {
	p := netip.PrefixFrom(a, a.BitLen())
	out := v.byRoutes(p, block)
	if len(v.lookups) > 0 || v.LookupsPartial {
		if asked, ok := v.byLookup(p, block); ok {
			out = agree(asked, out)
		}
	}
	out.View = v.HostView
	return out
}

// General returns the outcome for the addresses of a block that have no more specific route
// than the block.
func (v *View) General(block netip.Prefix) Answer {
	out := v.byRoutes(block, block)
	if out.Outcome == Unclear {
		if asked, ok := v.byLookup(block, block); ok {
			out = asked
		}
	}
	out.View = v.HostView
	return out
}

// agree returns the kernel's own answer, unless the routes of the same view contradict it:
// one of the two was then read at another time, or is damaged.
func agree(asked, routes Answer) Answer {
	switch {
	case asked.Outcome == Unclear || routes.Outcome == Unclear || asked.Outcome == routes.Outcome:
		return asked
	case asked.Outcome != Drops && routes.Outcome != Drops:
		return asked
	}
	return unclear("the kernel answered %s, while its routes say %s", asked, routes)
}

func unclear(format string, args ...any) Answer {
	return Answer{Why: fmt.Sprintf(format, args...)}
}

// byLookup returns the kernel's own answer; false if it was not asked about the address.
func (v *View) byLookup(of, block netip.Prefix) (Answer, bool) {
	if v.LookupsPartial {
		return unclear("a kernel answer could not be parsed"), true
	}
	for bits := of.Bits(); bits >= 0; bits-- {
		p, _ := of.Addr().Prefix(bits)
		found := v.lookups[p]
		if len(found) == 0 {
			continue
		}
		l := found[0]
		for _, other := range found[1:] {
			if *other != *l {
				return unclear("the kernel gave two answers for %s", p), true
			}
		}
		if l.Match.IsValid() && !l.Match.Contains(of.Addr()) {
			return unclear("the kernel's answer for %s names a route to %s, which does not hold %s", p, l.Match, of.Addr()), true
		}
		r := Answer{Result: l.Result, Match: l.Match, Table: l.Table, Gateway: l.Gateway, Dev: l.Dev, Lookup: true}
		if !r.Match.IsValid() {
			r.Match = v.leading(of, l)
		}
		if r.Match.IsValid() {
			for _, route := range v.routes[r.Match] {
				if route.Type == r.Result && sameTable(route.Table, r.Table) {
					r.Protocol = route.Protocol
				}
			}
		}
		v.classify(&r, block)
		return r, true
	}
	return Answer{}, false
}

// leading returns the most specific route with the result of a lookup, for kernels that do
// not report the matched route.
func (v *View) leading(of netip.Prefix, l *blocks.HostLookup) netip.Prefix {
	for bits := of.Bits(); bits >= 0; bits-- {
		p, _ := of.Addr().Prefix(bits)
		for _, r := range v.routes[p] {
			if r.Type == l.Result && r.Gateway == l.Gateway && r.Dev == l.Dev && sameTable(r.Table, l.Table) {
				return p
			}
		}
	}
	return netip.Prefix{}
}

func sameTable(a, b string) bool { return b == "" || tableName(a) == tableName(b) }

// classify sets the outcome from the type of the route.
func (v *View) classify(r *Answer, block netip.Prefix) {
	switch r.Result {
	case blocks.RouteBlackhole, blocks.RouteUnreachable, blocks.RouteProhibit, blocks.RouteNone:
		r.Outcome = Drops
	case blocks.RouteLocal:
		r.Outcome = Delivers
	case blocks.RouteUnicast:
		switch {
		case !r.Match.IsValid():
			r.Outcome, r.Why = Unclear, "the kernel did not report which of its routes matched"
		case r.Match.Bits() < block.Bits():
			r.Outcome = FallsBack
		case r.Gateway == "" && (strings.HasPrefix(r.Dev, "cali") || v.podDevs[r.Dev]):
			r.Outcome = Delivers
		case r.Gateway == "" && !tunnelDevice(r.Dev):
			r.Outcome, r.Why = Unclear, fmt.Sprintf("its route leads to device %s without a next hop", r.Dev)
		default:
			r.Outcome = Forwards
		}
	default:
		r.Outcome, r.Why = Unclear, fmt.Sprintf("its route is of kind %q", r.Result)
	}
}

// tunnelDevice reports whether a device is one of Calico's tunnels, which need no next hop.
func tunnelDevice(dev string) bool {
	for _, prefix := range []string{"tunl", "vxlan", "wireguard", "wg"} {
		if strings.HasPrefix(dev, prefix) {
			return true
		}
	}
	return false
}
