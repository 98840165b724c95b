package checks

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

var routeBlackhole = audit.Check{
	ID:         "route/blackhole",
	Title:      "traffic to a borrowed IP dies on the node that owns the block",
	Severities: []state.Severity{state.Critical, state.Error, state.Warning},
	Graded:     "critical if a host view proves it; error if the topology implies it; warning if it cannot be known",
	Why: "The block's owner drops traffic to addresses of its blocks for which it has no route. Pods on the owner, and all " +
		"traffic that passes through it, cannot reach the address, although others can.",
	Confirm:  "On the owner, ip route get ADDRESS fails with \"Invalid argument\" if the kernel drops the traffic.",
	Misread:  "An answer from a third node proves nothing: only traffic that passes through the owner is lost.",
	Remedies: remedies.Borrowing,
	Verify:   "The restarted pod answers the former owner at its new address.",
	Never:    "Never delete the blackhole route by hand: BIRD or Felix puts it back, and it prevents routing loops.",
	Requires: []blocks.Resource{blocks.Blocks},
	Optional: remedies.RootReads,
	Run: func(st *state.State, f *audit.Findings) {
		for _, b := range st.Borrows {
			answer, proven := st.HostAnswer(b)
			if proven && answer.Outcome == hosts.Forwards {
				continue
			}
			p := st.Predict(b)
			x := audit.Finding{
				Subject: state.IPSubject(b.Addr, b.User), Pools: state.PoolsOf(b.Block.Pool), Nodes: []string{b.Owner},
				Root: remedies.Of(st).RootOfBorrow(b), Remedies: remedies.Of(st).BorrowRemedies(b),
			}
			user := borrowUser(st, b)
			switch missing := st.FirstMissing(state.RouteReads); {
			case proven && answer.Outcome == hosts.Drops:
				x.Severity, x.Absence, x.Seen = state.Critical, true, true // to confirm it, the objects and the view are read again
				x.Message = fmt.Sprintf("traffic to %s (%s on %s) dies on %s, the owner of its block: it matches %s",
					b.Addr, user, b.User, b.Owner, answer)
			case missing != nil:
				f.Inconclusive("not evaluated for %s: %s", b.Addr, missing)
				continue
			case p.Outcome == affinity.Delivered && proven && answer.Outcome == hosts.Delivers:
				x.Severity, x.Absence = state.Warning, true
				x.Message = fmt.Sprintf("traffic to %s (%s on %s) does not leave %s, the owner of its block: it matches %s",
					b.Addr, user, b.User, b.Owner, answer)
			case p.Outcome == affinity.Delivered:
				continue
			case p.Outcome == affinity.Dropped:
				x.Severity, x.Absence = state.Error, true // the reason may be a missing BGP peer
				x.Message = fmt.Sprintf("traffic to %s (%s on %s) dies on %s, the owner of its block", b.Addr, user, b.User, b.Owner)
			default:
				if g := st.FirstMissing([]blocks.Resource{blocks.Affinities}); g != nil {
					f.Inconclusive("not evaluated for %s: %s", b.Addr, g)
					continue
				}
				x.Severity = state.Warning
				x.Message = fmt.Sprintf("it is not known whether traffic to %s (%s on %s) dies on %s, the owner of its block: %s",
					b.Addr, user, b.User, b.Owner, strings.TrimPrefix(p.Reason, "not known because "))
			}
			x.Evidence = blackholeEvidence(st, b, p, answer, proven)
			f.Add(x)
		}
	},
}

// blackholeEvidence returns the evidence for the outcome of a borrowed address.
func blackholeEvidence(st *state.State, b *state.Borrow, p affinity.Prediction, answer hosts.Answer, proven bool) []state.Evidence {
	out := state.Evidences("owner", b.Owner, "borrower", b.User, "used by", borrowUser(st, b), "block", b.Block.CIDR, "pool", state.PoolName(b.Block.Pool),
		"handle", b.Attributes.Handle, "assigned", b.Attributes.Assigned,
		"by the topology", fmt.Sprintf("%s: %s", p.Outcome.Words(), strings.TrimPrefix(p.Reason, "not known because ")))
	if k := st.Views.Of(b.Owner); proven && k != nil {
		out = append(out, state.Evidences("by the owner's kernel", answer, "that is", answerBasis(answer), "host view", k.Text())...)
		switch {
		case answer.Outcome == hosts.Drops && p.Outcome == affinity.Delivered:
			out = append(out, state.Evidence{Name: "note", Value: "the topology implies delivery; the kernel's answer counts"})
		case answer.Outcome == hosts.FallsBack:
			out = append(out, state.Evidence{Name: "note", Value: b.Owner + " has no blackhole route for it now and forwards it by a wider route; its view does not show whether that leads to " + b.User})
		case answer.Outcome == hosts.Delivers:
			out = append(out, state.Evidence{Name: "note", Value: b.Owner + " treats the address as its own or as a local pod's, so " + b.User + " is not reached from there"})
		}
	}
	if p.Outcome == affinity.Unknown && (!proven || answer.Outcome == hosts.Unclear) {
		out = append(out, state.Evidence{Name: "would settle it", Value: cmp.Or(p.DecidedBy, "a host view of "+b.Owner)})
	}
	return out
}

func answerBasis(r hosts.Answer) string {
	if r.Outcome == hosts.Unclear {
		return ""
	}
	return r.Basis()
}
