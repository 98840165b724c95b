package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/handles"
	"github.com/calico-audit/calico-audit/blocks"
)

var handleLeaked = audit.Check{
	ID:         "handle/leaked",
	Title:      "no block refers to a handle, beyond the grace period",
	Severities: []state.Severity{state.Warning},
	Why: "One leaked handle is harmless; tens of thousands slow down Calico's tools and the API server. A handle leaks if its " +
		"address is released and the handle's update is lost. Calico does not collect leaked handles.",
	Confirm:  "kubectl get ipamhandles NAME -o yaml names blocks that do not refer to it.",
	Misread:  "This is normal for a moment while an address is being assigned, because Calico writes the handle before the block.",
	Remedies: []remedies.Remedy{remedies.MendHandles},
	Never:    "Never delete handles in bulk while pods are starting.",
	Requires: []blocks.Resource{blocks.Handles, blocks.Blocks},
	Optional: []blocks.Resource{blocks.Pods},
	Run: func(st *state.State, f *audit.Findings) {
		st.EachHandle(func(h *blocks.Handle, refs []state.AllocationRef) {
			if h.SoftDeleted || len(refs) > 0 || !st.OldEnough(h.Meta) {
				return
			}
			if st.HandleMayBeUsed(h) {
				f.SkipPartial("not evaluated for handle %s: a block that cannot be read may refer to it", h.ID)
				return
			}
			var named blocks.Names
			for _, c := range h.Blocks {
				named = append(named, fmt.Sprintf("%d in %s", c.Count, c.CIDR))
			}
			f.Add(audit.Finding{
				Absence: true, Severity: state.Warning, Subject: state.HandleSubject(h.ID), Pools: handlePools(st, h),
				Message:  fmt.Sprintf("no block refers to handle %s", h.ID),
				Evidence: state.Evidences("it names", named.String(), "created", h.Created, "last written", h.Written, "observed", state.Observed),
				Remedies: []remedies.Remedy{remedies.MendHandles.Unless(handles.ReconcileBar(st, h))},
			})
		})
	},
}

func handlePools(st *state.State, h *blocks.Handle) []string {
	var out []string
	for _, c := range h.Blocks {
		out = append(out, state.PoolsOf(st.PoolOf(c.CIDR))...)
	}
	return out
}
