package audit

import (
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

var poolExhausted = Check{
	ID:       "pool/exhausted",
	Title:    "a pool has no address left to hand out",
	Severity: "error",
	Why:      "The next pod, tunnel or service that needs an address of this pool does not get one.",
	Confirm:  "calicoctl ipam show",
	Misread:  "Reserved addresses (IPReservation) are not handed out, though \"calicoctl ipam show\" of older versions counts them as free.",
	Fix:      "Add a pool, or find leaked addresses that nothing uses.",
	Never:    "Never release addresses because a list calls them unused without checking that their pods are gone.",
	Needs:    []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations},
	Run: func(st *State, f *Findings) {
		st.addressFindings(f, Error, func(left blocks.Count, _ *Pool) bool { return left.IsZero() },
			func(p *Pool) string {
				return fmt.Sprintf("pool %s has no address left of %s", p.Name, p.Addrs.Capacity)
			})
	},
}

// addressFindings adds a finding for each enabled pool that assigns
// automatically and whose available addresses fulfil a condition.
func (st *State) addressFindings(f *Findings, sev Severity, when func(blocks.Count, *Pool) bool, message func(*Pool) string) {
	for _, p := range st.Pools {
		if p.Disabled || !p.Automatic || !when(p.Addrs.Available, p) {
			continue
		}
		f.Add(Finding{
			Severity: sev, Subject: PoolSubject(p), Pools: poolsOf(p), Message: message(p),
			Evidence: Evidences(
				"in use", p.Addrs.InUse.String(), "reserved", p.Addrs.Reserved.String(),
				"available", p.Addrs.Available.String(), "capacity", p.Addrs.Capacity.String()),
			Fix: Fix{"look", "calico-audit report -o wide --pool " + Arg(p.Name)},
		})
	}
}
