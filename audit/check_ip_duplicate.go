package audit

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

var ipDuplicate = Check{
	ID:       "ip/duplicate",
	Title:    "two live owners use one address",
	Severity: "critical",
	Why:      "Traffic for one of them reaches the other, or neither: routes for one address can lead to one node only.",
	Confirm:  "kubectl get pods --all-namespaces -o wide, and look for the address; calicoctl ipam show --ip=ADDRESS names the one that the allocation is for.",
	Misread: "A finished pod keeps its last address in its status, and so does one being deleted after its network is gone: these do not count. " +
		"Nor do the two pods of a virtual machine that is being migrated.",
	Fix: "Restart the pod that the allocation does not name. Find out how it came about: an address released under a live pod, or overlapping blocks. " +
		"Where a host view shows a namespace that no pod owns any more, end what runs in it on that node.",
	Verify: "Both pods answer at addresses of their own.",
	Never:  "Never release the address: one of the two owns it.",
	Needs:  []blocks.Resource{blocks.Nodes, blocks.Pods},
	Uses:   []blocks.Resource{blocks.Blocks, blocks.Pools},
	Run: func(st *State, f *Findings) {
		if g := st.FirstMissing([]blocks.Resource{blocks.Blocks, blocks.Pools}); g != nil && st.ViewsShowUses() {
			f.Withhold("not judged by host views: %s", g)
		}
		st.eachLiveUse(func(a netip.Addr, all []liveUse) {
			st.addDuplicate(f, a, certain(all))
		})
		// Addresses that nodes show in use twice, and that no live pod names.
		st.EachHostUse(func(a netip.Addr, _ []HostUse) {
			if len(st.SecondOwners(a)) > 1 && len(st.liveUses(a, st.namedBy(a))) == 0 {
				st.addDuplicate(f, a, nil)
			}
		})
	},
}

// addDuplicate records that several owners use an address, if there are: live pods
// and tunnels, and the namespaces that host views show besides.
func (st *State) addDuplicate(f *Findings, a netip.Addr, users []liveUse) {
	second := st.SecondOwners(a)
	r, allocated := st.Allocation(a)
	users = st.joinOwners(users, r.attributesIf(allocated))
	if len(users)+len(second) < 2 {
		return
	}
	var who, nodes []string
	for _, u := range users {
		who = append(who, fmt.Sprintf("%s on %s", u, u.node))
		nodes = append(nodes, u.node)
	}
	for _, u := range second {
		who = append(who, NamespaceText(u.View.Node, u.Namespace))
		nodes = append(nodes, u.View.Node)
	}
	named := "nobody"
	if attr := r.attributesIf(allocated); attr != nil {
		named = strings.TrimSpace(fmt.Sprintf("%s/%s %s on %s", attr.Namespace, attr.Pod, attr.Type, attr.Node))
	}
	x := Finding{
		Absence: true, Severity: Critical, Subject: Subject{Kind: KindIP, IP: a.String()}, Pools: poolsOf(st.enabledPool(a)), Nodes: nodes,
		Message:  fmt.Sprintf("%s is used by %s", a, strings.Join(who, " and by ")),
		Evidence: Evidences("used by", listBy("; ", who), "allocated to", named),
		Fix:      Fix{"look", "calico-audit explain " + a.String()},
	}
	x.Evidence = append(x.Evidence, HostUseEvidence(second...)...)
	f.Add(x)
}

// joinOwners leaves one of the users that are one owner: the two pods of a live
// migration, which the allocation's active and alternate owner join, or which run one
// virtual machine.
func (st *State) joinOwners(users []liveUse, attr *blocks.Attributes) []liveUse {
	var out []liveUse
	for _, u := range users {
		if !slices.ContainsFunc(out, func(before liveUse) bool { return oneOwner(before.pod, u.pod, attr) }) {
			out = append(out, u)
		}
	}
	return out
}

// oneOwner reports whether two pods are one owner of an address.
func oneOwner(a, b *blocks.Workload, attr *blocks.Attributes) bool {
	if a == nil || b == nil {
		return false
	}
	if a.VM != "" && a.VM == b.VM && a.Namespace == b.Namespace {
		return true
	}
	return activeOwner(attr, a) && alternateOwner(attr, b) || activeOwner(attr, b) && alternateOwner(attr, a)
}

// activeOwner reports whether an allocation names a pod as its owner.
func activeOwner(attr *blocks.Attributes, w *blocks.Workload) bool {
	return attr != nil && attr.Pod == w.Name && attr.Namespace == w.Namespace
}

// alternateOwner reports whether an allocation names a pod as the one that takes the
// address over when a live migration ends.
func alternateOwner(attr *blocks.Attributes, w *blocks.Workload) bool {
	return attr != nil && activeOwner(attr.Alternate, w)
}
