package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/agents"
	"github.com/calico-audit/calico-audit/blocks"
)

var nodeNetworkUnavailable = audit.Check{
	ID: "node/network-unavailable", Title: "a Ready node keeps pods away by a taint that its start should have removed",
	Severities: []state.Severity{state.Error, state.Warning},
	Graded:     "error if pods wait and no node accepts them; else warning",
	Why:        "New pods stay Pending without a node, although nodes are Ready and addresses are left. The taint " + blocks.TaintNetwork + " follows the node's condition NetworkUnavailable, which calico-node sets to False when it starts. The uninitialized taints are removed once the cloud-controller-manager or Cluster API has found the node's machine.",
	Confirm:    "kubectl describe node NAME shows the taints and conditions; kubectl describe pod of a Pending pod shows \"had untolerated taint\".",
	Misread:    "Pods that tolerate the taint run there all the same, such as those of DaemonSets.",
	Remedies:   []remedies.Remedy{remedies.InitializeNode, remedies.ResetNetwork, remedies.RestoreNetwork},
	Verify:     "kubectl get nodes -o custom-columns=NAME:.metadata.name,TAINTS:.spec.taints no longer shows the taint.",
	Never:      "Never remove " + blocks.TaintNetwork + " by hand: it comes back while the condition is True.",
	Requires:   []blocks.Resource{blocks.Nodes, blocks.Pods},
	Run: func(st *state.State, f *audit.Findings) {
		kept := agents.Kept(st)
		for _, c := range agents.Find(st) {
			x := audit.Finding{
				Severity: state.Warning, Subject: state.NodeSubject(c.Name), Message: c.Text(), Absence: true,
				Evidence: state.Evidences("node created", c.Created, "pods without a node", phrase.FullNames(kept), "observed", state.Observed),
				Remedies: []remedies.Remedy{remedies.OpenNode(&c)},
			}
			if len(kept) > 0 {
				x.Severity, x.Message = state.Error, fmt.Sprintf("%s; no node accepts pods, and %d wait", x.Message, len(kept))
			}
			f.Add(x)
		}
	},
}
