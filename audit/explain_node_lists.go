package audit

import (
	"slices"

	"github.com/calico-audit/calico-audit/affinity"
)

// tunnelSection lists a node's tunnel addresses and where they lie.
func (x *explainer) tunnelSection(s *sheet, h *Host) {
	if h.Node == nil {
		return
	}
	s.section("Tunnel addresses")
	for _, t := range h.Node.Tunnels {
		s.factf(nodeSource(h.Node), t.Addr.String(), "%s; %s", tunnelName(t.Type), x.placeText(t.Addr, h.Name))
	}
}

// nodeBorrowSections list what a node borrows and lends.
func (x *explainer) nodeBorrowSections(s *sheet, h *Host) {
	s.listed("Borrowed by it: %s", plural(len(h.Borrowed), "address"))
	for _, br := range h.Borrowed {
		s.factf(blockSource(br.Block), br.Addr.String(), "%s, from %s of %s%s", x.borrowUser(br), br.Block.CIDR, br.Owner, x.trafficNote(br))
	}
	s.listed("Lent by it: %s", plural(len(h.Lent), "address"))
	for _, br := range h.Lent {
		s.factf(blockSource(br.Block), br.Addr.String(), "to %s, for %s%s", br.User, x.borrowUser(br), x.trafficNote(br))
	}
	s.section("Traffic to borrowed addresses")
	seen := map[*Pool]bool{}
	for _, br := range append(slices.Clone(h.Borrowed), h.Lent...) {
		if p := br.Block.Pool; p != nil && !seen[p] {
			seen[p] = true
			v := affinity.PredictBorrowed(x.Snapshot, p.Pool)
			s.factf("", "pool "+p.Name, "%s: %s", fateText(v.Fate), v.Reason)
		}
	}
}

func (x *explainer) borrowUser(br *Borrow) string {
	if br.Workload != nil {
		return "pod " + br.Workload.FullName()
	}
	if i, ok := br.Block.Ordinal(br.Addr); ok {
		return x.holder(br.Block, i)
	}
	return "something unseen"
}

// strandedSection lists, for a node that does not exist, the addresses still
// allocated to it.
func (x *explainer) strandedSection(s *sheet, h *Host) {
	if h.Node != nil {
		return
	}
	s.listed("Allocated to it")
	for _, b := range x.IPBlocks {
		for i := range b.Ordinals {
			if a := b.allocated(i); a != nil && a.Node == h.Name {
				s.factf(blockSource(b), b.Address(i).String(), "%s, in %s of %s", x.holderText(b, i), b.CIDR, ownerText(b.Owner))
			}
		}
	}
}
