package explain

import (
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// blockStatusSection shows whether a node has or can claim blocks of a family.
func (x *explainer) blockStatusSection(s *builder, h *state.NodeState, f blocks.Family) {
	n := h.StatusOf(f)
	if n == nil {
		return
	}
	s.section("%s for its pods", f)
	if g := x.FirstMissing([]blocks.Resource{blocks.Pools, blocks.Blocks}); g != nil {
		s.fact("", "not evaluated", g)
		return
	}
	if doubt := x.DoubtOf(n); n.NoBlock() && doubt != "" {
		s.fact("", "blocks", "not known: "+doubt)
		return
	}
	unread := x.FirstMissing([]blocks.Resource{blocks.IPAMConfigs, blocks.Affinities}) // they decide whether it can claim one
	if n.NoBlock() {
		s.fact("", "blocks", "none of its own")
		if n.Cause != state.CauseNone || unread == nil && len(x.Unreadable(blocks.Blocks)) == 0 {
			s.fact("", "cause", checks.CauseText(n))
			s.fact("", "detail", n.Detail)
		}
	} else {
		s.factf("", "blocks", "%s; free addresses: %d", state.CIDRs(n.Blocks), n.Unused)
	}
	if len(n.Elsewhere) > 0 {
		s.factf("", "not for them", "%s: its pods cannot use these", state.CIDRs(n.Elsewhere))
	}
	s.fact("", "waiting", phrase.FullNames(n.Waiting))
	for _, w := range n.Stuck {
		s.factf(podSource(w.Pod), "gets none", "%s (%s)", w.Cause, w.Detail)
	}
	if unread != nil {
		s.factf("", "block limit", "not known: %s", unread)
	} else {
		s.factf(sourceOf("ipamconfig", x.IPAM.Meta), "block limit", "%d of %s", x.LimitCount(n, x.PoolsAtIssue(n)), checks.LimitText(x.State))
	}
	if unread == nil || n.Unused > 0 {
		s.fact("", "its next pod", x.nextPod(n))
	}
}
