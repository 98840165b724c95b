package checks

import (
	"fmt"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
)

var whereaboutsDeadSlice = audit.Check{
	ID: "whereabouts/dead-slice", Title: "a secondary network's slice belongs to a node that no longer exists", Severities: []state.Severity{state.Warning},
	Why:     "Other nodes cannot use the slice's addresses. When no slice is left, pods of a new node get no address.",
	Confirm: "Compare kubectl get nodeslicepools NAME -n NAMESPACE -o yaml with kubectl get nodes.",
	Remedies: []remedies.Remedy{
		remedies.ByHand("check that the machine is off, then restart Whereabouts' node slice controller, which frees the slices of deleted nodes", "another node can have the slice",
			"a machine that still runs keeps using addresses of the slice", "kubectl get nodeslicepools --all-namespaces -o yaml"),
	},
	Never:    "Never give the slice to another node while its pools have entries that may be in use.",
	Requires: []blocks.Resource{blocks.NodeSlicePools, blocks.Nodes},
	Run: func(st *state.State, f *audit.Findings) {
		v := whereabouts.Of(st)
		for _, d := range v.DeadSlices() {
			pools := slices.DeleteFunc(slices.Clone(v.SecondaryPools), func(p *whereabouts.Pool) bool { return p.Node != d.Node || p.Range.Masked() != d.Range.Masked() })
			f.Add(audit.Finding{
				Absence: true, Severity: state.Warning, Remedies: f.Check.Remedies, Pools: whereabouts.FullNames(pools),
				Subject: state.Subject{Kind: state.KindWhereaboutsPool, Name: d.Pool.Key().String(), Node: d.Node, CIDR: d.Range.String()},
				Message: fmt.Sprintf("slice %s of %s belongs to node %q, which no longer exists", d.Range, d.Pool.Key(), d.Node), Evidence: state.Evidences("node", d.Node, "slice", d.Range),
			})
		}
	},
}
