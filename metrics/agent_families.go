package metrics

import (
	"cmp"
	"maps"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

var (
	agentGroup = Group{
		Title: "The agent", prefix: exporterPrefix + "agent_", stable: true,
		About: "`calico-audit agent` serves these for its node, and the usual metrics of Go programs and processes.",
	}
	agentBuild = agentGroup.gauge("build_info", "", "Build of the agent. The value is always 1.", "version", "revision", "goversion")
	agentScans = agentGroup.counter("scans_total", "scans", "Scans of the node's kernel since the agent started.")
	agentFails = agentGroup.counter("scan_errors_total", "scans", "Scans that failed. After a failed scan, the metrics of the view are absent.")
	agentTook  = agentGroup.gauge("scan_duration_seconds", "seconds", "Duration of the last scan.")

	agentTaken      = agentGroup.gauge("view_timestamp_seconds", "seconds", "Unix time, by the node's clock, at which the last scan began.")
	agentGaps       = agentGroup.gauge("gaps", "gaps", "Reads of the last scan that failed. The host view names them.")
	agentRoutes     = agentGroup.gauge("routes", "routes", "Routes in the routing tables in use, except the local table, by type and by the protocol that made them.", "type", "protocol")
	agentBlackholes = agentGroup.gauge("blackhole_routes", "routes", "Routes that drop the traffic that they match.", "ip_family")
	agentSpaces     = agentGroup.gauge("network_namespaces", "namespaces", "Network namespaces of the node, including the host's own.")
	agentAddresses  = agentGroup.gauge("namespace_addresses", "addresses", "Addresses in network namespaces other than the host's own.", "ip_family")
	agentStuck      = agentGroup.gauge("processes_uninterruptible", "processes",
		"Processes in uninterruptible sleep (state D) that hold a network namespace with addresses, other than the host's own. A moment in this state is normal; a process that stays in it holds its addresses and cannot be killed.")
)

// samples returns the metrics of the last scan, without starting one.
func (a *Agent) samples() (out samples) {
	a.mu.Lock()
	view, duration, scans, failures := a.view, a.duration, a.scans, a.failures
	a.mu.Unlock()

	out.add(agentBuild, 1, a.Build.Version, a.Build.Revision, a.Build.GoVersion)
	out.add(agentScans, float64(scans))
	out.add(agentFails, float64(failures))
	if scans > 0 {
		out.add(agentTook, duration.Seconds())
	}
	if view == nil {
		return out
	}
	out.add(agentTaken, float64(view.TakenAt.UnixMilli())/1000)
	out.add(agentGaps, float64(len(view.Gaps)))
	routes, blackholes := countRoutes(view.Routes)
	for _, k := range slices.SortedFunc(maps.Keys(routes), func(a, b routeKind) int {
		return cmp.Or(cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.kind, b.kind))
	}) {
		out.add(agentRoutes, float64(routes[k]), k.kind, k.protocol)
	}
	addresses, stuck := countNamespaces(view.Namespaces)
	out.add(agentSpaces, float64(len(view.Namespaces)))
	for _, family := range []blocks.Family{blocks.IPv4, blocks.IPv6} {
		out.add(agentBlackholes, float64(blackholes[family]), family.String())
		out.add(agentAddresses, float64(addresses[family]), family.String())
	}
	out.add(agentStuck, float64(stuck))
	return out
}

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
