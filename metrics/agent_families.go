package metrics

import (
	"github.com/calico-audit/calico-audit/blocks"
)

type routeKind struct{ kind, protocol string }

func countRoutes(all []blocks.HostRoute) (kinds map[routeKind]int, blackholes map[blocks.Family]int) {
	kinds, blackholes = map[routeKind]int{}, map[blocks.Family]int{}
	for _, r := range all {
		kinds[routeKind{r.Type, r.Protocol}]++
		if r.Type == blocks.RouteBlackhole {
			blackholes[blocks.FamilyOf(r.Dst.Addr())]++
		}
	}
	return kinds, blackholes
}

func countNamespaces(all []blocks.HostNamespace) (addresses map[blocks.Family]int, stuck int) {
	addresses = map[blocks.Family]int{}
	for _, n := range all {
		if n.Host {
			continue
		}
		for _, a := range n.Addresses {
			addresses[blocks.FamilyOf(a.Addr())]++
		}
		if len(n.Addresses) == 0 {
			continue
		}
		for _, state := range n.States { // the list is truncated, with those in state D first
			if state == "D" {
				stuck++
			}
		}
	}
	return addresses, stuck
}
