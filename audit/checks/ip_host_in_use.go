package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

var ipHostInUse = audit.Check{
	ID:         "ip/host-in-use",
	Title:      "a host view shows an address in use that the datastore calls free",
	Severities: []state.Severity{state.Critical},
	Why: "Calico may assign the address to another pod at any moment, and then two share it. This happens if an allocation is " +
		"released while the pod's processes still run, for example after a forced deletion.",
	Confirm: "On the node, ip netns exec NAMESPACE ip address shows the address; calicoctl ipam show --ip=ADDRESS says that it is not " +
		"assigned.",
	Misread: "kubectl does not show such a pod: its object is gone, but its processes run.",
	Remedies: []remedies.Remedy{
		remedies.ByHand("reserve the address with an IPReservation, stop the namespace's processes (if one is in state D, drain and reboot the node), delete the IPReservation",
			"no process uses the address", "it may be a container that still serves, although its pod object is gone"),
	},
	Verify:   "The node's next host view no longer shows the address.",
	Never:    "Never write the allocation into the block by hand, and never release its block.",
	Requires: []blocks.Resource{blocks.Pools, blocks.Blocks, blocks.Reservations},
	Optional: []blocks.Resource{blocks.Pods, blocks.Nodes, blocks.Handles},

	HostViews: true,
	Run: func(st *state.State, f *audit.Findings) {
		// A pod may bring its own address, or the cluster may use another IPAM.
		missing, other := st.FirstMissing([]blocks.Resource{blocks.Pods}), st.OtherIPAM()
		name, unread := st.UnreadPod()
		switch {
		case !st.Views.ShowUses():
			return
		case missing != nil:
			f.Inconclusive("not evaluated: %s", missing)
			return
		case other.Unknown != "":
			f.Inconclusive("not evaluated: %s", other.Unknown)
			return
		case unread:
			f.Inconclusive("not evaluated: pod %s could not be read, and may bring its own address", name)
			return
		}
		seen := map[state.Subject]bool{}
		for i, u := range st.FreeUses() { // by address
			a, node := u.Use.Addr, u.Use.View.Node
			subject := state.IPSubject(a, node)
			if seen[subject] {
				continue // a second namespace of the node; ip/duplicate reports it
			}
			seen[subject] = true
			if st.BlockMayCover(state.IPPrefix(a)) {
				f.SkipPartial("not evaluated for %s: a block that cannot be read may record it", a)
				continue
			}
			if w := st.MayUse(state.IPPrefix(a)); w != nil {
				f.SkipPartial("not evaluated for %s: pod %s names it and was read only in part", a, w.FullName())
				continue
			}
			if len(st.Unreadable(blocks.Reservations)) > 0 {
				f.SkipPartial("not evaluated for %s: an IPReservation that cannot be read may reserve it", a)
				continue
			}
			block := "does not exist"
			if b := u.Block; b != nil {
				if len(b.Faults) > 0 {
					f.SkipPartial("not evaluated for %s: block %s is corrupt", a, b.CIDR)
					continue
				}
				block = fmt.Sprintf("%s of %s calls it free", b.CIDR, b.Owner)
			}
			var named string
			for _, w := range st.Users(a) {
				named = "pod " + w.FullName()
				break
			}
			all := []hosts.Use{}
			for _, other := range st.FreeUses()[i:] {
				if other.Use.Addr != a {
					break
				}
				if other.Use.View == u.Use.View {
					all = append(all, other.Use)
				}
			}
			f.Add(audit.Finding{
				Severity: state.Critical, Subject: subject, Pools: state.PoolsOf(u.Pool), Nodes: []string{node}, Absence: true, Seen: true,
				Message:  fmt.Sprintf("%s is in use on %s (%s), and the datastore calls it free", a, node, hosts.NamespaceText("", u.Use.Namespace)),
				Evidence: append(state.Evidences("pool", state.PoolName(u.Pool), "block", block, "named by", named), hostUseEvidence(all...)...),
				Remedies: f.Check.Remedies,
			})
		}
	},
}
