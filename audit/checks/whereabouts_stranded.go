package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
)

// strandedRemedies are for addresses that pods have given up: with proof, without it, and by
// hand.
var strandedRemedies = append(releaseSecondary("--whereabouts-stranded"),
	remedies.ByHand("check on the node that the pod's sandbox is gone, remove the entry with a JSON patch that tests the pool's resourceVersion, then delete the address's reservation, if any",
		"the address can be assigned again", "a container that still runs shares its address with the next pod"),
)

var whereaboutsStranded = audit.Check{
	ID: "whereabouts/stranded", Title: "a secondary network's address is recorded for a pod that does not exist", Severities: []state.Severity{state.Warning},
	Why:      "No other pod can use the address, and only Whereabouts' reconciler frees such addresses. When they fill the range, new pods do not start.",
	Confirm:  "kubectl get ippools.whereabouts.cni.cncf.io POOL -n NAMESPACE -o yaml shows the entry; kubectl get pod returns NotFound for its pod. On the node where it ran, crictl pods shows whether the sandbox still runs.",
	Misread:  "A pod that was deleted by force, or whose Node object was deleted, may still run on its machine and use the address. The API does not show that.",
	Remedies: strandedRemedies,
	Never:    "Never remove all entries of a pool, or the pool: running pods would share their addresses with new ones.",
	Requires: whereaboutsReads, Optional: []blocks.Resource{blocks.NetworkAttachments, blocks.NodeSlicePools, blocks.Nodes},
	Run: func(st *state.State, f *audit.Findings) {
		eachOfStatus(st, f, whereabouts.Stranded, func(a *whereabouts.Allocation) audit.Finding {
			return audit.Finding{Message: fmt.Sprintf("%s of pool %s is allocated, and %s", a.Addr, a.Pool.FullName(), a.Why)}
		})
	},
}
