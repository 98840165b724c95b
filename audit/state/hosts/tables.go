package hosts

import (
	"cmp"
	"net/netip"

	"github.com/calico-audit/calico-audit/blocks"
)

// scanRoutes looks up an address as the kernel would: in each table the most specific route wins;
// if several are equally specific, the one with the lowest metric. Only an agent's view shows which
// tables are in use, and no view shows their order. If tables disagree, the answer is unclear.
func (v *View) scanRoutes(of, block netip.Prefix) Answer {
	a := of.Addr()
	best := map[string]*blocks.HostRoute{}
	passed := map[string]bool{}
	for bits := of.Bits(); bits >= 0; bits-- {
		p, _ := a.Prefix(bits)
		for _, r := range v.routes[p] {
			t := tableName(r.Table)
			have := best[t]
			switch {
			case have == nil || have.Dst == r.Dst && r.Metric < have.Metric:
				best[t] = r
				passed[t] = r.Type == blocks.RouteThrow
			case have.Dst == r.Dst && r.Metric == have.Metric && r.Type != have.Type:
				return unclear("two routes to %s, %s and %s, have the same metric", p, have.Type, r.Type)
			}
		}
	}
	if r := best["local"]; r != nil && r.Type == blocks.RouteLocal {
		return v.routeAnswer(r, block)
	}
	// Rules may select any other table before main.
	var out Answer
	for t, r := range best {
		switch {
		case t == "main" || t == "default" || t == "local" || passed[t]:
		case !v.RulesKnown:
			return unclear("table %s has a route to %s, and the listing does not show whether a rule selects that table", firstOther(best), a)
		default:
			other := v.routeAnswer(r, block)
			if out.Result != "" && out.Outcome != other.Outcome || other.Outcome == Unclear {
				return unclear("tables disagree on %s, and the view does not show which is looked up first", a)
			}
			if out.Result == "" || other.Table < out.Table {
				out = other
			}
		}
	}
	for _, t := range []string{"main", "default"} {
		r := best[t]
		if r == nil || passed[t] {
			continue
		}
		last := v.routeAnswer(r, block)
		switch {
		case out.Result == "", out.Outcome == last.Outcome:
			return last
		default:
			return unclear("tables disagree on %s: %s; %s", a, out, last)
		}
	}
	if out.Result == "" {
		return unclear("the view shows no route to %s", a)
	}
	return out
}

// byRoutes is scanRoutes, but a drop is unclear if a route may be missing: one that could
// not be parsed, or that the agent could not read.
func (v *View) byRoutes(of, block netip.Prefix) Answer {
	if v.RoutesPartial {
		return unclear("a route could not be parsed, and may be the one to %s", of.Addr())
	}
	out := v.scanRoutes(of, block)
	if out.Outcome == Drops && len(v.Gaps) > 0 {
		return unclear("the agent could not read everything on the node, and the kernel was not asked about %s", of.Addr())
	}
	return out
}

// firstOther returns the first table, by name, other than main, default and local.
func firstOther(best map[string]*blocks.HostRoute) string {
	first := ""
	for t := range best {
		if t != "main" && t != "default" && t != "local" && (first == "" || t < first) {
			first = t
		}
	}
	return first
}

func (v *View) routeAnswer(r *blocks.HostRoute, block netip.Prefix) Answer {
	out := Answer{Result: r.Type, Match: r.Dst, Table: cmp.Or(r.Table, "main"), Protocol: r.Protocol, Gateway: r.Gateway, Dev: r.Dev}
	v.classify(&out, block)
	return out
}

// tableName returns the name of a standard table.
func tableName(t string) string {
	switch t {
	case "", "254":
		return "main"
	case "255":
		return "local"
	case "253":
		return "default"
	}
	return t
}
