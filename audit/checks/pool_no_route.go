package checks

import (
	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/traffic"
	"github.com/calico-audit/calico-audit/blocks"
)

var poolNoRoute = audit.Check{
	ID: "pool/no-route", Title: "nodes have no routes to a pool's pods on other nodes: the pool has no encapsulation, and no calico-node runs BIRD, no node announces the routes, no chain of BGP sessions carries them, Azure drops the pool's IPIP packets, or Felix treats IPv6 nodes as neighbours",
	Severities: []state.Severity{state.Error, state.Warning},
	Graded:     "error; warning if BGP sessions of nodes that are not Ready would carry the routes",
	Why:        "Pods reach only those pods of the pool that run on their own node. By default Felix programs routes to other nodes only for encapsulated pools (a FelixConfiguration can change that). The routes of other pools come from BIRD, and calico-node may run without it. BIRD announces none of a pool with disableBGPExport. It learns routes over BGP sessions; a node passes routes of its own AS on only if it is a route reflector, and a reflector passes on none that came through another of its cluster ID (RFC 4456). Azure's network drops IP-in-IP packets, so there Calico needs VXLAN (kubernetes/kops#17832). Felix before v3.28.3 and v3.29.1 treats nodes without an IPv4 address as nodes of the same subnet, to which CrossSubnet uses no tunnel (projectcalico/calico#9403).",
	Confirm:    "ip route (ip -6 route) on a node shows the routes to other nodes' blocks; kubectl get daemonsets --all-namespaces --selector=k8s-app=calico-node -o yaml shows CALICO_NETWORKING_BACKEND and the probes; calicoctl node status on a node shows its BGP sessions, and birdcl show route in its calico-node pod the routes that it learnt.",
	Misread:    "Routers may have static routes to the nodes' blocks, and calico-node may run with other templates than Calico's. This check does not notice sessions that are down although their nodes are Ready, or BGPFilters that reject blocks. A node that is not Ready may still run BIRD. If the probe was edited, it may ask only Felix although BIRD runs.",
	Remedies:   []remedies.Remedy{remedies.Encapsulate, remedies.UseVXLAN, remedies.AlwaysVXLAN, remedies.ExportPool, remedies.PeerNodes, remedies.JoinReflectors, remedies.StartReflector},
	Verify:     "A pod reaches a pod of the pool on another node.",
	Never:      "Never delete the pool for this: its settings can be changed while pods use it.",
	Requires:   []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Nodes, blocks.Pods},
	Optional:   []blocks.Resource{blocks.BGPConfigs, blocks.BGPPeers, blocks.FelixConfigs, blocks.ClusterInfos, blocks.Handles},
	Run: func(st *state.State, f *audit.Findings) {
		if other := st.OtherIPAM(); other.Cluster || other.Unknown != "" {
			return
		}
		for _, p := range st.Pools {
			x := audit.Finding{Severity: state.Error, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p), Absence: true}
			if x.Nodes, x.Message = traffic.DroppedByCloud(st, p); len(x.Nodes) > 0 {
				x.Remedies = []remedies.Remedy{remedies.UseVXLAN}
			} else if x.Nodes, x.Message = traffic.TakenForLocal(st, p); len(x.Nodes) > 0 {
				x.Remedies = []remedies.Remedy{remedies.AlwaysVXLAN}
			} else if x.Nodes, x.Message = traffic.KeptFromBGP(st, p); len(x.Nodes) > 0 {
				x.Remedies = []remedies.Remedy{remedies.ExportPool}
			} else if lost, text := traffic.LostRoutes(st, p); lost != nil && lost.Reflectors {
				x.Nodes, x.Message, x.Remedies = lost.Nodes, text, []remedies.Remedy{remedies.JoinReflectors}
			} else if lost != nil {
				x.Nodes, x.Message, x.Remedies = lost.Nodes, text, []remedies.Remedy{remedies.PeerNodes}
			} else if x.Nodes, x.Message = traffic.WithoutRoutes(st, p); len(x.Nodes) > 0 {
				x.Remedies = []remedies.Remedy{remedies.Encapsulate}
			} else if lost, text := traffic.LostWhileOff(st, p); lost != nil {
				x.Nodes, x.Message, x.Severity, x.Remedies = lost.Nodes, text, state.Warning, []remedies.Remedy{remedies.StartReflector}
			}
			if len(x.Nodes) > 0 {
				f.Add(x)
			}
		}
	},
}
