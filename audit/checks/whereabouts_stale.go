package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
)

var whereaboutsStale = audit.Check{
	ID: "whereabouts/stale", Title: "a secondary network's address is recorded for a pod that no longer uses it", Severities: []state.Severity{state.Warning},
	Why: "The pod started again in another sandbox or got another address, and the old address was never freed. No other pod can " +
		"use it.",
	Confirm: "kubectl get pod NAME -o yaml: the annotation k8s.v1.cni.cncf.io/network-status does not name the address, and " +
		"cni.projectcalico.org/containerID is not the entry's container. On the node, crictl pods does not list the entry's " +
		"sandbox.",
	Misread: "A pod that is starting or ending, or whose network status is missing or cannot be parsed, may have any address that is " +
		"recorded for it. Such pods are not reported.",
	Remedies: strandedRemedies,
	Never:    whereaboutsStranded.Never,
	Requires: whereaboutsReads, Optional: []blocks.Resource{blocks.NetworkAttachments, blocks.NodeSlicePools, blocks.Nodes},
	Run: func(st *state.State, f *audit.Findings) {
		eachOfStatus(st, f, whereabouts.Stale, func(a *whereabouts.Allocation) audit.Finding {
			return audit.Finding{Message: fmt.Sprintf("%s of pool %s is allocated, but its pod no longer uses it: %s", a.Addr, a.Pool.FullName(), a.Why)}
		})
	},
}
