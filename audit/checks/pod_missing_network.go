package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
)

var podMissingNetwork = audit.Check{
	ID:         "pod/missing-network",
	Title:      "a running pod has no address on a network that it asks for",
	Severities: []state.Severity{state.Warning},
	Why:        "The pod was started without Multus, for example after a reboot of its node before Multus ran there: it has the cluster's network only, and nothing adds the other until the pod starts again.",
	Confirm:    "kubectl get pod NAME -o yaml: the annotation k8s.v1.cni.cncf.io/networks names the network, and k8s.v1.cni.cncf.io/network-status does not.",
	Misread:    "KubeVirt writes the annotation when an interface is plugged in, and the address may follow later. Networks without an IPAM plugin are not evaluated.",
	Remedies: []remedies.Remedy{remedies.ByHand("once Multus runs on the node, delete the pod, so that its controller creates another", "Multus attaches the new pod to its networks", "the pod restarts",
		"kubectl get pods --all-namespaces -o wide --selector=app=multus")},
	Never:    "Never write the network status by hand: it does not give the pod an interface.",
	Requires: []blocks.Resource{blocks.Pods, blocks.NetworkAttachments},
	Run: func(st *state.State, f *audit.Findings) {
		v := whereabouts.Of(st)
		for _, w := range st.Workloads {
			if len(w.Extras().AsksNetworks) == 0 || !w.Live() || w.Phase != "Running" || !w.Deleting.IsZero() || w.Extras().Unreadable != "" || !st.PastGrace(w.Started.Later(w.Created)) {
				continue
			}
			if lacks := v.AskedBy(w).Lacking; len(lacks) > 0 {
				f.Add(audit.Finding{
					Severity: state.Warning, Subject: state.PodSubject(w), Nodes: []string{w.Node},
					Message:  fmt.Sprintf("pod %s runs on %s without network %s, which it asks for", w.FullName(), w.Node, lacks),
					Evidence: state.Evidences("asks for", w.Extras().AsksNetworks, "network status", w.Extras().Interfaces), Remedies: f.Check.Remedies,
				})
			}
		}
	},
}
