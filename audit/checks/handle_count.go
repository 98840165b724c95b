package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/handles"
	"github.com/calico-audit/calico-audit/blocks"
)

var handleCount = audit.Check{
	ID:         "handle/count",
	Title:      "a handle's count differs from what the blocks record",
	Severities: []state.Severity{state.Info},
	Why: "A count that is too high keeps the handle alive after its last address has gone, and it then shows as leaked. " +
		"Calico's own code miscounts in two cases: when several addresses of one handle are released in one call, and when one assignment spans blocks.",
	Confirm:  "kubectl get ipamhandles NAME -o yaml, beside the blocks that it names.",
	Remedies: []remedies.Remedy{remedies.MendHandles},
	Never:    "Never edit the count while the pod is starting or ending.",
	Requires: []blocks.Resource{blocks.Handles, blocks.Blocks},
	Optional: []blocks.Resource{blocks.Pods},
	Run: func(st *state.State, f *audit.Findings) {
		st.EachHandle(func(h *blocks.Handle, refs []state.AllocationRef) {
			if h.SoftDeleted || len(refs) == 0 || !st.OldEnough(h.Meta) || !refsPastGrace(st, refs) || st.HandleMayBeUsed(h) {
				return
			}
			if wrong := state.Miscounts(h, refs); len(wrong) > 0 {
				f.Add(audit.Finding{
					Absence: true, Severity: state.Info, Subject: state.HandleSubject(h.ID), Pools: handlePools(st, h), Nodes: []string{refs[0].Attributes().Node},
					Message:  fmt.Sprintf("handle %s counts otherwise than the blocks: %s", h.ID, phrase.List(wrong)),
					Evidence: state.Evidences("differences", phrase.List(wrong), "last written", phrase.Time(h.Written), "observed", state.Observed),
					Remedies: []remedies.Remedy{remedies.MendHandles.Unless(handles.ReconcileBar(st, h))},
				})
			}
		})
	},
}
