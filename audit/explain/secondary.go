package explain

import (
	"fmt"
	"net/netip"

	"github.com/calico-audit/calico-audit/audit/whereabouts"
)

// secondarySection says what Whereabouts records of an address.
func (x *explainer) secondarySection(s *builder, a netip.Addr) {
	for _, r := range whereabouts.Of(x.State).Recorded(a) {
		s.section("Whereabouts pool %s", r.Pool.FullName())
		s.fact("", "range", r.Pool.RangeText)
		s.fact("", "network", r.Pool.Network)
		s.fact("", "pod", r.WhereaboutsOwner.Pod.String())
		s.fact("", "interface", r.Interface)
		s.fact("", "container", r.ContainerID)
		if r.Reservation != nil {
			s.fact("", "reservation", r.Reservation.Key().String())
		}
		s.fact("", "owner", r.Why)
	}
}

// secondarySummary is about an address of a secondary network.
func (x *explainer) secondarySummary(a netip.Addr) (string, bool) {
	for _, r := range whereabouts.Of(x.State).Recorded(a) {
		return fmt.Sprintf("An address of a secondary network: Whereabouts' pool %s records it, and %s.", r.Pool.FullName(), r.Why), true
	}
	return "", false
}
