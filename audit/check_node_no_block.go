package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

var nodeNoBlock = Check{
	ID:       "node/no-block",
	Title:    "a node has no block of a family, in the pools that select it",
	Severity: "critical if a pod of it waits and can get no address; error if it borrows; warning if its next pod would borrow or fail; else info",
	Why: "Its pods use addresses borrowed from other nodes' blocks, or get none. " +
		"A borrowed address is routed on its own, and where the owner does not learn that route it drops the traffic. " +
		"A pod that no pool may serve, for its namespace or for the pools that it asks for, never gets an address, whatever blocks its node has.",
	Confirm: "kubectl get blockaffinities -o custom-columns=NODE:.spec.node,CIDR:.spec.cidr,STATE:.spec.state, " +
		"and look for the node.",
	Misread: "A node that has run no pod yet has no block, and that is normal: it claims one for its first pod. Pools that the CNI configuration itself names (ipv4_pools) are not seen here.",
	Fix: "Remove the cause that the evidence names: add blocks to the pool (or free empty ones), widen a selector, raise the limit. " +
		"Then restart the node's pods one by one: the first makes it claim a block.",
	Verify: "Start a pod on the node: kubectl get blockaffinities then shows a block of it, and the pod has an address of that block.",
	Never:  "Never delete another node's blocks to make room: release only blocks that hold no allocation.",
	Needs:  []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations, blocks.IPAMConfigs, blocks.Nodes, blocks.Pods, blocks.Namespaces},
	Uses:   []blocks.Resource{blocks.Affinities, blocks.ClusterInfos},
	Run: func(st *State, f *Findings) {
		hoarders := st.rememberHoarders()
		for _, h := range st.Hosts {
			var open []*Need
			for _, n := range h.Needs {
				if n.Unjudged != "" {
					f.Withhold("not judged for every pod that waits on node %s: %s", h.Name, n.Unjudged)
				}
				if !n.NoBlock() && n.blockless() == 0 {
					continue
				}
				if n.needsProof() && st.blockMayExist(n) {
					f.Withhold("not judged for node %s: a block that cannot be read may be its own", h.Name)
					continue
				}
				open = append(open, n)
			}
			if len(open) > 0 {
				f.Add(noBlockFinding(st, h, open, hoarders))
			}
		}
	},
}

// noBlockFinding makes one finding of a node's families without a block; the
// worst of them gives the severity.
func noBlockFinding(st *State, h *Host, open []*Need, hoarders func([]*Pool) []string) Finding {
	out := Finding{Subject: NodeSubject(h.Name), Fix: Fix{"look", "calico-audit report -o wide --node " + Arg(h.Name)}}
	var messages []string
	for _, n := range open {
		sev, text := gradeNoBlock(n)
		out.Severity = max(out.Severity, sev)
		messages = append(messages, text)
		out.Pools = append(out.Pools, poolsOf(n.Pools...)...)
		label := func(s string) string {
			if len(st.Families) > 1 {
				return n.Family.String() + " " + s
			}
			return s
		}
		pairs := []string{
			label("cause"), causeText(n), label("detail"), stuckDetails(n),
			label("borrowed"), List(borrowedTexts(n.Borrowed)),
			label("waiting pods"), List(fullNames(n.Waiting)),
			label("blocks it cannot use"), List(cidrs(n.Elsewhere)),
		}
		if n.Cause == CauseNoBlocks || n.Cause == CauseStrict || n.Cause == CauseFull {
			pairs = append(pairs, label("hoarders"), listBy("; ", hoarders(st.PoolsAtIssue(n))))
			out.Fix = Fix{"look", "calico-audit report -o wide --check node/many-blocks,block/empty --pool " + Arg(strings.Join(poolsOf(n.Pools...), ","))}
		}
		out.Evidence = append(out.Evidence, Evidences(pairs...)...)
	}
	out.Message = fmt.Sprintf("node %s %s", h.Name, strings.Join(messages, "; "))
	out.Absence = out.Severity > Info
	return out
}

func causeText(n *Need) string {
	switch {
	case n.blockless() > 0:
		return stuckCauses(n)
	case n.Cause != CauseNone:
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

// blockless counts the pods of the node that can get no address, and none of whose
// pools the node has a block of.
func (n *Need) blockless() (count int) {
	for _, s := range n.Stuck {
		if s.Blockless {
			count++
		}
	}
	return count
}

// needsProof is true unless all that is wrong is that pools do not serve pods, which
// no block would change.
func (n *Need) needsProof() bool {
	return n.NoBlock() || slices.ContainsFunc(n.Stuck, func(s Stuck) bool { return s.Blockless && s.Cause != CauseUnserved })
}

// stuckCauses are the causes of the pods that blockless counts.
func stuckCauses(n *Need) string {
	var out []string
	for _, s := range n.Stuck {
		if text := string(s.Cause); s.Blockless && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return strings.Join(out, "; ")
}

// stuckDetails are the details of the pods that blockless counts, or that of the node.
func stuckDetails(n *Need) string {
	var out []string
	for _, s := range n.Stuck {
		if s.Blockless && !slices.Contains(out, s.Detail) {
			out = append(out, s.Detail)
		}
	}
	if len(out) == 0 {
		return n.Detail
	}
	return listBy("; ", out)
}

// gradeNoBlock returns how bad it is that a node, or some pods of it, have no block
// of a family, and the words for it.
func gradeNoBlock(n *Need) (Severity, string) {
	what := fmt.Sprintf("has no %s block", n.Family)
	if !n.NoBlock() {
		what += " for some of its pods"
	}
	stuck := n.blockless()
	switch {
	case len(n.Borrowed) > 0 && stuck > 0:
		return Critical, fmt.Sprintf("%s: it borrows %s, and %s cannot get one, because %s", what, Plural(len(n.Borrowed), "address"), Plural(stuck, "pod"), stuckCauses(n))
	case stuck > 0:
		return Critical, fmt.Sprintf("%s, and %s cannot get an address, because %s", what, Plural(stuck, "pod"), stuckCauses(n))
	case len(n.Borrowed) > 0 && n.Cause == CauseNone:
		return Error, fmt.Sprintf("%s and borrows %s", what, Plural(len(n.Borrowed), "address"))
	case len(n.Borrowed) > 0:
		return Error, fmt.Sprintf("%s and borrows %s, because %s", what, Plural(len(n.Borrowed), "address"), n.Cause)
	case n.Cause != CauseNone && n.Host.Schedulable:
		who, effect := "its next pod", "will get no address"
		if !n.Cause.starves() {
			effect = "will borrow its address"
		}
		if len(n.Waiting) > 0 {
			who = fmt.Sprintf("the next of its %s", Plural(len(n.Waiting), "waiting pod"))
		}
		return Warning, fmt.Sprintf("%s, and %s %s, because %s", what, who, effect, n.Cause)
	case len(n.Elsewhere) > 0:
		return Info, fmt.Sprintf("%s in the pools that select it now; it still holds %s", what, List(cidrs(n.Elsewhere)))
	case n.Addressed:
		return Info, what + " of its own; its pods use addresses outside any node's blocks"
	}
	if len(n.Waiting) > 0 {
		return Info, fmt.Sprintf("%s yet; %s waiting for an address, and blocks are left to claim", what, numberIs(len(n.Waiting), "pod"))
	}
	return Info, what + " yet, as it runs no pod"
}

func borrowedTexts(bs []*Borrow) []string {
	out := make([]string, len(bs))
	for i, b := range bs {
		out[i] = fmt.Sprintf("%s from %s", b.Addr, b.Owner)
	}
	return out
}
