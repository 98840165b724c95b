package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var poolExhausted = audit.Check{
	ID:         "pool/exhausted",
	Title:      "a pool has no address left to hand out",
	Severities: []state.Severity{state.Error},
	Why:        "The next pod, tunnel or service that needs an address of this pool does not get one.",
	Confirm:    "calicoctl ipam show",
	Misread:    "Reserved addresses (IPReservation) are not handed out, though \"calicoctl ipam show\" of older versions counts them as free.",
	Fix:        "Add a pool, or find leaked addresses that nothing uses.",
	Never:      "Never release addresses because a list calls them unused without checking that their pods are gone.",
	Requires:   []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations},
	Run: func(st *state.State, f *audit.Findings) {
		addressFindings(st, f, state.Error, func(left blocks.Count, _ *state.Pool) bool { return left.IsZero() },
			func(p *state.Pool) string {
				return fmt.Sprintf("pool %s has no address left of %s", p.Name, p.Addrs.Capacity)
			})
	},
}

// addressFindings adds a finding for each enabled pool that assigns
// automatically and whose available addresses fulfil a condition.
func addressFindings(st *state.State, f *audit.Findings, sev state.Severity, when func(blocks.Count, *state.Pool) bool, message func(*state.Pool) string) {
	for _, p := range st.Pools {
		if p.Disabled || !p.Automatic || !when(p.Addrs.Available, p) {
			continue
		}
		f.Add(audit.Finding{
			Severity: sev, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p), Message: message(p),
			Evidence: state.Evidences(
				"in use", p.Addrs.InUse.String(), "reserved", p.Addrs.Reserved.String(),
				"available", p.Addrs.Available.String(), "capacity", p.Addrs.Capacity.String()),
			Fix: audit.Look("calico-audit report -o wide --pool " + state.Arg(p.Name)),
		})
	}
}
