package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var blockUnaffine = audit.Check{
	ID:         "block/unaffine",
	Title:      "a block with allocations has no owner",
	Severities: []state.Severity{state.Warning, state.Info},
	Graded:     "info, or warning under strict affinity",
	Why: "No traffic is lost: each address has a route of its own, and the block is deleted when the last address is released. " +
		"Under strict affinity no pod can get another address of this block until then.",
	Confirm: "kubectl get ipamblocks -o custom-columns=CIDR:.spec.cidr,OWNER:.spec.affinity",
	Remedies: []remedies.Remedy{
		remedies.Restart("if the block is needed, restart the pods that use its addresses", "Calico deletes the block with its last address"),
	},
	Never:    "Never give the block an owner by editing it: its pods run on several nodes.",
	Requires: []blocks.Resource{blocks.Blocks, blocks.IPAMConfigs},
	Optional: []blocks.Resource{blocks.Pools},
	Run: func(st *state.State, f *audit.Findings) {
		for _, b := range st.IPBlocks {
			if b.Used == 0 || b.Owner != (blocks.Owner{}) {
				continue
			}
			sev, lost := state.Info, ""
			if st.IPAM.StrictAffinity {
				sev = state.Warning
				lost = fmt.Sprintf("; strict affinity makes its free addresses unusable: %d", st.Unused(b))
			}
			var nodes []string
			seen := map[string]bool{}
			for i := range b.Attributes {
				if n := b.Attributes[i].Node; n != "" && !seen[n] {
					seen[n] = true
					nodes = append(nodes, n)
				}
			}
			f.Add(audit.Finding{
				Severity: sev, Subject: state.BlockSubject(b), Pools: state.PoolsOf(b.Pool), Nodes: nodes,
				Message:  fmt.Sprintf("block %s has no owner (addresses in use: %d)%s", b.CIDR, b.Used, lost),
				Evidence: state.Evidences("pool", state.PoolName(b.Pool), "in use", b.Used, "used on", nodes),
				Remedies: f.Check.Remedies,
			})
		}
	},
}
