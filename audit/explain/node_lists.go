package explain

import (
	"slices"

	"github.com/calico-audit/calico-audit/audit/state"
)

// tunnelSection lists a node's tunnel addresses and their blocks.
func (x *explainer) tunnelSection(s *builder, h *state.NodeState) {
	if h.Node == nil {
		return
	}
	s.section("Tunnel addresses")
	for _, t := range h.Node.Tunnels {
		s.factf(nodeSource(h.Node), t.Addr.String(), "%s; %s", tunnelName(t.Type), x.placeText(t.Addr, h.Name))
	}
}

// nodeBorrowSections lists the addresses that a node borrows, and those borrowed from it.
func (x *explainer) nodeBorrowSections(s *builder, h *state.NodeState) {
	s.listed("Borrowed by it: %d", len(h.Borrowed))
	for _, br := range h.Borrowed {
		s.factf(blockSource(br.Block), br.Addr.String(), "%s, from %s of %s%s", x.borrowUser(br), br.Block.CIDR, br.Owner, x.trafficNote(br))
	}
	s.listed("Borrowed from it: %d", len(h.Lent))
	for _, br := range h.Lent {
		s.factf(blockSource(br.Block), br.Addr.String(), "by %s, for %s%s", br.User, x.borrowUser(br), x.trafficNote(br))
	}
	x.borrowOutcomeSection(s, append(slices.Clone(h.Borrowed), h.Lent...))
}

// maxOutcomes limits the pairs of nodes for which a node's explanation gives reasons.
const maxOutcomes = 8

// borrowOutcomeSection describes, once for each pair of nodes, what happens to traffic to the
// addresses that one borrows from the other, and why.
func (x *explainer) borrowOutcomeSection(s *builder, borrows []*state.Borrow) {
	type pair struct{ owner, user, outcome, reason string }
	var pairs []pair
	seen := map[pair]bool{}
	for _, br := range borrows {
		v := x.Predict(br)
		p := pair{br.Owner, br.User, v.Outcome.Words(), v.Reason}
		if v.DecidedBy != "" {
			p.reason += "; to settle it: " + v.DecidedBy
		}
		if !seen[p] {
			seen[p] = true
			pairs = append(pairs, p)
		}
	}
	s.section("Traffic to borrowed addresses")
	for i, p := range pairs {
		if i == maxOutcomes {
			s.factf("", "more", "%d; calico-audit explain describes each address", len(pairs)-i)
			break
		}
		s.factf("", "on "+p.owner+", for "+p.user, "%s: %s", p.outcome, p.reason)
	}
}

func (x *explainer) borrowUser(br *state.Borrow) string {
	if br.Workload != nil {
		return "pod " + br.Workload.FullName()
	}
	if i, ok := br.Block.Ordinal(br.Addr); ok {
		return x.holder(br.Block, i)
	}
	return "something unseen"
}

// strandedSection lists the addresses still allocated to a node that does not exist.
func (x *explainer) strandedSection(s *builder, h *state.NodeState) {
	if h.Node != nil {
		return
	}
	s.listed("Allocated to it")
	for _, b := range x.IPBlocks {
		for i := range b.Ordinals {
			if a := allocated(b, i); a != nil && a.Node == h.Name {
				s.factf(blockSource(b), b.Address(i).String(), "%s, in %s", x.holderText(b, i), ownedBlock(b))
			}
		}
	}
}
