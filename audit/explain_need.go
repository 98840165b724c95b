package audit

import (
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

// needSection says how a node stands with blocks of a family.
func (x *explainer) needSection(s *sheet, h *Host, f blocks.Family) {
	i := slices.IndexFunc(h.Needs, func(n *Need) bool { return n.Family == f })
	if i < 0 {
		return
	}
	n := h.Needs[i]
	s.section("%s for its pods", f)
	if g := x.FirstMissing([]blocks.Resource{blocks.Pools, blocks.Blocks}); g != nil {
		s.fact("", "not judged", g.String())
		return
	}
	if n.NoBlock() {
		s.fact("", "blocks", "none of its own")
		s.fact("", "cause", causeText(n))
		s.fact("", "detail", n.Detail)
	} else {
		s.factf("", "blocks", "%s; %s left", List(cidrs(n.Blocks)), Plural(n.Unused, "address"))
	}
	if len(n.Elsewhere) > 0 {
		s.factf("", "not for them", "%s: its pods cannot use these", List(cidrs(n.Elsewhere)))
	}
	s.fact("", "waiting", List(fullNames(n.Waiting)))
	for _, w := range n.Stuck {
		s.factf(podSource(w.Pod), "gets none", "%s (%s)", w.Cause, w.Detail)
	}
	s.factf(sourceOf("ipamconfig", x.IPAM.Meta), "block limit", "%d of %s", x.limitCount(n, x.PoolsAtIssue(n)), limitText(x.State))
	s.fact("", "its next pod", x.nextPod(n))
}

// nextPod says what the next pod of a node gets.
func (x *explainer) nextPod(n *Need) string {
	switch {
	case x.Info.Locked:
		return "gets no address: the datastore is locked"
	case n.Unused > 0:
		return "gets an address of the node's own blocks"
	case n.Cause == CauseNone && n.NoBlock():
		return "makes the node claim a block"
	case n.Cause == CauseNone:
		return "makes the node claim another block: its own are full"
	}
	gets, why := "borrows an address", string(n.Cause)
	if n.Cause.starves() {
		gets = "gets no address"
	}
	if !n.NoBlock() {
		why = "the node's blocks are full, and " + why
	}
	return gets + ": " + why
}
