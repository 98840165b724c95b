package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
)

var whereaboutsNoPodref = audit.Check{
	ID: "whereabouts/no-podref", Title: "a secondary network's address is recorded without its pod", Severities: []state.Severity{state.Info},
	Why:     "No one can look up the owner, so neither Whereabouts' reconciler nor calico-audit ever frees the address. Old releases recorded no pod, and a CRD without the field drops it.",
	Confirm: "kubectl get ippools.whereabouts.cni.cncf.io POOL -n NAMESPACE -o yaml shows an entry with an empty podref.",
	Remedies: []remedies.Remedy{
		remedies.ByHand("restart the pod that uses it, so that it is recorded with its pod; if no node uses it, remove the entry with a JSON patch that tests the resourceVersion",
			"the owner can be looked up", "if the entry is removed while its address is in use, the address is assigned a second time"),
	},
	Never:    "Never remove the entry just because it names no pod: pods that old releases started may still run.",
	Requires: []blocks.Resource{blocks.WhereaboutsPools}, Optional: []blocks.Resource{blocks.WhereaboutsReservations, blocks.Pods, blocks.NetworkAttachments},
	Run: func(st *state.State, f *audit.Findings) {
		v := whereabouts.Of(st)
		for _, a := range v.WithStatus(whereabouts.Ownerless) {
			f.Add(audit.Finding{
				Severity: state.Info, Subject: a.Subject(), Evidence: secondaryEvidence(a),
				Message: fmt.Sprintf("%s of pool %s is allocated, and no pod is recorded for it", a.Addr, a.Pool.FullName()),
				Fix:     audit.Look(poolLook(a.Pool.Namespace, a.Pool.Name)), Pools: []string{a.Pool.FullName()},
			})
		}
		for i := range st.WhereaboutsReservations {
			if r := &st.WhereaboutsReservations[i]; r.Pod == (blocks.Key{}) {
				f.Add(audit.Finding{
					Severity: state.Info, Subject: reservationSubject(r), Evidence: state.Evidences("container", r.ContainerID),
					Message: fmt.Sprintf("reservation %s names no pod", r.Key()), Fix: audit.Look(reservationLook(r)), Pools: reservationPools(v, r),
				})
			}
		}
	},
}

func reservationLook(r *blocks.WhereaboutsReservation) string {
	return remedies.Shell("kubectl get overlappingrangeipreservations %s -n %s -o yaml", r.Name, r.Namespace)
}
