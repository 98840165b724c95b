package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var blockCorrupt = audit.Check{
	ID:         "block/corrupt",
	Title:      "a block contradicts itself, or cannot be parsed",
	Severities: []state.Severity{state.Error},
	Why:        "Calico may hand an address of it out twice, never hand one out again, or fail for every pod of the node: its allocator trusts the block's data. A block with an unreadable CIDR makes Calico fail to list any.",
	Confirm:    "kubectl get ipamblocks NAME -o yaml",
	Remedies: []remedies.Remedy{
		remedies.Restart("check first that the pool has a block left for the node, and save a snapshot. Reserve the block's CIDR with an IPReservation, and restart the pods that use its addresses, one controller at a time. Once no pod uses them, delete the block's BlockAffinity, its IPAMBlock and the reservation", "the pods have addresses of other blocks, and a node can claim the CIDR again"),
	},
	Never:    "Never let a tool release addresses or the block while it contradicts itself.",
	Requires: []blocks.Resource{blocks.Blocks},
	Run: func(st *state.State, f *audit.Findings) {
		for _, b := range st.IPBlocks {
			if len(b.Faults) == 0 {
				continue
			}
			f.Add(audit.Finding{
				Severity: state.Error, Subject: state.BlockSubject(b), Pools: state.PoolsOf(b.Pool), Nodes: []string{b.Owner.Node()},
				Message:  fmt.Sprintf("block %s of %s contradicts itself: %s", b.CIDR, b.Owner, b.Faults[0]),
				Evidence: state.Evidences("faults", b.Faults, "owner", b.Owner, "sequence", b.Sequence),
				Fix:      audit.Look("kubectl get ipamblocks %s -o yaml", b.Name),
			})
		}
		for _, g := range st.Unreadable(blocks.Blocks) {
			if g.Field == "metadata.name" || g.Reason == blocks.FieldMissing && !st.Cluster.Live {
				continue // in a cluster, every object has a name and Calico writes these fields, so a file lacks a part of this object
			}
			f.Add(audit.Finding{
				Severity: state.Error, Subject: state.Subject{Kind: state.KindBlock, Name: g.Name}, Nodes: []string{g.Owner.Node()},
				Message:  fmt.Sprintf("block object %q cannot be parsed: %s %s", g.Name, g.Field, g.Reason),
				Evidence: state.Evidences("field", g.Field, "reason", g.Reason, "owner", g.Owner, "file", g.Source),
				Fix:      audit.Look("kubectl get ipamblocks %s -o yaml", g.Name),
			})
		}
	},
}
