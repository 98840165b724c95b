package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var poolLowAddresses = audit.Check{
	ID:         "pool/low-addresses",
	Title:      "under 10 % of the pool's addresses are left to assign",
	Severities: []state.Severity{state.Warning},
	Why:        "When the remaining addresses are used up, new pods get none.",
	Confirm:    "calicoctl ipam show",
	Remedies:   []remedies.Remedy{remedies.AddPool, remedies.ReleaseLeaks},
	Never:      "Never release addresses just because a list calls them unused: check first that their pods are gone.",
	Requires:   []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations},
	Optional:   remedies.RootReads,
	Run: func(st *state.State, f *audit.Findings) {
		addressFindings(st, f, func(p *state.Pool) (state.Severity, string) {
			if p.Addrs.Available.IsZero() {
				return 0, ""
			}
			return state.Warning, fmt.Sprintf("pool %s is low on addresses (available: %s of %s)%s", p.Name, p.Addrs.Available, p.Addrs.Capacity, unreadNote(st.UnreadInPool(p)))
		})
	},
}
