package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/scope"
)

var poolShared = audit.Check{
	ID: "pool/shared", Title: "a pool that a namespace asks for also serves pods of other namespaces", Severities: []state.Severity{state.Info},
	Why:     "The annotation limits the namespace to the pool, but not the pool to the namespace: Calico also takes the pool's addresses for pods that ask for no pool, and they may use it up.",
	Confirm: "kubectl get pods --all-namespaces -o wide shows addresses of the pool outside the namespace.",
	Misread: "There is no finding if the pool is the oldest of those that serve all namespaces: then it is meant for all.",
	Remedies: []remedies.Remedy{remedies.ByHand("set assignmentMode: Manual on the pool; before Calico v3.30, nodeSelector: '!all()'", "only pods that ask for it get its addresses",
		"none for running pods; a pool asked for by name needs no selector", "kubectl get ippools -o yaml")},
	Never:    "Never disable the pool for this: then the namespace gets no address either.",
	Requires: scope.Reads,
	Run: func(st *state.State, f *audit.Findings) {
		for _, p := range st.Pools {
			if namespaces, others := scope.Shared(st, p); len(others) > 0 {
				f.Add(audit.Finding{
					Severity: state.Info, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p), Remedies: f.Check.Remedies,
					Message:  fmt.Sprintf("pool %s is requested by %s, and also serves pods that do not ask for it (%d)", p.Name, namespaces, len(others)),
					Evidence: state.Evidences("pods without a request", others),
				})
			}
		}
	},
}
