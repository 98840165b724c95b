package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

var routeStrayBlackhole = audit.Check{
	ID:         "route/stray-blackhole",
	Title:      "a host view has a blackhole route for a block that its node does not own",
	Severities: []state.Severity{state.Critical},
	Why:        "Pods on that node, and all traffic that passes through it, cannot reach the block's addresses, although the block's owner and its pods are healthy. If the node also announces the block, other nodes' traffic is lost there too.",
	Confirm:    "On the node, ip route show table all type blackhole lists the block's CIDR; calicoctl ipam show --show-blocks and the block's affinity name another node.",
	Misread:    "A blackhole route for the node's own block is normal. So is a wider one that a more specific route to the block overrides.",
	Remedies: []remedies.Remedy{
		remedies.DeleteAffinity,
		remedies.ByHand("if the node has no affinity to the block, restart calico-node there; if BIRD did not make the route, find the program that did", "the node forwards the block's traffic to its owner",
			"calico-node programs the node's routes again"),
	},
	Verify:   "On the node, ip route get for an address of the block leads to the block's owner.",
	Never:    "Never delete the block, or the affinity of the node that the block names.",
	Requires: []blocks.Resource{blocks.Blocks},
	Optional: []blocks.Resource{blocks.Affinities},

	HostViews: true,
	Run: func(st *state.State, f *audit.Findings) {
		for _, s := range st.ForeignBlackholes() {
			b, node := s.Block, s.View.Node
			if g := mayOwn(st, node, s); g != "" {
				f.SkipPartial("not evaluated for %s on %s: block %s cannot be read, and may be the node's own", b.CIDR, node, g)
				continue
			}
			claim, _ := affinityOf(st, b, node)
			x := audit.Finding{
				Severity: state.Critical, Subject: state.BlockSubject(b), Pools: state.PoolsOf(b.Pool), Nodes: []string{node, b.Owner.Node()}, Absence: true, Seen: true,
				Message: fmt.Sprintf("%s drops traffic to block %s, which belongs to %s: it matches %s", node, b.CIDR, b.Owner, s.Example),
				Evidence: state.Evidences("routes", hosts.RoutesText(s.Routes), "made by", hosts.ProtocolText(s.Routes[0].Protocol), "owner of the block", b.Owner,
					"affinity of "+node, claim, "dropped", fmt.Sprintf("%d of %d addresses in use", s.Dropped, b.Used), "that is", answerBasis(s.Example), "host view", s.View.Text()),
			}
			x.Subject.Node = node
			f.Add(x)
		}
	},
}

// affinityOf describes the affinity of a node to a block, and reports whether it has one.
func affinityOf(st *state.State, b *state.Block, node string) (string, bool) {
	if g, missing := st.Missing(blocks.Affinities); missing {
		return "not known: " + g.String(), false
	}
	for _, a := range st.AffinitiesOf(b.CIDR) {
		if a.Owner.Node() == node {
			return fmt.Sprintf("%s, %s", a.Name, a.Effective()), true
		}
	}
	return "none", false
}

// mayOwn names an unread block that may explain a node's route.
func mayOwn(st *state.State, node string, s *state.ForeignBlackhole) string {
	for _, g := range st.Unreadable(blocks.Blocks) {
		if g.OwnerKnown && g.Owner.Node() != node {
			continue
		}
		for _, r := range s.Routes {
			if !g.Prefix.IsValid() || g.Prefix.Overlaps(r.Dst) {
				return g.Name
			}
		}
	}
	return ""
}
