package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var nodeNoBlock = audit.Check{
	ID:         "node/no-block",
	Title:      "a node has no block of a family, in the pools that select it",
	Severities: []state.Severity{state.Critical, state.Error, state.Warning, state.Info},
	Graded:     "critical if a pod of it waits and can get no address; error if its pods or its tunnel borrow; warning if its next pod would borrow or fail; else info",
	Why: "Pods on a node without a block use addresses borrowed from other nodes' blocks, or get none. " +
		"A borrowed address is routed on its own, and where the owner does not learn that route it drops the traffic. " +
		"A pod that no pool may serve, for its namespace or for the pools that it asks for, never gets an address, whatever blocks its node has.",
	Confirm: "kubectl get blockaffinities -o custom-columns=NODE:.spec.node,CIDR:.spec.cidr,STATE:.spec.state, " +
		"and look for the node.",
	Misread:  "A node that has run no pod yet has no block, and that is normal: it claims one for its first pod. Pools that the CNI configuration itself names (ipv4_pools) are not seen here.",
	Remedies: append(slices.Clip(remedies.Shortage), remedies.SelectNode, remedies.RaiseLimit),
	Verify:   "Start a pod on the node: kubectl get blockaffinities then shows a block of it, and the pod has an address of that block.",
	Never:    "Never delete another node's blocks to make room: release only blocks that hold no allocation.",
	Requires: []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations, blocks.IPAMConfigs, blocks.Nodes, blocks.Pods, blocks.Namespaces},
	Optional: append(slices.Clip(remedies.RootReads), blocks.Handles),
	Run: func(st *state.State, f *audit.Findings) {
		holders := st.CachedNodesHoldingSeveral()
		for _, h := range st.NodeStates {
			var open []*state.NodeBlockStatus
			for _, n := range h.BlockStatus {
				if n.Inconclusive != "" {
					f.SkipPartial("not evaluated for every pod that waits on node %s: %s", h.Name, n.Inconclusive)
				}
				if !n.NoBlock() && n.Blockless() == 0 {
					continue
				}
				if n.RequiresProof() && st.BlockMayExist(n) {
					f.SkipPartial("not evaluated for node %s: a block that cannot be read may be its own", h.Name)
					continue
				}
				open = append(open, n)
			}
			if len(open) > 0 {
				f.Add(noBlockFinding(st, h, open, holders))
			}
		}
	},
}

// noBlockFinding makes one finding of a node's families without a block; the
// worst of them gives the severity.
func noBlockFinding(st *state.State, h *state.NodeState, open []*state.NodeBlockStatus, holders func([]*state.Pool) []string) audit.Finding {
	out := audit.Finding{Subject: state.NodeSubject(h.Name)}
	var messages []string
	for _, n := range open {
		sev, text := state.GradeNoBlock(n)
		if sev > out.Severity {
			out.Severity, out.Root, out.Remedies = sev, remedies.Of(st).RootOfNode(n), nil
			if out.Root == "" { // as of a pod that no pool may serve
				out.Remedies = remedies.Of(st).NodeRemedies(n)
			}
		}
		messages = append(messages, text)
		out.Pools = append(out.Pools, state.PoolsOf(n.Pools...)...)
		label := func(s string) string {
			if len(st.Families) > 1 {
				return n.Family.String() + " " + s
			}
			return s
		}
		pairs := []string{
			label("cause"), state.CauseText(n), label("detail"), state.StuckDetails(n),
			label("borrowed"), phrase.List(borrowedTexts(n.Borrowed)),
			label("waiting pods"), phrase.List(phrase.FullNames(n.Waiting)),
			label("blocks it cannot use"), phrase.List(state.CIDRs(n.Elsewhere)),
		}
		if n.Cause.Shortfall() {
			pairs = append(pairs, label("nodes holding several blocks"), phrase.ListBy("; ", holders(st.PoolsAtIssue(n))))
		}
		out.Evidence = append(out.Evidence, state.Evidences(pairs...)...)
	}
	out.Message = fmt.Sprintf("node %s %s", h.Name, strings.Join(messages, "; "))
	out.Absence = out.Severity > state.Info
	return out
}

func borrowedTexts(bs []*state.Borrow) []string {
	out := make([]string, len(bs))
	for i, b := range bs {
		out[i] = fmt.Sprintf("%s from %s", b.Addr, b.Owner)
	}
	return out
}
