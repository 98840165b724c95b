package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/blocks"
)

var routeBlackhole = Check{
	ID:       "route/blackhole",
	Title:    "traffic to a borrowed address dies on the node that owns its block",
	Severity: "critical if a host view proves it; error if the topology says so; warning if it cannot be known",
	Why: "Pods on the owner, and everything whose packets pass through it, cannot reach the address, while others can. " +
		"The owner drops what lies in its blocks and what it has no route of its own to.",
	Confirm: "On the owner: ip route get ADDRESS. \"Invalid argument\" means that the kernel drops it.",
	Misread: "That the address answers from a third node proves nothing: only what passes through the owner dies.",
	Fix: "See to it that the borrowing node can claim a block of its own (see pool/no-free-blocks and node/no-block), " +
		"then restart the pod: it then gets an address of that block, which is routed as a whole.",
	Verify: "From the former owner, the restarted pod answers at its new address.",
	Never:  "Never delete the blackhole route by hand: BIRD or Felix puts it back, and it keeps packets from going in circles.",
	Needs:  []blocks.Resource{blocks.Blocks},
	Uses:   append(slices.Clip(routeReads), blocks.Affinities, blocks.ClusterInfos),
	Run: func(st *State, f *Findings) {
		for _, b := range st.Borrows {
			answer, proven := st.HostAnswer(b)
			if proven && answer.Fate == HostForwards {
				continue
			}
			p := st.Predict(b)
			x := Finding{
				Subject: IPSubject(b.Addr, b.User), Pools: poolsOf(b.Block.Pool), Nodes: []string{b.Owner}, Fix: st.borrowFix(b),
			}
			user := st.borrowUser(b)
			switch missing := st.FirstMissing(routeReads); {
			case proven && answer.Fate == HostDrops:
				x.Severity, x.Absence = Critical, true // both are read once more
				x.Message = fmt.Sprintf("traffic to %s (%s on %s) dies on %s, which owns its block: %s %s",
					b.Addr, user, b.User, b.Owner, saysWhat(answer), answer)
			case missing != nil:
				f.Unjudged("not judged for %s: %s", b.Addr, missing)
				continue
			case p.Fate == affinity.Delivered && proven && answer.Fate == HostDelivers:
				x.Severity, x.Absence = Warning, true
				x.Message = fmt.Sprintf("traffic to %s (%s on %s) does not leave %s, which owns its block: %s %s",
					b.Addr, user, b.User, b.Owner, saysWhat(answer), answer)
			case p.Fate == affinity.Delivered:
				continue
			case p.Fate == affinity.Dropped:
				x.Severity, x.Absence = Error, true // it may rest on a peer that was not there
				x.Message = fmt.Sprintf("traffic to %s (%s on %s) dies when it reaches %s, which owns its block", b.Addr, user, b.User, b.Owner)
			default:
				x.Severity = Warning
				x.Message = fmt.Sprintf("whether traffic to %s (%s on %s) dies on %s, which owns its block, cannot be known: %s",
					b.Addr, user, b.User, b.Owner, strings.TrimPrefix(p.Reason, "not known because "))
			}
			x.Evidence = st.blackholeEvidence(b, p, answer, proven)
			f.Add(x)
		}
	},
}

// routeReads is what it takes to predict what becomes of a borrowed address.
var routeReads = []blocks.Resource{
	blocks.Pools, blocks.FelixConfigs, blocks.BGPConfigs, blocks.BGPPeers, blocks.BGPFilters, blocks.Nodes, blocks.Pods,
}

// blackholeEvidence is what the fate of a borrowed address is concluded from.
func (st *State) blackholeEvidence(b *Borrow, p affinity.Prediction, answer HostRoute, proven bool) []Evidence {
	out := Evidences("owner", b.Owner, "borrower", b.User, "used by", st.borrowUser(b), "block", b.Block.CIDR.String(), "pool", poolName(b.Block.Pool),
		"handle", b.Attributes.Handle, "assigned", FormatTime(b.Attributes.Assigned),
		"by the topology", fmt.Sprintf("%s: %s", fateText(p.Fate), strings.TrimPrefix(p.Reason, "not known because ")))
	if k := st.NodeView(b.Owner); proven && k != nil {
		out = append(out, Evidences("by the owner's kernel", answer.String(), "that is", answerBasis(answer), "host view", k.Text())...)
		switch {
		case answer.Fate == HostDrops && p.Fate == affinity.Delivered:
			out = append(out, Evidence{"note", "the topology says that it should be delivered; what the kernel says counts"})
		case answer.Fate == HostFallsBack:
			out = append(out, Evidence{"note", b.Owner + " has no blackhole for it now and passes it on by a wider route; whether that leads to " + b.User + " its view does not tell"})
		case answer.Fate == HostDelivers:
			out = append(out, Evidence{"note", b.Owner + " takes the address for its own or for that of a pod of its own, so that " + b.User + " is not reached from there"})
		}
	}
	if p.Fate == affinity.Unknown && (!proven || answer.Fate == HostUnclear) {
		out = append(out, Evidence{"would settle it", cmp.Or(p.Settle, "a host view of "+b.Owner)})
	}
	return out
}

// saysWhat introduces an answer in a sentence.
func saysWhat(r HostRoute) string {
	if r.Lookup {
		return "the kernel there answers"
	}
	return "the routes there say"
}

func answerBasis(r HostRoute) string {
	if r.Fate == HostUnclear {
		return ""
	}
	return r.basis()
}
