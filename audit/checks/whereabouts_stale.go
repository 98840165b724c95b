package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
)

var whereaboutsStale = audit.Check{
	ID: "whereabouts/stale", Title: "an address of a secondary network that its pod has given up", Severities: []state.Severity{state.Warning},
	Why:      "The pod started again in another sandbox or got another address, and the old one was never freed: it is lost to other pods.",
	Confirm:  "kubectl get pod NAME -o yaml: the annotation k8s.v1.cni.cncf.io/network-status does not name the address, and cni.projectcalico.org/containerID is not the container of the entry. crictl pods on its node does not list the sandbox that the entry names.",
	Misread:  "A pod whose network status is missing or cannot be parsed may have any address that is recorded for it, and one that is starting or ending, too: those are not found here.",
	Remedies: strandedRemedies,
	Never:    whereaboutsStranded.Never,
	Requires: whereaboutsReads, Optional: []blocks.Resource{blocks.NetworkAttachments, blocks.NodeSlicePools, blocks.Nodes},
	Run: func(st *state.State, f *audit.Findings) {
		eachOfStatus(st, f, whereabouts.Stale, func(a *whereabouts.Allocation) audit.Finding {
			return audit.Finding{Message: fmt.Sprintf("%s of pool %s is allocated, and was given up: %s", a.Addr, a.Pool.FullName(), a.Why)}
		})
	},
}
