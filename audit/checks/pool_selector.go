package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var poolSelector = audit.Check{
	ID:         "pool/selector",
	Title:      "an enabled pool has a selector that cannot be parsed",
	Severities: []state.Severity{state.Error, state.Info},
	Graded:     "error; info for a pool that is used by request only",
	Why: "While one enabled pool has such a selector, Calico rejects every automatic assignment of that address family, from any " +
		"pool and on every node. kubectl accepts such a selector; calicoctl does not.",
	Confirm: "kubectl get ippools -o custom-columns=NAME:.metadata.name,NODES:.spec.nodeSelector,NAMESPACES:.spec.namespaceSelector",
	Remedies: []remedies.Remedy{
		remedies.ByHand("correct the pool's selector (with Tigera's operator in the Installation, calicoNetwork.ipPools), or disable the pool until it is corrected", "the allocator can choose among the pools again", remedies.EverywhereRisk),
	},
	Never:    "Never delete the pool because of its selector: its addresses are in use.",
	Requires: []blocks.Resource{blocks.Pools},
	Run: func(st *state.State, f *audit.Findings) {
		for _, p := range st.Pools {
			err := p.SelectorError()
			if err == nil || p.Disabled {
				continue
			}
			sev, effect := state.Error, "no pod gets an address of its family automatically"
			if !p.Automatic {
				sev, effect = state.Info, "the pool is used by request only, and requests ignore selectors"
			}
			f.Add(audit.Finding{
				Severity: sev, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p),
				Message:  fmt.Sprintf("pool %s has a selector that cannot be parsed: %v; %s", p.Name, err, effect),
				Evidence: state.Evidences("nodeSelector", p.NodeSelector, "namespaceSelector", p.NamespaceSelector, "effect", effect),
				Remedies: f.Check.Remedies, Root: remedies.Of(st).RootOfSelector(p),
			})
		}
	},
}
