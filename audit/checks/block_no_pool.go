package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var blockNoPool = audit.Check{
	ID:         "block/no-pool",
	Title:      "a block lies in no pool",
	Severities: []state.Severity{state.Warning},
	Why:        "Its addresses have lost the pool's outgoing NAT and encapsulation. Calico does not release blocks outside pools, so the block stays.",
	Confirm:    "calicoctl get ippools -o wide shows no pool that contains the block's CIDR.",
	Misread:    "Someone deleted the pool while its addresses were in use. The pods keep running, and only some of their traffic fails.",
	Remedies: []remedies.Remedy{
		remedies.Restart("create the pool again with disabled: true, restart its pods, then delete the pool with calicoctl",
			"the pods get addresses of another pool; calicoctl releases the pool's blocks"),
	},
	Never:    "Never delete the block: its pods still use the addresses.",
	Requires: []blocks.Resource{blocks.Blocks, blocks.Pools},
	Run: func(st *state.State, f *audit.Findings) {
		for _, b := range st.IPBlocks {
			if b.Pool != nil {
				continue
			}
			if bad := st.Unreadable(blocks.Pools); len(bad) > 0 {
				f.SkipPartial("not evaluated for %s: its pool may be among those that cannot be read", b.CIDR)
				continue
			}
			f.Add(audit.Finding{
				Absence: true, Severity: state.Warning, Subject: state.BlockSubject(b), Nodes: []string{b.Owner.Node()},
				Message:  fmt.Sprintf("block %s of %s lies in no pool (addresses in use: %d)", b.CIDR, b.Owner, b.Used),
				Evidence: state.Evidences("owner", b.Owner, "in use", b.Used, "created", b.Created),
			})
		}
	},
}
