package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
)

var whereaboutsUnrecorded = audit.Check{
	ID: "whereabouts/unrecorded", Title: "a live pod uses an address of a secondary network that no pool records", Severities: []state.Severity{state.Critical},
	Why: "Whereabouts will assign the address to another pod, and then two share it. This happens if pools are restored from a " +
		"backup, or if an entry is removed while its pod runs.",
	Confirm: "The pod's annotation k8s.v1.cni.cncf.io/network-status names the address; in kubectl get " +
		"ippools.whereabouts.cni.cncf.io --all-namespaces -o yaml the pool of its range has no entry at its offset.",
	Remedies: []remedies.Remedy{
		remedies.ByHand("restart the pod, so that it gets a recorded address", "every address in use is recorded", "the pod restarts: check first that a controller owns it and that other replicas serve"),
	},
	Never:    "Never restart Whereabouts' reconciler to fix this: it records nothing, it only frees addresses.",
	Requires: []blocks.Resource{blocks.WhereaboutsPools, blocks.Pods, blocks.NetworkAttachments},
	Optional: []blocks.Resource{blocks.NodeSlicePools, blocks.Nodes},
	Run: func(st *state.State, f *audit.Findings) {
		if unread := st.Unreadable(blocks.WhereaboutsPools); len(unread) > 0 {
			f.Inconclusive("not evaluated: pool %s could not be read", unread[0].Name)
			return
		}
		v := whereabouts.Of(st)
		for _, u := range v.Unrecorded() {
			who, uses := u.Pods[0].FullName(), "pod %s uses"
			for _, w := range u.Pods[1:] {
				who, uses = who+" and "+w.FullName(), "pods %s use"
			}
			f.Add(audit.Finding{
				Absence: true, Severity: state.Critical, Subject: networkSubject(u.Addr, u.Attachment.NetworkName, u.Pods[0].Node), Remedies: f.Check.Remedies, Pools: servingPools(v, u.Attachment.NetworkName, u.Addr),
				Message:  fmt.Sprintf(uses+" %s of network %s, and no pool records it", who, u.Addr, u.Attachment.Key()),
				Evidence: state.Evidences("pod", who, "network", u.Attachment.Key(), "network name", u.Attachment.NetworkName),
			})
		}
	},
}
