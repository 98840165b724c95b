package checks

import (
	"fmt"
	"strings"

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
	var holds, releasable, retained, used []string
	var all []*state.Block
	for _, p := range pools {
		scarce := ""
		if p.OutOfBlocks() {
			scarce = ", which has none left"
		}
		if isScarce(p) && sev == state.Info {
			sev, root = state.Warning, remedies.Of(st).RootOfPool(p)
		}
		holds = append(holds, fmt.Sprintf("%s of pool %s%s", phrase.Plural(len(byPool[p]), "block"), p.Name, scarce))
		all = append(all, byPool[p]...)
	}
	for _, b := range all {
		switch {
		case b.Used > 0:
			used = append(used, fmt.Sprintf("%s (%s)", b.CIDR, phrase.InUse(b.Used)))
		case b.Releasability.OK:
			releasable = append(releasable, b.CIDR.String())
		default:
			retained = append(retained, fmt.Sprintf("%s: %s", b.CIDR, b.Releasability.Reason))
		}
	}
	could, verdict := phrase.List(releasable), "releasable: "+phrase.List(releasable)
	var ways []remedies.Remedy
	switch {
	case could != "" && root == "":
		ways = []remedies.Remedy{remedies.ReleaseBlock}
	case could == "" && len(retained) == 0:
		could, verdict = "none: all hold addresses in use", "none is releasable, as all hold addresses in use"
	case could == "":
		could, verdict = "none now", "none is releasable now"
	}
	return audit.Finding{
		Severity: sev, Subject: state.NodeSubject(h.Name), Pools: state.PoolsOf(pools...),
		Message: fmt.Sprintf("%s holds %s; %s%s", h.Name, strings.Join(holds, " and "), verdict, unreadNote(st.UnreadOfNode(h.Name), 0)),
		Evidence: state.Evidences("pool", strings.Join(state.PoolsOf(pools...), ", "), "blocks", phrase.List(state.CIDRs(all)), "releasable", could,
			"empty but must stay", phrase.ListBy("; ", retained), "in use", phrase.List(used)),
		Root: root, Remedies: ways,
	}
}
