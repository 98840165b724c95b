package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/traffic"
	"github.com/calico-audit/calico-audit/blocks"
)

var poolNoRoute = audit.Check{
	ID: "pool/no-route", Title: "nodes have no routes to a pool's pods on other nodes: the pool has no encapsulation, and no calico-node runs BIRD, BIRD has no BGP session, or Azure drops the pool's IPIP packets",
	Severities: []state.Severity{state.Error},
	Why:        "Pods reach the pool's pods on their own node only. By default Felix programs routes to other nodes only for encapsulated pools (a FelixConfiguration can change that). The routes of other pools come from BIRD, and calico-node may run without it. Azure's network drops IP-in-IP packets, so there Calico needs VXLAN (kubernetes/kops#17832).",
	Confirm:    "ip route (ip -6 route) on a node shows the routes to other nodes' blocks; kubectl get daemonsets --all-namespaces --selector=k8s-app=calico-node -o yaml shows CALICO_NETWORKING_BACKEND and the probes.",
	Misread:    "Another router may have routes to the nodes' blocks. If the probe was edited, it may ask only Felix although BIRD runs.",
	Remedies:   []remedies.Remedy{remedies.Encapsulate, remedies.UseVXLAN, remedies.PeerNodes},
	Verify:     "A pod reaches a pod of the pool on another node.",
	Never:      "Never delete the pool for this: its settings can be changed while pods use it.",
	Requires:   []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Nodes, blocks.Pods},
	Optional:   []blocks.Resource{blocks.BGPConfigs, blocks.BGPPeers, blocks.FelixConfigs, blocks.ClusterInfos, blocks.Handles},
	Run: func(st *state.State, f *audit.Findings) {
		if other := st.OtherIPAM(); other.Cluster || other.Unknown != "" {
			return
		}
		for _, p := range st.Pools {
			x := audit.Finding{Severity: state.Error, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p), Absence: true, Remedies: []remedies.Remedy{remedies.Encapsulate}}
			if x.Nodes = traffic.DroppedByCloud(st, p); len(x.Nodes) > 0 {
				x.Message, x.Remedies = fmt.Sprintf("pool %s is encapsulated by IPIP, which Azure's network drops: pods on %s do not reach the pool's pods on other nodes", p.Name, phrase.Some(x.Nodes)), []remedies.Remedy{remedies.UseVXLAN}
				f.Add(x)
			} else if x.Nodes = traffic.WithoutSessions(st, p); len(x.Nodes) > 0 {
				x.Message, x.Remedies = fmt.Sprintf("pool %s gets its routes from BIRD, which has no BGP session, because the node-to-node mesh is off and no BGPPeer exists: on %s, no route leads to the pool's pods on other nodes", p.Name, phrase.Some(x.Nodes)), []remedies.Remedy{remedies.PeerNodes}
				f.Add(x)
			} else if x.Nodes = traffic.WithoutRoutes(st, p); len(x.Nodes) > 0 {
				x.Message = fmt.Sprintf("pool %s has no encapsulation, and no calico-node runs BIRD: on %s, no route leads to the pool's pods on other nodes", p.Name, phrase.Some(x.Nodes))
				f.Add(x)
			}
		}
	},
}
