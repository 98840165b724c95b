package audit

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
)

var handleCount = Check{
	ID:       "handle/count",
	Title:    "a handle's count differs from what the blocks record",
	Severity: "info",
	Why: "A count that is too high keeps the handle alive after its last address has gone, and it then shows as leaked. " +
		"Calico's own code miscounts in two cases: when several addresses of one handle are released in one call, and when one assignment spans blocks.",
	Confirm: "kubectl get ipamhandles NAME -o yaml, beside the blocks that it names.",
	Fix:     "Nothing is urgent. calico-audit repair --leaked-handles writes the counts that the blocks record.",
	Never:   "Never edit the count while the pod is starting or ending.",
	Needs:   []blocks.Resource{blocks.Handles, blocks.Blocks},
	Run: func(st *State, f *Findings) {
		for i := range st.Handles {
			h := &st.Handles[i]
			refs := st.HandleRefs(h.ID)
			if h.SoftDeleted || len(refs) == 0 || !st.OldEnough(h.Meta) || !st.refsSettled(refs) || st.HandleMayBeUsed(h) {
				continue
			}
			if wrong := miscounts(h, refs); len(wrong) > 0 {
				f.Add(Finding{
					Absence: true, Severity: Info, Subject: HandleSubject(h.ID), Pools: st.handlePools(h), Nodes: []string{refs[0].Attributes().Node},
					Message:  fmt.Sprintf("handle %s counts otherwise than the blocks: %s", h.ID, List(wrong)),
					Evidence: Evidences("differences", List(wrong), "last written", FormatTime(h.Written), "observed", observed),
					Fix:      repairFix("--leaked-handles"),
				})
			}
		}
	},
}

// miscounts lists the blocks for which a handle's count is not the number of
// addresses recorded under it.
func miscounts(h *blocks.Handle, refs []AllocationRef) (out []string) {
	have := map[netip.Prefix]int{}
	for _, r := range refs {
		have[r.Block.CIDR]++
	}
	cidrs := make([]netip.Prefix, 0, len(have))
	said := map[netip.Prefix]int{}
	for c := range have {
		cidrs = append(cidrs, c)
	}
	for _, c := range h.Blocks {
		said[c.CIDR] += c.Count
		if have[c.CIDR] == 0 {
			cidrs = append(cidrs, c.CIDR)
		}
	}
	slices.SortFunc(cidrs, blocks.ComparePrefixes)
	for _, c := range slices.Compact(cidrs) {
		if said[c] != have[c] {
			out = append(out, fmt.Sprintf("%s: it says %d, recorded are %d", c, said[c], have[c]))
		}
	}
	return out
}

// Miscounts says for which blocks a handle's count is not the number of addresses
// recorded under it, and returns the counts as they should be, in CIDR order.
func (st *State) Miscounts(h *blocks.Handle) (wrong []string, right []blocks.HandleCount) {
	refs := st.HandleRefs(h.ID)
	have := map[netip.Prefix]int{}
	for _, r := range refs {
		have[r.Block.CIDR]++
	}
	for c, n := range have {
		right = append(right, blocks.HandleCount{CIDR: c, Count: n})
	}
	slices.SortFunc(right, func(a, b blocks.HandleCount) int { return blocks.ComparePrefixes(a.CIDR, b.CIDR) })
	return miscounts(h, refs), right
}
