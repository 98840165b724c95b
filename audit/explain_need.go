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
	if g := x.firstMissing([]blocks.Resource{blocks.Pools, blocks.Blocks}); g != nil {
		s.fact("", "not judged", g.String())
		return
	}
	unused := 0
	for _, b := range n.Blocks {
		unused += b.unused(x.reserved)
	}
	if n.NoBlock() {
		s.fact("", "blocks", "none of its own")
		s.fact("", "cause", causeText(n))
		s.fact("", "detail", n.Detail)
	} else {
		s.factf("", "blocks", "%s; %s left", list(cidrs(n.Blocks)), plural(unused, "address"))
	}
	if len(n.Elsewhere) > 0 {
		s.factf("", "not for them", "%s: its pods cannot use these", list(cidrs(n.Elsewhere)))
	}
	s.fact("", "waiting", list(fullNames(n.Waiting)))
	s.factf(sourceOf("ipamconfig", x.IPAM.Meta), "block limit", "%d of %s", x.limitCount(n), limitText(x.State))
	s.fact("", "its next pod", x.nextPod(n, unused))
}

// nextPod says what the next pod of a node gets.
func (x *explainer) nextPod(n *Need, unused int) string {
	switch {
	case x.Info.Locked:
		return "gets no address: the datastore is locked"
	case unused > 0:
		return "gets an address of the node's own blocks"
	case n.NoBlock() && n.Cause == CauseNoBlocks:
		return "borrows an address"
	case n.NoBlock() && n.Cause != CauseNone:
		return "gets no address"
	case n.NoBlock():
		return "makes the node claim a block"
	}
	return x.beyondFull(n)
}

// beyondFull says what the next pod gets of a node whose blocks are all full
// (libcalico-go ipam/ipam.go, autoAssign: at the limit nothing is borrowed).
func (x *explainer) beyondFull(n *Need) string {
	if x.IPAM.AutoAllocateBlocks {
		if x.limitCount(n) >= x.IPAM.BlockLimit() {
			return "gets no address: the node's blocks are full, and it may hold no more"
		}
		left := slices.ContainsFunc(n.Pools, func(p *Pool) bool { return !p.Slots.Allocatable.IsZero() })
		if left || x.reclaimedByAllocator(n.Pools, n.Host) > 0 {
			return "makes the node claim another block: its own are full"
		}
	}
	switch some := slices.ContainsFunc(n.Pools, func(p *Pool) bool { return !p.Addrs.Available.IsZero() }); {
	case x.IPAM.StrictAffinity:
		return "gets no address: the node's blocks are full, none is left to claim, and strict affinity forbids borrowing"
	case some:
		return "borrows an address: the node's blocks are full, and none is left to claim"
	}
	return "gets no address: its pools have neither a block nor an address left"
}
