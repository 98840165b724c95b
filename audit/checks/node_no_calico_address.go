package checks

import (
	"cmp"
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
	Title:      "a node with pods of the pod network records no Calico address, none of a family of its pods, or one that seems wrong",
	Severities: []state.Severity{state.Error, state.Warning},
	Graded:     "error; warning if no node records an address of the family, if the address lies in the other nodes' network but, unlike theirs, is not the InternalIP, or if there is one other node",
	Why:        "Other nodes route to a node by its Calico address, so without one, or with a wrong one, its pods are cut off from them. Its calico-node does not run, finds no address, or writes under another node's name. calico-node may also detect the address of a bridge or of another interface, to which no other node has a route. If a machine's address changes, calico-node may record the former one until it restarts. An address seems wrong if it lies in a network of its own or of the pods, is a loopback address, or is not the InternalIP.",
	Confirm:    "kubectl get node NAME -o yaml lacks the annotation projectcalico.org/IPv4Address; kubectl get pods --all-namespaces --selector=k8s-app=calico-node -o wide shows whether calico-node runs there; its log names the address that it found.",
	Remedies: []remedies.Remedy{remedies.FixNodeName, remedies.ByHand("let calico-node run on the node and find its address (IP_AUTODETECTION_METHOD)",
		"the node records its address, and other nodes route to it", "none", "kubectl get pods --all-namespaces --selector=k8s-app=calico-node -o wide"), remedies.DetectAddress, remedies.GiveAddress, restartCalicoNode("the node"), remedies.RecordAddress, remedies.DetectFamily(blocks.IPv6)},
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
		for _, m := range identity.WithoutAddress(st) {
			as := identity.WrittenAs(st, m.Name)
			x := audit.Finding{
				Absence: true, Severity: m.Severity(), Subject: state.NodeSubject(m.Name), Message: m.Text(),
				Evidence: state.Evidences("pods", phrase.FullNames(m.Pods), "their allocations name", as), Remedies: f.Check.Remedies[1:2],
			}
			if j := slices.IndexFunc(m.Pods, func(w *blocks.Workload) bool { return !w.Created.IsZero() && m.Node.Created.After(w.Created) }); j >= 0 {
				x.Evidence = append(x.Evidence, state.Evidences("registered again", fmt.Sprintf("the Node was created at %s, after pods that run there, such as %s", m.Node.Created, m.Pods[j].FullName()))...)
				x.Remedies = []remedies.Remedy{restartCalicoNode(m.Name)}
			}
			if root := cmp.Or(remedies.Of(st).RootOfNodeName(m.Name), remedies.Of(st).RootOfFamily(m.Family)); root != "" {
				x.Remedies, x.Root = nil, root
			}
			f.Add(x)
		}
		if unread := st.Unreadable(blocks.Nodes); len(unread) > 0 {
			f.SkipPartial("not evaluated whether a node's address is in a network of its own: %s", unread[0])
			return
		}
		for _, a := range identity.Aparts(st) {
			if !a.RoutesPods(st) {
				continue
			}
			x := audit.Finding{
				Absence: true, Severity: state.Error, Subject: state.NodeSubject(a.Node.Name), Message: a.Text(),
				Evidence: state.Evidences(a.Node.Name, readyText(a.Node)), Remedies: []remedies.Remedy{remedies.DetectAddressOf(blocks.FamilyOf(a.Calico.Addr()))},
			}
			if a.Former {
				x.Remedies = []remedies.Remedy{remedies.RecordAddress}
			}
			if a.Network {
				x.Remedies = []remedies.Remedy{remedies.GiveAddress}
			}
			if a.Former || a.Two {
				x.Severity = state.Warning
			}
			f.Add(x)
		}
	},
}

// restartCalicoNode is for a Node that was deleted and registered again: calico-node writes the
// node's addresses when it starts.
func restartCalicoNode(node string) remedies.Remedy {
	return remedies.ByHand("if the Node was deleted and registered again: restart calico-node on "+node+", which then records the node's address and tunnel", "other nodes route to its pods again", "none",
		"kubectl get pods --all-namespaces --selector=k8s-app=calico-node -o wide")
}
