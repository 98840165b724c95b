package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var nodeManyBlocks = audit.Check{
	ID:         "node/many-blocks",
	Title:      "a host holds several blocks of one pool",
	Severities: []state.Severity{state.Warning, state.Info},
	Graded:     "info; warning if the pool and all other pools for the same nodes have no block left to claim",
	Why: "If a pool has no block left, other nodes lack the blocks that this node does not need. A node claims another block when " +
		"its first is full, and keeps it after its pods have ended.",
	Confirm:  "calicoctl ipam show --show-blocks",
	Misread:  "Several blocks are normal for a node that runs more pods than one block holds.",
	Remedies: []remedies.Remedy{remedies.ReleaseBlock, remedies.Consolidate},
	Never:    "Never release a block that holds allocations: its pods keep their addresses, but no node routes the block any more.",
	Requires: []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations},
	Optional: state.ReleaseReads,
	Run: func(st *state.State, f *audit.Findings) {
		scarce := cachedScarce(st)
		for _, h := range st.NodeStates {
			byPool := map[*state.Pool][]*state.Block{}
			for _, b := range h.Blocks {
				if !b.SoftDeleted { // block/soft-deleted reports all of them
					byPool[b.Pool] = append(byPool[b.Pool], b)
				}
			}
			var several []*state.Pool
			for _, p := range st.Pools {
				if len(byPool[p]) > 1 {
					several = append(several, p)
				}
			}
			if len(several) > 0 {
				f.Add(manyBlocks(st, h, several, byPool, scarce))
			}
		}
	},
}

// manyBlocks returns one finding for a host, for all pools of which it holds several blocks.
func manyBlocks(st *state.State, h *state.NodeState, pools []*state.Pool, byPool map[*state.Pool][]*state.Block, isScarce func(*state.Pool) bool) audit.Finding {
	sev, root := state.Info, ""
	var holds, releasable, retained, used blocks.Names
	var all []*state.Block
	for _, p := range pools {
		if isScarce(p) && sev == state.Info {
			sev, root = state.Warning, remedies.Of(st).RootOfPool(p)
		}
		holds = append(holds, fmt.Sprintf("%d blocks of pool %s", len(byPool[p]), p.Name))
		all = append(all, byPool[p]...)
	}
	for _, b := range all {
		switch {
		case b.Used > 0:
			used = append(used, fmt.Sprintf("%s (%d in use)", b.CIDR, b.Used))
		case b.Releasability.OK:
			releasable = append(releasable, b.CIDR.String())
		default:
			retained = append(retained, fmt.Sprintf("%s: %s", b.CIDR, b.Releasability.Reason))
		}
	}
	var ways []remedies.Remedy
	if len(releasable) > 0 && root == "" {
		ways = []remedies.Remedy{remedies.ReleaseBlock}
	}
	return audit.Finding{
		Severity: sev, Subject: state.NodeSubject(h.Name), Pools: state.PoolsOf(pools...),
		Message: fmt.Sprintf("%s holds %s; releasable: %s%s", h.Name, holds, releasable, unreadNote(st.UnreadOfNode(h.Name), 0)),
		Evidence: state.Evidences("pool", state.PoolsOf(pools...), "blocks", state.CIDRs(all), "releasable", phrase.OrNone(phrase.List(releasable)),
			"empty but must stay", retained, "in use", used),
		Root: root, Remedies: ways,
	}
}
