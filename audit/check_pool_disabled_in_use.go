package audit

import (
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

var poolDisabledInUse = Check{
	ID:       "pool/disabled-in-use",
	Title:    "a disabled pool still has allocations",
	Severity: "info",
	Why:      "A disabled pool hands out nothing, and what it handed out stays in use until the pods restart. That is how a migration looks half-way.",
	Confirm:  "calicoctl ipam show --show-blocks",
	Fix:      "To finish the migration, restart the pods that still use it, then delete the pool.",
	Never:    "Never delete the pool while it has allocations: its blocks then lie in no pool, and lose NAT and encapsulation.",
	Needs:    []blocks.Resource{blocks.Pools, blocks.Blocks},
	Run: func(st *State, f *Findings) {
		for _, p := range st.Pools {
			if !p.Disabled || p.Addrs.InUse.IsZero() {
				continue
			}
			f.Add(Finding{
				Severity: Info, Subject: PoolSubject(p), Pools: poolsOf(p),
				Message:  fmt.Sprintf("disabled pool %s still has %s in use in %s", p.Name, pluralCount(p.Addrs.InUse, "address"), Plural(len(p.Blocks), "block")),
				Evidence: Evidences("in use", p.Addrs.InUse.String(), "blocks", List(cidrs(p.Blocks))),
				Fix:      Fix{"manual", "restart the pods that use addresses of " + p.CIDR.String() + " to move them to another pool"},
			})
		}
	},
}
