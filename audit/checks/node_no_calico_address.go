package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/identity"
	"github.com/calico-audit/calico-audit/blocks"
)

var nodeNoCalicoAddress = audit.Check{
	ID:         "node/no-calico-address",
	Title:      "a node runs pods of the pod network and records no Calico address, although other nodes do",
	Severities: []state.Severity{state.Error},
	Why: "Other nodes set up no route and no tunnel to a node without a Calico address, so its pods are cut off from them. Its " +
		"calico-node does not run, finds no address, or writes under another node's name.",
	Confirm: "kubectl get node NAME -o yaml lacks the annotation projectcalico.org/IPv4Address; kubectl get pods --all-namespaces " +
		"--selector=k8s-app=calico-node -o wide shows whether calico-node runs there; its log names the address that it found.",
	Remedies: []remedies.Remedy{remedies.FixNodeName, remedies.ByHand("let calico-node run on the node and find its address (IP_AUTODETECTION_METHOD)",
		"the node records its address, and other nodes route to it", "none", "kubectl get pods --all-namespaces --selector=k8s-app=calico-node -o wide")},
	Never:    "Never write the annotation by hand: calico-node overwrites it when it starts.",
	Requires: state.OtherIPAMReads,
	Optional: []blocks.Resource{blocks.Handles},
	Run: func(st *state.State, f *audit.Findings) {
		if other := st.OtherIPAM(); other.Unknown != "" {
			f.Inconclusive("%s", other.Unknown)
			return
		}
		// The pods of the node may have their addresses from another IPAM.
		if unread := slices.Concat(st.Unreadable(blocks.Pools), st.Unreadable(blocks.Blocks)); len(unread) > 0 {
			f.Inconclusive("not evaluated: %s", unread[0])
			return
		}
		nodes, pods := identity.WithoutAddress(st)
		for i, h := range nodes {
			as := identity.WrittenAs(st, h.Name)
			x := audit.Finding{
				Absence: true, Severity: state.Error, Subject: state.NodeSubject(h.Name),
				Message:  fmt.Sprintf("node %s runs %s of the pod network and records no Calico address", h.Name, phrase.Plural(len(pods[i]), "pod")),
				Evidence: state.Evidences("pods", phrase.Some(phrase.FullNames(pods[i])), "their allocations name", as), Remedies: f.Check.Remedies[1:],
			}
			if as != "" {
				x.Remedies, x.Root = nil, remedies.Of(st).RootOfNodeName(h.Name)
			}
			f.Add(x)
		}
	},
}
