package hosts

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// Outcome is what a node's kernel does with packets to an address.
type Outcome int

// The outcomes, as a host view proves them.
const (
	// Unclear: the view does not tell.
	Unclear Outcome = iota
	// Drops: a blackhole, unreachable or prohibit route wins, or none matches.
	Drops
	// Forwards: a route at least as specific as the block leads to another
	// machine.
	Forwards
	// FallsBack: a route less specific than the block wins, such as the
	// default route. Where that leads the node does not know.
	FallsBack
	// Delivers: the node takes the address for its own, or for that of a pod of
	// its own.
	Delivers
)

// Answer is a kernel's answer for an address, with what it rests on.
type Answer struct {
	Outcome Outcome
	// Result is the kind of route that wins, such as "blackhole".
	Result string
	// Match is the destination of that route; invalid where it is not known.
	Match                         netip.Prefix
	Table, Protocol, Gateway, Dev string
	// Lookup is true if the kernel itself was asked, and false if the answer was
	// found by going through the routes.
	Lookup bool
	// Why says why the outcome is unclear.
	Why string
	// View is the view that tells.
	View *blocks.HostView
}

// String says the route that decides, in the words of the ip command.
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

// Basis says how the answer was had.
func (r Answer) Basis() string {
	if r.Lookup {
		return "the kernel's own answer"
	}
	return "the most specific of its routes"
}

// AnswerAt says what a view's kernel does with packets to an address of a block,
// given as a CIDR of one address: by its own answer where one was asked for, else
// by its routes.
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

// General says what becomes of the addresses of a block that no route is for that is
// more specific than the block.
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

// agree returns the kernel's own answer, unless the routes of the same view say
// otherwise: one of the two was then read at another moment, or is damaged.
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

// byLookup returns the kernel's own answer, and false if it was not asked about
// the address.
func (v *View) byLookup(of, block netip.Prefix) (Answer, bool) {
	if v.LookupsPartial {
		return unclear("an answer of the kernel could not be understood"), true
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

// leading finds the route that an answer leads along, where the kernel did not
// tell which route matched: the most specific that leads there.
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

// classify settles the outcome that a kind of route means.
func (v *View) classify(r *Answer, block netip.Prefix) {
	switch r.Result {
	case blocks.RouteBlackhole, blocks.RouteUnreachable, blocks.RouteProhibit, blocks.RouteNone:
		r.Outcome = Drops
	case blocks.RouteLocal:
		r.Outcome = Delivers
	case blocks.RouteUnicast:
		switch {
		case !r.Match.IsValid():
			r.Outcome, r.Why = Unclear, "the kernel did not tell which of its routes matched"
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

// tunnelDevice reports whether a device is one of Calico's tunnels, which need no next
// hop.
func tunnelDevice(dev string) bool {
	for _, prefix := range []string{"tunl", "vxlan", "wireguard", "wg"} {
		if strings.HasPrefix(dev, prefix) {
			return true
		}
	}
	return false
}
