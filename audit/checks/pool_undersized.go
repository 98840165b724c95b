package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var poolUndersized = audit.Check{
	ID:         "pool/undersized",
	Title:      "the pool has fewer blocks than its nodes will need",
	Severities: []state.Severity{state.Warning, state.Info},
	Graded:     "warning; info if other pools that select the same nodes make up for it",
	Why: "Each node needs at least one block, and ⌈allocatable pods / block size⌉ blocks when it runs as many pods as it may. As " +
		"the nodes fill up, some of them will get no block.",
	Confirm:  "Compare the pool's number of blocks, 2^(blockSize - prefix length), with the nodes that its nodeSelector matches.",
	Remedies: []remedies.Remedy{remedies.AddPool},
	Never:    "Never change the CIDR or block size of a pool in use.",
	Requires: []blocks.Resource{blocks.Pools, blocks.Nodes, blocks.Reservations},
	Optional: remedies.RootReads,
	Run: func(st *state.State, f *audit.Findings) {
		for _, p := range st.Pools {
			d := st.DemandOf(p)
			if d == nil {
				continue
			}
			sev, others := state.Warning, ""
			message := fmt.Sprintf("pool %s has fewer blocks than its nodes need when full (blocks: %s, nodes: %d, needed: %s)", p.Name, d.Usable, d.Nodes, p.Needed)
			if d.Covered(p) {
				sev, others = state.Info, fmt.Sprintf("addresses to spare in other pools for the same nodes: %s", d.Elsewhere)
				message += "; " + others
			}
			f.Add(audit.Finding{
				Severity: sev, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p), Message: message,
				Evidence: state.Evidences(
					"needed", p.Needed, "usable", d.Usable, "nodes", d.Nodes,
					"addresses in a block", p.BlockAddresses(), "elsewhere", others),
				Root: remedies.Of(st).RootOfPool(p),
			})
		}
	},
}
