package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var affinityDeadNode = audit.Check{
	ID:         "affinity/dead-node",
	Title:      "an affinity's host no longer exists",
	Severities: []state.Severity{state.Warning},
	Why: "The block stays taken although its node no longer exists: no pod uses it, and no other node can claim it. Calico cleans " +
		"up after a deleted node, but finds affinities by a label that versions before v3.31 did not write.",
	Confirm:  "kubectl get node NAME returns NotFound.",
	Misread:  "A node that is being replaced under the same name is missing only for a moment.",
	Remedies: []remedies.Remedy{remedies.CleanUpNode},
	Never:    "Never release one of its blocks while the block holds addresses of pods on other nodes.",
	Requires: []blocks.Resource{blocks.Affinities, blocks.Blocks, blocks.Nodes},
	Optional: state.ReleaseReads,
	Run: func(st *state.State, f *audit.Findings) {
		eachAffinity(st, func(a *blocks.Affinity, _ *state.Block) {
			if host := a.Owner.Node(); st.Vanished(host) && st.PastGrace(a.Created) {
				x := affinityFinding(st, a, state.Warning, fmt.Sprintf("node %q no longer exists, but still has an affinity to %s", host, a.CIDR))
				if a.Unlabelled {
					x.Evidence = append(x.Evidence, state.Evidence{Name: "label", Value: "missing: Calico's own clean-up of the node does not see it"})
				}
				x.Root = remedies.Of(st).RootOfHost(host)
				x.Absence = true
				f.Add(x)
			}
		})
	},
}
