package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
)

// halfRecorded is for a live pod's address that only its reservation still records. loneReservation
// is for an unexplained reservation: with proof, without it, by hand.
var (
	halfRecorded = []remedies.Remedy{
		remedies.Repair("record the address in its pool again", "--whereabouts-reservations", "the pool and the reservation both record the address", "none: the address is recorded only if no other object claims it"),
		remedies.ByHand("if the plan refuses it, restart the pod, so that Whereabouts records its address again", "the pool and the reservation both record the address", "the pod restarts: check first that a controller owns it and that other replicas serve"),
	}
	loneReservation = append(releaseSecondary("--whereabouts-reservations"),
		remedies.ByHand("check on every node that the pod's sandbox is gone, then delete the reservation", "the address can be assigned again",
			"if something still uses the address, another pod can get it, too", "kubectl get overlappingrangeipreservations --all-namespaces"))
)

var whereaboutsReservationOnly = audit.Check{
	ID: "whereabouts/reservation-only", Title: "a secondary network's address has a reservation but no allocation", Severities: []state.Severity{state.Error, state.Warning},
	Graded:     "error if a live pod names the address, because it may be assigned again once the reservation goes; else warning",
	Why:        "Whereabouts records an address in the pool and, if ranges may overlap, in a reservation. If only the reservation is left, the address is either in use without full protection, or lost: Whereabouts may offer it to a new pod, which then fails because of the reservation.",
	Confirm:    "kubectl get overlappingrangeipreservations --all-namespaces shows the reservation; the pool of its range has no entry at its offset.",
	Remedies:   slices.Concat(halfRecorded, loneReservation),
	RemediesAt: map[state.Severity][]remedies.Remedy{state.Error: halfRecorded, state.Warning: loneReservation},
	Never:      "Never delete the reservation of an address that a pod names.",
	Requires:   []blocks.Resource{blocks.WhereaboutsReservations, blocks.WhereaboutsPools, blocks.Pods}, Optional: []blocks.Resource{blocks.NetworkAttachments, blocks.NodeSlicePools, blocks.Nodes},
	Run: func(st *state.State, f *audit.Findings) {
		if unread := st.Unreadable(blocks.WhereaboutsPools); len(unread) > 0 {
			f.Inconclusive("not evaluated: pool %s could not be read", unread[0].Name)
			return
		}
		v := whereabouts.Of(st)
		attachments := st.WholeBar([]blocks.Resource{blocks.NetworkAttachments}, true)
		for _, l := range v.Lone() {
			if l.InFlight() {
				continue
			}
			x := audit.Finding{
				Absence: true, Severity: state.Warning, Subject: reservationSubject(l.WhereaboutsReservation), Fix: audit.Look(reservationLook(l.WhereaboutsReservation)), Remedies: loneReservation[2:], Pools: reservationPools(v, l.WhereaboutsReservation),
				Message:  fmt.Sprintf("reservation %s holds an address that no pool records", l.Key()),
				Evidence: state.Evidences("address", addrText(l.Addr), "pod", podText(l.WhereaboutsOwner), "interface", l.Interface, "container", l.ContainerID),
			}
			if l.Reason != "" {
				x.Message += "; " + l.Reason
				x.Remedies = []remedies.Remedy{remedies.ByHand("if the pod still uses the address, restart it; if it has ended, delete it", "the address is recorded completely, or can be assigned again", "the pod ends; it starts again only if a controller owns it")}
			}
			if v.DeleteBar(&l).Code == "" {
				x.Remedies = provenOrNot(loneReservation, v.Unused(l.Addr, l.WhereaboutsOwner, v.AllMachines(), l.Written.Later(l.Created).Std()))
			}
			switch {
			case l.User == nil:
			case attachments.Code != "":
				f.SkipPartial("whether pod %s uses %s on the same network was not evaluated: %s", l.User.FullName(), l.Addr, attachments.Reason)
			default:
				if x.Remedies = halfRecorded[1:]; restorable(v, &l) {
					x.Remedies = halfRecorded[:1]
				}
				x.Severity, x.Nodes = state.Error, []string{l.User.Node}
				x.Message = fmt.Sprintf("reservation %s holds %s, which pod %s uses and no pool records", l.Key(), l.Addr, l.User.FullName())
			}
			if !x.Remedies[0].Manual {
				x.Fix = audit.FixOf(x.Remedies)
			}
			f.Add(x)
		}
	},
}

func restorable(v *whereabouts.Verdicts, l *whereabouts.LoneReservation) bool {
	_, no := v.Restoration(l)
	return no.Code == ""
}
