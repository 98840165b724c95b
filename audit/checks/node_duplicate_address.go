package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/identity"
	"github.com/calico-audit/calico-audit/blocks"
)

var nodeDuplicateAddress = audit.Check{
	ID:         "node/duplicate-address",
	Title:      "two nodes have the same Calico address or InternalIP, or a node records the address of another",
	Severities: []state.Severity{state.Error},
	Why:        "Routes, tunnels and BGP sessions lead to one of the two only, so traffic to the pods of the other is lost. This happens if a machine is rebuilt under another name, if a disk image is cloned, if machines exchange their addresses, or if calico-node detects an address that all machines have, such as a bridge's or a virtual one. If only the InternalIP is the same, logs, kubectl exec and metrics of one node come from the other.",
	Confirm:    "kubectl get nodes -o wide shows the InternalIPs; kubectl get node NAME -o yaml shows the annotation projectcalico.org/IPv4Address.",
	Remedies: []remedies.Remedy{
		remedies.ByHand("delete the Node whose machine no longer exists; if both exist, give one another address and restart calico-node there",
			"each node has an address of its own", "deleting a Node deletes its pods: find out first which of the two Nodes still has a machine", "kubectl get nodes -o wide"),
		remedies.DetectAddress, remedies.RecordAddress, remedies.ReportAddress(nil), remedies.OwnAddress(nil),
	},
	Never:    "Never restart pods of these nodes first: the new pods are routed no better.",
	Requires: []blocks.Resource{blocks.Nodes},
	Run: func(st *state.State, f *audit.Findings) {
		for _, d := range identity.Duplicates(st) {
			x := audit.Finding{
				Absence: true, Severity: state.Error, Subject: state.NodeSubject(d.Node.Name), Message: d.Text(),
				Evidence: state.Evidences(d.Node.Name, readyText(d.Node)), Remedies: f.Check.Remedies[:1],
			}
			switch {
			case d.Stale:
				x.Remedies = []remedies.Remedy{remedies.RecordAddress}
			case d.Alive():
				x.Remedies = []remedies.Remedy{remedies.DetectAddress}
			case len(d.Misreported()) > 0:
				x.Remedies = []remedies.Remedy{remedies.ReportAddress(d.Misreported())}
			}
			for _, o := range d.Others {
				x.Nodes = append(x.Nodes, o.Name)
				x.Evidence = append(x.Evidence, state.Evidences(o.Name, readyText(o))...)
			}
			if len(d.Internal) > 0 && d.AllReady() && len(d.Misreported()) == 0 {
				x.Remedies = []remedies.Remedy{remedies.OwnAddress(append(slices.Clip(x.Nodes), d.Node.Name))}
			}
			f.Add(x)
		}
	},
}

// readyText describes a node's addresses, age and readiness.
func readyText(n *blocks.Node) string {
	ready := "not Ready"
	if n.Ready {
		ready = "Ready"
	}
	var calico, internal blocks.Names
	for _, p := range n.Addresses {
		calico = append(calico, p.Addr().String())
	}
	for _, a := range n.InternalIPs {
		internal = append(internal, a.String())
	}
	return fmt.Sprintf("%s, created %s, Calico address %s, InternalIP %s", ready, n.Created, calico, internal)
}
