package audit

import (
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

func init() {
	register(Check{
		ID:       "node/no-block",
		Title:    "a node has no block of a family, in the pools that select it",
		Severity: "error, warning or info",
		Why: "Its pods use addresses borrowed from other nodes' blocks, or get none. " +
			"A borrowed address is routed on its own, and where the owner does not learn that route it drops the traffic.",
		Confirm: "kubectl get blockaffinities -o custom-columns=NODE:.spec.node,CIDR:.spec.cidr,STATE:.spec.state, " +
			"and look for the node.",
		Misread: "A node that has run no pod yet has no block, and that is normal: it claims one for its first pod.",
		Fix: "Remove the cause that the evidence names: add blocks to the pool (or free empty ones), widen a selector, raise the limit. " +
			"Then restart the node's pods one by one: the first makes it claim a block.",
		Verify: "Start a pod on the node: kubectl get blockaffinities then shows a block of it, and the pod has an address of that block.",
		Never:  "Never delete another node's blocks to make room: release only blocks that hold no allocation.",
		Needs:  []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations, blocks.IPAMConfigs, blocks.Nodes, blocks.Pods, blocks.Namespaces},
		Run: func(st *State, f *Findings) {
			hoarders := st.rememberHoarders()
			for _, h := range st.Hosts {
				var open []*Need
				for _, n := range h.Needs {
					if !n.NoBlock() {
						continue
					}
					if st.blockMayExist(n) {
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
	})
}

// noBlockFinding makes one finding of a node's families without a block; the
// worst of them gives the severity.
func noBlockFinding(st *State, h *Host, open []*Need, hoarders func([]*Pool) []string) Finding {
	out := Finding{Subject: nodeSubject(h.Name), Fix: Fix{"look", "calico-audit report -o wide --node " + arg(h.Name)}}
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
			label("cause"), causeText(n), label("detail"), n.Detail,
			label("borrowed"), list(borrowedTexts(n.Borrowed)),
			label("waiting pods"), list(fullNames(n.Waiting)),
			label("blocks it cannot use"), list(cidrs(n.Elsewhere)),
		}
		if n.Cause == CauseNoBlocks || n.Cause == CauseStrict || n.Cause == CauseFull {
			pairs = append(pairs, label("hoarders"), listBy("; ", hoarders(st.poolsAtIssue(n))))
			out.Fix = Fix{"look", "calico-audit report -o wide --check node/many-blocks,block/empty --pool " + arg(strings.Join(poolsOf(n.Pools...), ","))}
		}
		out.Evidence = append(out.Evidence, Evidences(pairs...)...)
	}
	out.Message = fmt.Sprintf("node %s %s", h.Name, strings.Join(messages, "; "))
	out.Absence = out.Severity > Info
	return out
}

func causeText(n *Need) string {
	switch {
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

// gradeNoBlock returns how bad it is that a node has no block of a family, and
// the words for it.
func gradeNoBlock(n *Need) (Severity, string) {
	what := fmt.Sprintf("has no %s block", n.Family)
	stuck := len(n.Waiting) > 0 && n.Cause.starves()
	switch {
	case len(n.Borrowed) > 0 && stuck:
		return Error, fmt.Sprintf("%s: it borrows %s, and %s waiting for one, because %s", what, plural(len(n.Borrowed), "address"), numberIs(len(n.Waiting), "pod"), n.Cause)
	case len(n.Borrowed) > 0 && n.Cause == CauseNone:
		return Error, fmt.Sprintf("%s and borrows %s", what, plural(len(n.Borrowed), "address"))
	case len(n.Borrowed) > 0:
		return Error, fmt.Sprintf("%s and borrows %s, because %s", what, plural(len(n.Borrowed), "address"), n.Cause)
	case stuck:
		return Error, fmt.Sprintf("%s, and %s cannot get an address, because %s", what, plural(len(n.Waiting), "pod"), n.Cause)
	case n.Cause != CauseNone && n.Host.Schedulable:
		who, effect := "its next pod", "will get no address"
		if !n.Cause.starves() {
			effect = "will borrow its address"
		}
		if len(n.Waiting) > 0 {
			who = fmt.Sprintf("the next of its %s", plural(len(n.Waiting), "waiting pod"))
		}
		return Warning, fmt.Sprintf("%s, and %s %s, because %s", what, who, effect, n.Cause)
	case len(n.Elsewhere) > 0:
		return Info, fmt.Sprintf("%s in the pools that select it now; it still holds %s", what, list(cidrs(n.Elsewhere)))
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
