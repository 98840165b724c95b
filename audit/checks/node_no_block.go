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
	Title:      "a node has no block; evaluated per family, over the pools that select the node",
	Severities: []state.Severity{state.Critical, state.Error, state.Warning, state.Info},
	Graded:     "critical if a pod of the node waits and can get no address; error if its pods or its tunnel borrow; warning if its next pod will borrow or fail; else info",
	Why:        "Pods on a node without a block borrow addresses from other nodes' blocks, or get none. If the owner of the block learns no route to a borrowed address, it drops the traffic. A pod that no pool may serve, because of its namespace, never gets an address.",
	Confirm:    "kubectl get blockaffinities -o custom-columns=NODE:.spec.node,CIDR:.spec.cidr,STATE:.spec.state shows no row for the node.",
	Misread:    "A node that has run no pod yet has no block: it claims one for its first pod. pod/waiting reports pods that ask for a pool which assigns nothing.",
	Remedies:   append(slices.Clip(remedies.Shortage), remedies.SelectNode, remedies.RaiseLimit),
	Verify:     "Start a pod on the node: kubectl get blockaffinities shows a block of the node, and the pod has an address from it.",
	Never:      "Never delete another node's blocks to make room: release only blocks that hold no allocation.",
	Requires:   []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations, blocks.IPAMConfigs, blocks.Nodes, blocks.Pods, blocks.Namespaces},
	Optional:   append(slices.Clip(remedies.RootReads), blocks.Handles),
	Run: func(st *state.State, f *audit.Findings) {
		holders := cachedNodesHoldingSeveral(st)
		for _, h := range st.NodeStates {
			var open []*state.NodeBlockStatus
			for _, n := range h.BlockStatus {
				if n.Inconclusive != "" {
					f.SkipPartial("not evaluated for every pod that waits on node %s: %s", h.Name, n.Inconclusive)
				}
				if !n.NoBlock() && n.Blockless() == 0 {
					continue
				}
				if doubt := st.DoubtOf(n); doubt != "" && (n.RequiresProof() || st.UnreadableNode(h.Name)) {
					f.SkipPartial("not evaluated for node %s: %s", h.Name, doubt)
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

// noBlockFinding returns one finding for all of a node's families without a block. The worst
// family decides the severity.
func noBlockFinding(st *state.State, h *state.NodeState, open []*state.NodeBlockStatus, holders func([]*state.Pool) []string) audit.Finding {
	out := audit.Finding{Subject: state.NodeSubject(h.Name)}
	var messages []string
	for _, n := range open {
		sev, text := GradeNoBlock(n)
		if sev > out.Severity {
			out.Severity, out.Root, out.Remedies = sev, remedies.Of(st).RootOfNode(n), []remedies.Remedy{}
			if out.Root == "" { // for example, no pool may serve a pod
				out.Remedies = append(out.Remedies, remedies.Of(st).NodeRemedies(n)...)
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
		pairs := []any{
			label("cause"), CauseText(n), label("detail"), StuckDetails(n),
			label("borrowed"), borrowedTexts(n.Borrowed),
			label("waiting pods"), phrase.FullNames(n.Waiting),
			label("blocks it cannot use"), state.CIDRs(n.Elsewhere),
		}
		if n.Cause.Shortfall() {
			pairs = append(pairs, label("nodes holding several blocks"), holders(st.PoolsAtIssue(n)))
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

// CauseText explains why a node has no block of a family, or that it can claim one.
func CauseText(n *state.NodeBlockStatus) string {
	switch {
	case n.Blockless() > 0:
		return stuckCauses(n)
	case n.Cause != state.CauseNone:
		return string(n.Cause)
	case len(n.Borrowed) > 0, len(n.Waiting) > 0:
		return "none now: its pools have blocks left, and it claims one at its next allocation"
	case len(n.Elsewhere) > 0:
		return "none now: it still holds blocks that it cannot take addresses from"
	case n.Addressed:
		return "none now: its pods use addresses outside any node's blocks"
	}
	return "no pod yet"
}

// stuckCauses lists the causes of the pods that Blockless counts.
func stuckCauses(n *state.NodeBlockStatus) string {
	var out []string
	for _, s := range n.Stuck {
		if text := string(s.Cause); s.Blockless && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return strings.Join(out, "; ")
}

// StuckDetails returns the details of the pods that Blockless counts or, without such pods, of
// the node.
func StuckDetails(n *state.NodeBlockStatus) string {
	var out []string
	for _, s := range n.Stuck {
		if s.Blockless && !slices.Contains(out, s.Detail) {
			out = append(out, s.Detail)
		}
	}
	if len(out) == 0 {
		return n.Detail
	}
	return phrase.List(out)
}

// GradeNoBlock returns the severity and a description of a lack of blocks of a family, on a node or
// for some of its pods.
func GradeNoBlock(n *state.NodeBlockStatus) (state.Severity, string) {
	what := fmt.Sprintf("has no %s block", n.Family)
	if !n.NoBlock() {
		what += " for some of its pods"
	}
	stuck := n.Blockless()
	vms := 0 // borrowed permanently and on purpose, see [state.Borrow.VM]
	for _, b := range n.Borrowed {
		if b.VM {
			vms++
		}
	}
	borrowed, because := len(n.Borrowed)-vms, ""
	if n.Cause != state.CauseNone {
		because = fmt.Sprintf(", because %s", n.Cause)
	}
	switch {
	case stuck > 0:
		return state.Critical, fmt.Sprintf("%s, and pods cannot get an address (%d), because %s", what, stuck, stuckCauses(n))
	case borrowed > 0:
		return state.Error, fmt.Sprintf("%s and borrows addresses (%d)%s", what, borrowed, because)
	case n.Cause != state.CauseNone && n.Host.Schedulable:
		effect := "will get no address"
		if !n.Cause.PreventsAllocation() {
			effect = "will borrow an address"
		}
		return state.Warning, fmt.Sprintf("%s, and its next pod %s%s", what, effect, because)
	case vms > 0:
		return state.Info, what + "; it borrows on purpose: virtual machines keep their addresses wherever they run"
	case len(n.Elsewhere) > 0:
		return state.Info, fmt.Sprintf("%s in the pools that select it now; it still holds %s", what, state.CIDRs(n.Elsewhere))
	case n.Addressed:
		return state.Info, what + " of its own; its pods use addresses outside any node's blocks"
	}
	if len(n.Waiting) > 0 {
		return state.Info, what + " yet; pods wait for an address, and blocks are left to claim"
	}
	return state.Info, what + " yet, as it runs no pod"
}
