package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var poolLowAddresses = audit.Check{
	ID:         "pool/low-addresses",
	Title:      "under 10 % of a pool's addresses are left to hand out",
	Severities: []state.Severity{state.Warning},
	Why:        "When the rest is used up, new pods get no address.",
	Confirm:    "calicoctl ipam show",
	Fix:        "Add a pool in time, or find leaked addresses that nothing uses.",
	Never:      "Never release addresses because a list calls them unused without checking that their pods are gone.",
	Requires:   []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations},
	Run: func(st *state.State, f *audit.Findings) {
		addressFindings(st, f, state.Warning,
			func(left blocks.Count, p *state.Pool) bool {
				return !left.IsZero() && left.Times(10).Cmp(p.Addrs.Capacity) < 0
			},
			func(p *state.Pool) string {
				return fmt.Sprintf("pool %s has %s available of %s", p.Name, state.PluralCount(p.Addrs.Available, "address"), p.Addrs.Capacity)
			})
	},
}
