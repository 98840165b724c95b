package checks

import (
	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/traffic"
	"github.com/calico-audit/calico-audit/blocks"
)

var poolTraffic = audit.Check{
	ID: "pool/traffic", Title: "a pool's settings do not carry its pods' traffic: no route between nodes, no outgoing NAT for one family alone, or CrossSubnet among nodes without subnets",
	Severities: []state.Severity{state.Error, state.Info}, Graded: "error if no node has a route to the pool's pods on others; else info",
	Why: "Without encapsulation only BIRD gives nodes routes to each other's pods, and calico-node may run without it. Without natOutgoing, pods with private " +
		"addresses get answers only from networks that have a route to the pool. CrossSubnet compares the addresses that calico-node records for the " +
		"nodes: if they are written without their subnet, each node is alone in its own.",
	Confirm:  "kubectl get ippools -o yaml; ip route (ip -6 route) on a node shows the routes to other nodes' blocks; kubectl get daemonsets --all-namespaces --selector=k8s-app=calico-node -o yaml shows CALICO_NETWORKING_BACKEND and the probes.",
	Misread:  "Another router may have routes to the nodes' blocks, as for addresses that should stay visible outside: then natOutgoing stays off.",
	Remedies: []remedies.Remedy{remedies.Encapsulate, remedies.Translate, remedies.RecordSubnet},
	Verify:   "A pod reaches a pod of the pool on another node, and an address outside the cluster.",
	Never:    "Never delete the pool for this: its settings can be changed while pods use it.",
	Requires: []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Nodes, blocks.Pods},
	Optional: []blocks.Resource{blocks.BGPPeers, blocks.FelixConfigs, blocks.ClusterInfos, blocks.Handles},
	Run: func(st *state.State, f *audit.Findings) {
		if other := st.OtherIPAM(); other.Cluster || other.Unknown != "" {
			return
		}
		for _, p := range st.Pools {
			if t := traffic.Of(st, p); t != nil {
				x := audit.Finding{Severity: state.Info, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p), Nodes: t.Nodes, Message: t.Text}
				if len(t.Nodes) > 0 {
					x.Severity, x.Absence = state.Error, true
				}
				for _, k := range t.Kinds {
					x.Remedies = append(x.Remedies, f.Check.Remedies[k])
				}
				f.Add(x)
			}
		}
	},
}
