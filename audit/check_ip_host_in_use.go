package audit

import (
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
)

func init() {
	register(Check{
		ID:       "ip/host-in-use",
		Title:    "an address is in use on a node, and the datastore calls it free",
		Severity: "critical",
		Why: "Calico may hand the address to another pod at any moment: two then share it. It comes about when an allocation is released while the pod's processes " +
			"still run, such as after a forced deletion.",
		Confirm: "On the node: ip netns exec NAMESPACE ip address shows it; calicoctl ipam show --ip=ADDRESS says that it is not assigned.",
		Misread: "kubectl does not show such a pod: its object is gone, and its processes are not.",
		Fix: "Keep others from the address by an IPReservation of it alone. Then end the processes in the namespace; those in uninterruptible sleep (state D) only end " +
			"with what they wait for, such as a lost disk or file server, or with a reboot. Remove the reservation afterwards.",
		Verify: "The node's next host view no longer shows the address.",
		Never:  "Never write the allocation into the block by hand, and never release its block.",
		Needs:  []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations},
		Uses:   []blocks.Resource{blocks.Pods},

		HostViews: true,
		Run: func(st *State, f *Findings) {
			seen := map[Subject]bool{}
			for _, u := range st.kernels.freeUses {
				a, node := u.use.addr, u.use.k.Node
				subject := ipSubject(a, node)
				if seen[subject] {
					continue // a second namespace of the node: ip/duplicate
				}
				seen[subject] = true
				if st.blockMayCover(ipPrefix(a)) {
					f.Withhold("not judged for %s: a block that cannot be read may record it", a)
					continue
				}
				block := "does not exist"
				if b := u.block; b != nil {
					if len(b.Faults) > 0 {
						f.Withhold("not judged for %s: block %s is corrupt", a, b.CIDR)
						continue
					}
					block = fmt.Sprintf("%s of %s calls it free", b.CIDR, ownerText(b.Owner))
				}
				var named string
				for _, w := range st.Users(a) {
					named = "pod " + w.FullName()
					break
				}
				all := []hostUse{}
				for _, other := range st.kernels.freeUses {
					if other.use.addr == a && other.use.k == u.use.k {
						all = append(all, other.use)
					}
				}
				f.Add(Finding{
					Severity: Critical, Subject: subject, Pools: poolsOf(u.pool), Nodes: []string{node}, Absence: true,
					Message:  fmt.Sprintf("%s is in use on %s (%s), and the datastore calls it free", a, node, namespaceText("", u.use.ns)),
					Evidence: append(Evidences("pool", poolName(u.pool), "block", block, "named by", named), hostEvidence(all...)...),
					Fix: Fix{"manual", fmt.Sprintf("reserve %s by an IPReservation, so that nobody else gets it; then end what runs in the namespace on %s, and take the reservation back",
						ipPrefix(a), node)},
				})
			}
		},
	})
}
