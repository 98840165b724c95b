package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var poolDisabledInUse = audit.Check{
	ID:         "pool/disabled-in-use",
	Title:      "a disabled pool still has allocations",
	Severities: []state.Severity{state.Info},
	Why: "A disabled pool assigns no addresses, but its pods keep theirs until they restart. This is normal half-way through a " +
		"migration to another pool.",
	Confirm: "calicoctl ipam show --show-blocks",
	Remedies: []remedies.Remedy{
		remedies.Restart("restart the pods that still use the pool, then delete it", "the migration is finished"),
	},
	Never:    "Never delete the pool while it has allocations: its blocks would lie in no pool, and lose NAT and encapsulation.",
	Requires: []blocks.Resource{blocks.Pools, blocks.Blocks},
	Run: func(st *state.State, f *audit.Findings) {
		for _, p := range st.Pools {
			if !p.Disabled || p.Addrs.InUse.IsZero() {
				continue
			}
			f.Add(audit.Finding{
				Severity: state.Info, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p),
				Message:  fmt.Sprintf("disabled pool %s still has allocations (addresses: %s, blocks: %d)", p.Name, p.Addrs.InUse, len(p.Blocks)),
				Evidence: state.Evidences("in use", p.Addrs.InUse, "blocks", state.CIDRs(p.Blocks)),
				Remedies: f.Check.Remedies,
			})
		}
	},
}
