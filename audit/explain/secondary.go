package explain

import (
	"fmt"
	"net/netip"

	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
)

// secondarySection shows Whereabouts' records of an address.
func (x *explainer) secondarySection(s *builder, a netip.Addr) {
	for _, r := range whereabouts.Of(x.State).Recorded(a) {
		s.section("Whereabouts pool %s", r.Pool.FullName())
		s.fact("", "range", r.Pool.RangeText)
		s.fact("", "network", r.Pool.Network.Name)
		s.fact("", "pod", r.WhereaboutsOwner.Pod)
		s.fact("", "interface", r.Interface)
		s.fact("", "container", r.ContainerID)
		if r.Reservation != nil {
			s.fact("", "reservation", r.Reservation.Key())
		}
		s.fact("", "owner", r.Why)
	}
	for _, l := range whereabouts.Of(x.State).Lone() {
		if l.Addr == a {
			s.section("Whereabouts reservation %s", l.Key().String())
			s.fact("", "network", l.Network.Name)
			s.fact("", "pod", l.WhereaboutsOwner.Pod)
			s.fact("", "allocation", "none: no pool records the address")
		}
	}
}

// secondarySummary summarises an address of a secondary network.
func (x *explainer) secondarySummary(a netip.Addr) (string, bool) {
	for _, r := range whereabouts.Of(x.State).Recorded(a) {
		return fmt.Sprintf("An address of a secondary network: Whereabouts' pool %s records it, and %s.", r.Pool.FullName(), r.Why), true
	}
	for _, l := range whereabouts.Of(x.State).Lone() {
		if l.Addr == a {
			out := fmt.Sprintf("An address of a secondary network: Whereabouts' reservation %s keeps it, and no pool records it.", l.Key())
			if l.User != nil {
				out += " Pod " + l.User.FullName() + " uses it."
			}
			return out, true
		}
	}
	return "", false
}
