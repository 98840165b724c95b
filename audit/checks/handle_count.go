package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/handles"
	"github.com/calico-audit/calico-audit/blocks"
)

var handleCount = audit.Check{
	ID:         "handle/count",
	Title:      "a handle's count differs from the blocks",
	Severities: []state.Severity{state.Info},
	Why: "A count that is too high keeps the handle alive after its last address is released, and the handle then looks leaked. " +
		"Calico itself miscounts in two cases: it releases several addresses of one handle in one call, or one assignment spans " +
		"blocks.",
	Confirm:  "Compare kubectl get ipamhandles NAME -o yaml with the blocks that it names.",
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
					Message:  fmt.Sprintf("the count of handle %s differs from the blocks: %s", h.ID, wrong),
					Evidence: state.Evidences("differences", wrong, "last written", h.Written, "observed", state.Observed),
					Remedies: []remedies.Remedy{remedies.MendHandles.Unless(handles.ReconcileBar(st, h))},
				})
			}
		})
	},
}
