package checks

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var ipUnallocated = audit.Check{
	ID:         "ip/unallocated",
	Title:      "a pod or tunnel uses an address of an enabled pool, and no block records it",
	Severities: []state.Severity{state.Critical},
	Why: "Calico may assign the address to another pod at any moment, and then two share it. This happens if an address is " +
		"released under a live pod, or if its block is deleted by hand.",
	Confirm:  "calicoctl ipam show --ip=ADDRESS says that it is not assigned; kubectl get pod shows a pod that has it.",
	Remedies: []remedies.Remedy{remedies.RecordAddresses},
	Never:    "Never write the allocation into the block by hand.",
	Requires: []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Nodes, blocks.Pods},
	Optional: []blocks.Resource{blocks.Handles},
	Run: func(st *state.State, f *audit.Findings) {
		st.EachUnrecorded(func(x state.UnrecordedIP) {
			a, users, pool := x.Addr, x.Users, x.Pool
			if other := st.OtherIPAM(); other.Unknown != "" {
				f.SkipPartial("not evaluated for %s: %s", a, other.Unknown)
			}
			if x.OtherIPAM != "" {
				return
			}
			if w := st.MayUse(state.IPPrefix(a)); w != nil {
				f.SkipPartial("not evaluated for %s: pod %s names it and was read only in part", a, w.FullName())
				return
			}
			if st.BlockMayCover(netip.PrefixFrom(a, a.BitLen())) {
				f.SkipPartial("not evaluated for %s: a block that cannot be read may record it", a)
				return
			}
			if !st.Cluster.Live && !slices.ContainsFunc(users, func(u state.LiveUse) bool { return u.Pod == nil || st.PastGrace(u.Pod.Created) }) {
				f.SkipPartial("not evaluated for %s: its pod is younger than the grace, and files hold one reading only", a)
				return
			}
			block := "does not exist"
			if b := x.Block; b != nil {
				block = fmt.Sprintf("%s of %s calls it free", b.CIDR, b.Owner)
			}
			u := users[0]
			f.Add(audit.Finding{
				Severity: state.Critical, Subject: state.IPSubject(a, u.Node), Pools: state.PoolsOf(pool), Absence: true,
				Message:  fmt.Sprintf("%s is used by %s on %s, and no block records it", a, u, u.Node),
				Evidence: state.Evidences("used by", u, "by evidence of", u.Source, "pool", pool.Name, "block", block),
				Root:     remedies.Of(st).RootOfUnrecorded(), Remedies: remedies.Of(st).RecordRemedies(a),
			})
		})
	},
}
