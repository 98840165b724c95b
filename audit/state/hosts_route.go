package state

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// HostRouteOutcome is what a node's kernel does with packets to an address.
type HostRouteOutcome int

// The outcomes, as a host view proves them.
const (
	// HostUnclear: the view does not tell.
	HostUnclear HostRouteOutcome = iota
	// HostDrops: a blackhole, unreachable or prohibit route wins, or none matches.
	HostDrops
	// HostForwards: a route at least as specific as the block leads to another
	// machine.
	HostForwards
	// HostFallsBack: a route less specific than the block wins, such as the
	// default route. Where that leads the node does not know.
	HostFallsBack
	// HostDelivers: the node takes the address for its own, or for that of a pod of
	// its own.
	HostDelivers
)

// HostRoute is a kernel's answer for an address, with what it rests on.
type HostRoute struct {
	Outcome HostRouteOutcome
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

// String says the answer in the words of a route.
func (r HostRoute) String() string {
	if r.Outcome == HostUnclear {
		return "not known: " + r.Why
	}
	out := r.Result
	if r.Match.IsValid() {
		out += ", by the route to " + r.Match.String()
	}
	for _, x := range []struct{ word, value string }{{"via", r.Gateway}, {"on", r.Dev}, {"of protocol", r.Protocol}, {"in table", r.Table}} {
		if x.value != "" {
			out += " " + x.word + " " + x.value
		}
	}
	return out
}

// Basis says how the answer was had.
func (r HostRoute) Basis() string {
	if r.Lookup {
		return "the kernel's own answer"
	}
	return "the most specific of its routes"
}

// AnswerAt says what a view's kernel does with packets to an address of a block,
// given as a CIDR of one address: by its own answer where one was asked for, else
// by its routes.
func (k *NodeView) AnswerAt(p, block netip.Prefix) HostRoute {
	out := k.byRoutes(p, block)
	if len(k.lookups) > 0 || k.LookupsPartial {
		if asked, ok := k.byLookup(p, block); ok {
			out = agree(asked, out)
		}
	}
	out.View = k.HostView
	return out
}

// general says what becomes of the addresses of a block that no route is for that is
// more specific than the block.
func (k *NodeView) general(block netip.Prefix) HostRoute {
	out := k.byRoutes(block, block)
	if out.Outcome == HostUnclear {
		if asked, ok := k.byLookup(block, block); ok {
			out = asked
		}
	}
	out.View = k.HostView
	return out
}

// agree returns the kernel's own answer, unless the routes of the same view say
// otherwise: one of the two was then read at another moment, or is damaged.
func agree(asked, routes HostRoute) HostRoute {
	switch {
	case asked.Outcome == HostUnclear || routes.Outcome == HostUnclear || asked.Outcome == routes.Outcome:
		return asked
	case asked.Outcome != HostDrops && routes.Outcome != HostDrops:
		return asked
	}
	return unclear("the kernel answered %s, while its routes say %s", asked, routes)
}

func unclear(format string, args ...any) HostRoute {
	return HostRoute{Why: fmt.Sprintf(format, args...)}
}

// byLookup returns the kernel's own answer, and false if it was not asked about
// the address.
func (k *NodeView) byLookup(of, block netip.Prefix) (HostRoute, bool) {
	if k.LookupsPartial {
		return unclear("an answer of the kernel could not be understood"), true
	}
	for bits := of.Bits(); bits >= 0; bits-- {
		p, _ := of.Addr().Prefix(bits)
		found := k.lookups[p]
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
		r := HostRoute{Result: l.Result, Match: l.Match, Table: l.Table, Gateway: l.Gateway, Dev: l.Dev, Lookup: true}
		if !r.Match.IsValid() {
			r.Match = k.leading(of, l)
		}
		if r.Match.IsValid() {
			for _, route := range k.routes[r.Match] {
				if route.Type == r.Result && sameTable(route.Table, r.Table) {
					r.Protocol = route.Protocol
				}
			}
		}
		k.classify(&r, block)
		return r, true
	}
	return HostRoute{}, false
}

// leading finds the route that an answer leads along, where the kernel did not
// tell which route matched: the most specific that leads there.
func (k *NodeView) leading(of netip.Prefix, l *blocks.HostLookup) netip.Prefix {
	for bits := of.Bits(); bits >= 0; bits-- {
		p, _ := of.Addr().Prefix(bits)
		for _, r := range k.routes[p] {
			if r.Type == l.Result && r.Gateway == l.Gateway && r.Dev == l.Dev && sameTable(r.Table, l.Table) {
				return p
			}
		}
	}
	return netip.Prefix{}
}

func sameTable(a, b string) bool { return b == "" || tableName(a) == tableName(b) }

// classify settles the outcome that a kind of route means.
func (k *NodeView) classify(r *HostRoute, block netip.Prefix) {
	switch r.Result {
	case blocks.RouteBlackhole, blocks.RouteUnreachable, blocks.RouteProhibit, blocks.RouteNone:
		r.Outcome = HostDrops
	case blocks.RouteLocal:
		r.Outcome = HostDelivers
	case blocks.RouteUnicast:
		switch {
		case !r.Match.IsValid():
			r.Outcome, r.Why = HostUnclear, "the kernel did not tell which of its routes matched"
		case r.Match.Bits() < block.Bits():
			r.Outcome = HostFallsBack
		case r.Gateway == "" && (strings.HasPrefix(r.Dev, "cali") || k.podDevs[r.Dev]):
			r.Outcome = HostDelivers
		case r.Gateway == "" && !tunnelDevice(r.Dev):
			r.Outcome, r.Why = HostUnclear, fmt.Sprintf("its route leads to device %s without a next hop", r.Dev)
		default:
			r.Outcome = HostForwards
		}
	default:
		r.Outcome, r.Why = HostUnclear, fmt.Sprintf("its route is of kind %q", r.Result)
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

// elsewhere names the node that a route leads to if that is another than the one
// that uses the address. A route by way of a router is taken to lead there.
func (st *State) elsewhere(r HostRoute, user string) string {
	via, err := netip.ParseAddr(r.Gateway)
	if err != nil {
		return ""
	}
	other := ""
	for i := range st.Nodes {
		n := &st.Nodes[i]
		has := slices.ContainsFunc(n.Addresses, func(p netip.Prefix) bool { return p.Addr() == via }) ||
			slices.ContainsFunc(n.Tunnels, func(t blocks.Tunnel) bool { return t.Addr == via })
		switch {
		case has && n.Name == user:
			return ""
		case has:
			other = n.Name
		}
	}
	return other
}

// evaluateBorrowRoutes asks the owners' views what becomes of borrowed addresses.
func (st *State) evaluateBorrowRoutes() {
	st.views.fates = map[*Borrow]HostRoute{}
	for _, b := range st.Borrows {
		k := st.NodeView(b.Owner)
		if k == nil {
			continue
		}
		r, _ := b.Block.Ordinal(b.Addr)
		since := AssignedAt(AllocationRef{b.Block, r})
		for _, t := range []time.Time{b.Block.Claimed, b.Block.Created} {
			if t.After(since) {
				since = t
			}
		}
		if !st.proves(k, since, "the allocation of "+b.Addr.String()) {
			continue
		}
		answer := k.AnswerAt(IPPrefix(b.Addr), b.Block.CIDR)
		if other := st.elsewhere(answer, b.User); answer.Outcome == HostForwards && other != "" {
			answer.Outcome, answer.Why = HostUnclear, fmt.Sprintf("its route leads to %s, which does not use the address", other)
		}
		st.views.fates[b] = answer
	}
}

// HostAnswer returns what the kernel of a borrowed address's owner does with
// traffic to it, if a host view proves it.
func (st *State) HostAnswer(b *Borrow) (HostRoute, bool) {
	r, ok := st.views.fates[b]
	return r, ok
}
