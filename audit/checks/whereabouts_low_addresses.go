package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/whereabouts"
	"github.com/calico-audit/calico-audit/blocks"
)

var whereaboutsLowAddresses = audit.Check{
	ID: "whereabouts/low-addresses", Title: "under 10 % of a secondary network's range is left", Severities: []state.Severity{state.Warning},
	Why:      "When the remaining addresses are used up, pods on the network do not start.",
	Confirm:  whereaboutsExhausted.Confirm,
	Misread:  whereaboutsExhausted.Misread,
	Remedies: moreAddresses,
	Never:    whereaboutsExhausted.Never,
	Requires: []blocks.Resource{blocks.WhereaboutsPools}, Optional: []blocks.Resource{blocks.NetworkAttachments, blocks.NodeSlicePools, blocks.Nodes, blocks.Pods},
	Run: func(st *state.State, f *audit.Findings) {
		eachCapacity(st, func(p *whereabouts.Pool, usable, used uint64) {
			if left := usable - used; used < usable && left*10 < usable {
				f.Add(capacityFinding(st, f, p, usable, used, fmt.Sprintf("pool %s has %d of %d addresses left to assign: %d are in use", p.FullName(), left, usable, used)))
			}
		})
	},
}
