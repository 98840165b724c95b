package checks

import (
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/tunnels"
	"github.com/calico-audit/calico-audit/blocks"
)

var poolNoTunnelAddress = audit.Check{
	ID:         "pool/no-tunnel-address",
	Title:      "nodes of an encapsulated pool have no tunnel address, because no enabled pool allows tunnels for them, calico-node took none, or Felix sets up no tunnel",
	Severities: []state.Severity{state.Error, state.Warning},
	Graded:     "error; warning if Felix's setting is merely unset, in a release that does not derive it from the pools",
	Why:        "calico-node takes a node's tunnel address from the enabled pools of the same encapsulation that allow tunnels and select the node. Without the address, Felix programs no VXLAN routes to the node, and over IPIP the node's own traffic to other nodes' pods has a source address that they may not answer. Over WireGuard, the node's own traffic to other nodes' pods lacks a source address that they accept. A FelixConfiguration may turn off the tunnels that a pool needs.",
	Confirm:    "kubectl get ippools -o custom-columns=NAME:.metadata.name,USES:.spec.allowedUses,VXLAN:.spec.vxlanMode,IPIP:.spec.ipipMode; kubectl get nodes -o yaml shows no projectcalico.org/IPv4VXLANTunnelAddr (IPv6VXLANTunnelAddr, IPv4IPIPTunnelAddr, IPv4WireguardInterfaceAddr, IPv6WireguardInterfaceAddr).",
	Remedies: []remedies.Remedy{
		remedies.ByHand("let an enabled pool of the same encapsulation that allows tunnels select the nodes: enable the pool until its pods use another, add Tunnel to its allowedUses, or add a small pool with allowedUses: [Tunnel]",
			"calico-node gives each node a tunnel address immediately", "one address of the pool per node"),
		remedies.RestartAgents(nil),
	},
	Never:    "Never write a tunnel address into a Node by hand: no block would record it.",
	Requires: state.OtherIPAMReads,
	Optional: []blocks.Resource{blocks.FelixConfigs, blocks.ClusterInfos},
	Run: func(st *state.State, f *audit.Findings) {
		if other := st.OtherIPAM(); other.Cluster {
			return
		} else if other.Unknown != "" {
			f.Inconclusive("not evaluated: %s", other.Unknown)
			return
		}
		took := map[string]bool{} // types of tunnels
		for i := range st.Nodes {
			for _, t := range st.Nodes[i].Tunnels {
				took[t.Type] = true
			}
		}
		for i := range st.Nodes {
			n := &st.Nodes[i]
			if lacks := tunnels.LacksWireguard(st, n, took); len(lacks) > 0 {
				f.Add(audit.Finding{
					Severity: state.Error, Subject: state.NodeSubject(n.Name), Nodes: []string{n.Name}, Absence: true,
					Message:  fmt.Sprintf("node %s has a WireGuard key, and calico-node took no %s address for its WireGuard device, although other nodes have theirs", n.Name, strings.Join(lacks, " or ")),
					Remedies: []remedies.Remedy{remedies.RestartAgents([]string{n.Name})},
				})
			}
		}
		for _, p := range st.Pools {
			if field, variable, off, unset := tunnels.Off(st, p); off {
				where, fix := "FelixConfiguration default turns it off ("+field+": false)", remedies.SetFelix(field)
				if variable != "" {
					where, fix = "the environment variable "+variable+" of calico-node turns it off", remedies.UnsetVariable(variable)
				}
				x := audit.Finding{
					Severity: state.Error, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p), Remedies: []remedies.Remedy{fix},
					Message: fmt.Sprintf("pool %s uses %s, and %s, so no node sets up tunnels to the pods of others", p.Name, tunnels.Encapsulation(p), where),
				}
				if unset {
					x.Severity, x.Message = state.Warning, fmt.Sprintf("pool %s uses VXLAN, and FelixConfiguration default does not turn it on (%s: true), which Calico before v3.23 requires", p.Name, field)
				}
				f.Add(x)
				continue
			}
			without, idle := tunnels.Without(st, p)
			if len(without) == 0 {
				if len(idle) > 0 {
					x := audit.Finding{
						Severity: state.Error, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p), Nodes: idle, Absence: true,
						Message:  fmt.Sprintf("pool %s uses VXLAN, and nodes have no tunnel address, unlike others: %s", p.Name, idle),
						Evidence: state.Evidences("nodes without a tunnel address", len(idle)),
						Remedies: []remedies.Remedy{remedies.RestartAgents(idle)},
					}
					if lost := tunnels.Overwritten(st, idle); len(lost) > 0 {
						x.Message += fmt.Sprintf("; blocks record one for %s, so something has overwritten the Node, such as calicoctl apply", lost)
					}
					f.Add(x)
				}
				continue
			}
			if len(st.Unreadable(blocks.Pools)) > 0 {
				f.SkipPartial("not evaluated for pool %s: a pool that cannot be read may give tunnel addresses", p.Name)
				continue
			}
			f.Add(audit.Finding{
				Severity: state.Error, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p), Nodes: without, Absence: true,
				Message:  fmt.Sprintf("%s uses %s, and no enabled pool gives a tunnel address to %s", tunnels.Name(p), tunnels.Encapsulation(p), without),
				Evidence: state.Evidences("allowedUses", phrase.Uses(p.Uses), "nodes without a tunnel address", len(without)),
				Remedies: f.Check.Remedies,
			})
		}
	},
}
