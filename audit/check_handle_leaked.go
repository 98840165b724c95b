package audit

import (
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

var handleLeaked = Check{
	ID:       "handle/leaked",
	Title:    "a handle that no block refers to, beyond the grace",
	Severity: "warning",
	Why: "It does no harm by itself; tens of thousands of them slow Calico's tools and the API server down. " +
		"It is left behind when an address is released and the handle's update is lost, and Calico collects none.",
	Confirm: "kubectl get ipamhandles NAME -o yaml names blocks that do not refer to it.",
	Misread: "For a moment while an address is being assigned this is normal: the handle is written before the block.",
	Fix:     "See that it lasts. It may then be deleted, if it is still unchanged: calico-audit repair --leaked-handles looks twice, and deletes it.",
	Never:   "Never delete handles in bulk while pods are starting.",
	Needs:   []blocks.Resource{blocks.Handles, blocks.Blocks},
	Run: func(st *State, f *Findings) {
		for i := range st.Handles {
			h := &st.Handles[i]
			if h.SoftDeleted || len(st.HandleRefs(h.ID)) > 0 || !st.OldEnough(h.Meta) {
				continue
			}
			if st.HandleMayBeUsed(h) {
				f.Withhold("not judged for handle %s: a block that cannot be read may refer to it", h.ID)
				continue
			}
			var named []string
			for _, c := range h.Blocks {
				named = append(named, fmt.Sprintf("%d in %s", c.Count, c.CIDR))
			}
			f.Add(Finding{
				Absence: true, Severity: Warning, Subject: HandleSubject(h.ID), Pools: st.handlePools(h),
				Message:  fmt.Sprintf("no block refers to handle %s", h.ID),
				Evidence: Evidences("it names", orNone(List(named)), "created", FormatTime(h.Created), "last written", FormatTime(h.Written), "observed", observed),
				Fix:      repairFix("--leaked-handles"),
			})
		}
	},
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// HandleMayBeUsed tells whether a block that could not be understood, or that
// contradicts itself, may refer to a handle.
func (st *State) HandleMayBeUsed(h *blocks.Handle) bool {
	if st.own.beyond[strings.ToLower(h.ID)] {
		return true
	}
	for _, c := range h.Blocks {
		if b := st.BlockOf(c.CIDR); b != nil && len(b.Faults) > 0 {
			return true
		}
	}
	for _, g := range st.Unreadable(blocks.Blocks) {
		if !g.Prefix.IsValid() || len(h.Blocks) == 0 {
			return true
		}
		for _, c := range h.Blocks {
			if c.CIDR == g.Prefix {
				return true
			}
		}
	}
	return false
}

func (st *State) handlePools(h *blocks.Handle) []string {
	var out []string
	for _, c := range h.Blocks {
		out = append(out, poolsOf(st.PoolOf(c.CIDR))...)
	}
	return out
}
