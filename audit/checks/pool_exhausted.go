package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var poolExhausted = audit.Check{
	ID:         "pool/exhausted",
	Title:      "the pool has no address left to assign",
	Severities: []state.Severity{state.Critical, state.Error},
	Graded:     "error; critical if a pod waits and no other pool serves it",
	Why:        "The next pod, tunnel or Service that needs an address of this pool gets none.",
	Confirm:    "calicoctl ipam show",
	Misread: "Calico does not assign reserved addresses (IPReservation), although \"calicoctl ipam show\" of older versions counts " +
		"them as free.",
	Remedies: []remedies.Remedy{remedies.AddPool, remedies.ReleaseLeaks},
	Never:    "Never release addresses just because a list calls them unused: check first that their pods are gone.",
	Requires: []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations},
	Optional: remedies.RootReads,
	Run: func(st *state.State, f *audit.Findings) {
		addressFindings(st, f, func(p *state.Pool) (state.Severity, string) {
			message := fmt.Sprintf("pool %s has no address left of %s%s", p.Name, p.Addrs.Capacity, unreadNote(st.UnreadInPool(p)))
			if !p.Addrs.Available.IsZero() {
				return 0, ""
			}
			if !allocationEvaluated(st, f) {
				return state.Error, message
			}
			if waiting := st.PodsWithoutAddress(p); len(waiting) > 0 {
				return state.Critical, fmt.Sprintf("%s, and no other pool can serve the waiting pods (%d)", message, len(waiting))
			}
			return state.Error, message
		})
	},
}

// addressFindings adds a finding for each enabled, automatic pool for which grade returns a
// severity.
func addressFindings(st *state.State, f *audit.Findings, grade func(*state.Pool) (state.Severity, string)) {
	for _, p := range st.Pools {
		if !p.LowOnAddresses() {
			continue
		}
		if other := st.OtherIPAM(); other.Unknown != "" {
			f.SkipPartial("not evaluated for pool %s: %s", p.Name, other.Unknown)
			continue
		}
		sev, message := grade(p)
		if sev == 0 {
			continue
		}
		f.Add(audit.Finding{
			Severity: sev, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p), Message: message, Absence: sev == state.Critical,
			Evidence: state.Evidences(
				"in use", p.Addrs.InUse, "reserved", p.Addrs.Reserved,
				"available", p.Addrs.Available, "capacity", p.Addrs.Capacity),
			Root: remedies.Of(st).RootOfPool(p),
		})
	}
}
