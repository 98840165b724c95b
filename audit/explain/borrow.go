package explain

import (
	"fmt"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// borrowedSection shows whether an address is used outside its owner's node, and the effect on its
// traffic.
func (x *explainer) borrowedSection(s *builder, ref state.AllocationRef) {
	b := ref.Block
	br := x.borrowOf(ref)
	s.section("Borrowed")
	owner := b.Owner.Node()
	if br == nil {
		switch attr := ref.Attributes(); {
		case owner == "" && b.Owner.Kind == blocks.NoOwner:
			s.fact("", "borrowed", "no: the block belongs to no node, and each address in it is routed by itself")
		case owner == "" || attr == nil || attr.Node == "":
		case x.vanished(attr.Node):
			s.factf("", "borrowed", "no: it was assigned on %s, which no longer exists", attr.Node)
		default:
			s.factf("", "borrowed", "no: it is used on %s, which owns the block", owner)
		}
		return
	}
	s.factf("", "borrowed", "yes: it is used on %s, and the block belongs to %s%s", br.User, br.Owner, x.byRecord(br))
	s.fact("", "traffic", x.trafficText(br))
	if p := x.Predict(br); p.Outcome == affinity.Unknown && p.DecidedBy != "" {
		s.fact("", "to settle it", p.DecidedBy)
	}
}

// byRecord notes that a borrow is known only from the allocation, because pods were not read.
func (x *explainer) byRecord(br *state.Borrow) string {
	if br.Workload == nil && !br.Tunnel && x.unread(blocks.Pods) != "" {
		return ", according to its allocation (pods were not read)"
	}
	return ""
}

// borrowOf returns the borrow of an allocation, or nil.
func (x *explainer) borrowOf(ref state.AllocationRef) *state.Borrow {
	for _, br := range x.Borrows {
		if br.Block == ref.Block && br.Addr == ref.Addr() {
			return br
		}
	}
	return nil
}

// trafficText describes what the owner does with traffic to a borrowed address.
func (x *explainer) trafficText(br *state.Borrow) string {
	p := x.Predict(br)
	if p.Outcome == affinity.Unknown {
		return "not known: " + p.Reason
	}
	return fmt.Sprintf("%s, when it reaches %s: %s", p.Outcome.Words(), br.Owner, p.Reason)
}

// drops reports whether the owner of a borrowed address is predicted to drop its traffic.
func (x *explainer) drops(br *state.Borrow) bool {
	return x.Predict(br).Outcome == affinity.Dropped
}

// trafficNote is trafficText for lists, which give the reason elsewhere.
func (x *explainer) trafficNote(br *state.Borrow) string {
	if x.drops(br) {
		return "; " + br.Owner + " drops traffic to it"
	}
	return ""
}
