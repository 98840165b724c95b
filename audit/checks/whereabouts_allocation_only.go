package checks

import (
	"fmt"
	"net/netip"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
)

var whereaboutsAllocationOnly = audit.Check{
	ID: "whereabouts/allocation-only", Title: "a secondary network's address has an allocation but no reservation", Severities: []state.Severity{state.Warning},
	Why: "The network keeps an address unique across its ranges by one reservation per address. Without the reservation, a pod on " +
		"another range of the network can get the same address.",
	Confirm: "kubectl get overlappingrangeipreservations -n NAMESPACE shows no reservation of the address; the pool has an entry for " +
		"it.",
	Misread: "A network with enable_overlapping_ranges: false makes no reservations. Such networks, and clusters without any " +
		"reservation, are not reported.",
	Remedies: []remedies.Remedy{
		remedies.ByHand("restart the pod, so that Whereabouts records its address again", "the address has its reservation", "the pod restarts: check first that a controller owns it and that other replicas serve"),
	},
	Never:    "Never remove the pool's entry: the pod still uses the address.",
	Requires: []blocks.Resource{blocks.WhereaboutsReservations, blocks.WhereaboutsPools, blocks.Pods, blocks.NetworkAttachments},
	Optional: []blocks.Resource{blocks.NodeSlicePools, blocks.Nodes},
	Run: func(st *state.State, f *audit.Findings) {
		unread := map[string]bool{}
		for _, g := range st.Unreadable(blocks.WhereaboutsReservations) {
			unread[g.Name] = true
		}
		for _, a := range whereabouts.Of(st).Unreserved() {
			name := a.ReservationKey().Name
			if unread[a.Pool.Namespace+"/"+name] {
				continue
			}
			f.Add(audit.Finding{
				Absence: true, Severity: state.Warning, Subject: a.Subject(), Evidence: secondaryEvidence(a, "reservation", name+" does not exist"),
				Message: fmt.Sprintf("%s of pool %s is allocated without a reservation: a pod of another range of the network may get it, too", a.Addr, a.Pool.FullName()),
				Fix:     audit.Look(poolLook(a.Pool.Namespace, a.Pool.Name)), Remedies: f.Check.Remedies,
				Pools: []string{a.Pool.FullName()},
			})
		}
	},
}

// addrText formats an address; "" if it is invalid.
func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
