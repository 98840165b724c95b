package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var nodeManyBlocks = audit.Check{
	ID:         "node/many-blocks",
	Title:      "a host holds several blocks of one pool",
	Severities: []state.Severity{state.Warning, state.Info},
	Graded:     "info, or warning if the pool has no free block",
	Why: "In a pool without blocks left, what one node holds beyond its need is what others lack. " +
		"A node claims a further block when its first is full, and keeps it after its pods have gone.",
	Confirm: "calicoctl ipam show --show-blocks",
	Misread: "Several blocks are normal for a node that runs more pods than one block holds.",
	Fix: "Release the blocks that the evidence calls releasable. For a block with few addresses in use, restart the pods that hold them " +
		"(with the node cordoned, or they may get addresses of the same block again), and release it once it is empty.",
	Never:    "Never release a block that holds allocations: all its addresses would then be borrowed from nobody.",
	Requires: []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations},
	Optional: state.ReleaseReads,
	Run: func(st *state.State, f *audit.Findings) {
		for _, h := range st.NodeStates {
			byPool := map[*state.Pool][]*state.Block{}
			for _, b := range h.Blocks {
				byPool[b.Pool] = append(byPool[b.Pool], b)
			}
			var several []*state.Pool
			for _, p := range st.Pools {
				if len(byPool[p]) > 1 {
					several = append(several, p)
				}
			}
			if len(several) > 0 {
				f.Add(manyBlocks(st, h, several, byPool))
			}
		}
	},
}

// manyBlocks makes the finding of one host, over all pools of which it holds
// several blocks.
func manyBlocks(st *state.State, h *state.NodeState, pools []*state.Pool, byPool map[*state.Pool][]*state.Block) audit.Finding {
	sev := state.Info
	var holds, releasable, held, used []string
	var all []*state.Block
	for _, p := range pools {
		scarce := ""
		if p.ServesWorkloads() && p.Slots.Allocatable.IsZero() {
			sev, scarce = state.Warning, ", which has none left"
		}
		holds = append(holds, fmt.Sprintf("%s of pool %s%s", state.Plural(len(byPool[p]), "block"), p.Name, scarce))
		all = append(all, byPool[p]...)
	}
	for _, b := range all {
		switch {
		case b.Used > 0:
			used = append(used, fmt.Sprintf("%s (%s)", b.CIDR, state.InUseText(b)))
		case b.Reclaimability.OK:
			releasable = append(releasable, b.CIDR.String())
		default:
			held = append(held, fmt.Sprintf("%s: %s", b.CIDR, b.Reclaimability.Held))
		}
	}
	could := state.List(releasable)
	fix := audit.Look("calico-audit report -o wide --check block/empty --node " + state.Arg(h.Name))
	switch {
	case could == "" && len(held) == 0:
		could = "none: all hold addresses in use"
		fix = audit.Manual(drainAdvice(st, h, all))
	case could == "":
		could = "none now"
	}
	return audit.Finding{
		Severity: sev, Subject: state.NodeSubject(h.Name), Pools: state.PoolsOf(pools...),
		Message: fmt.Sprintf("%s holds %s; releasable: %s", h.Name, strings.Join(holds, " and "), could),
		Evidence: state.Evidences("pool", strings.Join(state.PoolsOf(pools...), ", "), "blocks", state.List(state.CIDRs(all)), "releasable", could,
			"empty but held", state.ListBy("; ", held), "in use", state.List(used)),
		Fix: fix,
	}
}

// drainAdvice says how to empty one of a host's blocks: one that no one borrows
// from if there is one, and the emptiest of these.
func drainAdvice(st *state.State, h *state.NodeState, bs []*state.Block) string {
	lent := map[*state.Block][]string{}
	for _, b := range h.Lent {
		if !slices.Contains(lent[b.Block], b.User) {
			lent[b.Block] = append(lent[b.Block], b.User)
		}
	}
	bs = slices.DeleteFunc(slices.Clone(bs), func(b *state.Block) bool { return !st.EmptiesByRestarts(b) })
	if len(bs) == 0 {
		return "none of its blocks empties by restarting pods: virtual machines, or owners that cannot be looked up, hold addresses in each"
	}
	b := slices.MinFunc(bs, func(x, y *state.Block) int {
		return cmp.Or(cmp.Compare(min(len(lent[x]), 1), min(len(lent[y]), 1)), cmp.Compare(x.Used, y.Used))
	})
	advice := fmt.Sprintf("if blocks are scarce: make an IPReservation of %s so that nothing new takes its addresses, restart the pods that hold them (%s), and delete the reservation once the block is released",
		b.CIDR, state.InUseText(b))
	if borrowers := lent[b]; len(borrowers) > 0 {
		advice += "; pods of " + state.List(borrowers) + " are among them"
	}
	return advice
}
