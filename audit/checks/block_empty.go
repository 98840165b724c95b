package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/collector"
	"github.com/calico-audit/calico-audit/blocks"
)

var blockEmpty = audit.Check{
	ID:         "block/empty",
	Title:      "a block holds no allocation",
	Severities: []state.Severity{state.Warning, state.Info},
	Graded:     "info; warning if its pool and all other pools for the same nodes have no block left to claim",
	Why: "An empty block keeps its addresses for its owner, although another node may need it. Calico's own collector releases " +
		"empty blocks of nodes that hold others after 15 minutes, if it runs (config/gc-disabled). The evidence says that the " +
		"block is releasable, or why it must stay.",
	Confirm: "calicoctl ipam show --show-blocks",
	Misread: "A node claims a block first and then assigns an address, so a new block is empty for an instant. The block's age " +
		"matters.",
	Remedies: []remedies.Remedy{remedies.ReleaseBlock},
	Never:    "Never delete the IPAMBlock object by hand: its affinity stays behind, and the node keeps dropping the block's traffic.",
	Requires: []blocks.Resource{blocks.Blocks, blocks.Pools, blocks.Reservations},
	Optional: slices.Concat(state.ReleaseReads, collector.Reads),
	Run: func(st *state.State, f *audit.Findings) {
		scarce := cachedScarce(st)
		for _, b := range st.IPBlocks {
			if b.Used > 0 || b.SoftDeleted { // block/soft-deleted reports all of them
				continue
			}
			sev := state.Info
			if scarce(b.Pool) {
				sev = state.Warning
			}
			verdict, ways := "releasable", f.Check.Remedies
			if !b.Releasability.OK {
				verdict, ways = "must stay: "+b.Releasability.Reason, []remedies.Remedy{}
			}
			inUse := ""
			if code := b.Releasability.Code; code == state.RetainInUse || code == state.RetainHostView {
				inUse = "a pod or a node"
			}
			f.Add(audit.Finding{
				Severity: sev, Subject: state.BlockSubject(b), Pools: state.PoolsOf(b.Pool), Nodes: []string{b.Owner.Node()},
				Message: fmt.Sprintf("block %s of %s holds no allocation; %s", b.CIDR, b.Owner, verdict),
				Evidence: state.Evidences("owner", b.Owner, "pool", state.PoolName(b.Pool), "verdict", verdict,
					"empty since at least", b.Releasability.EmptySince, collector.EvidenceName, collector.OfBlock(st, b).Text(inUse)),
				Root: remedies.Of(st).RootOfBlock(b), Remedies: ways,
			})
		}
	},
}
