package checks

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

var ipDuplicate = audit.Check{
	ID:         "ip/duplicate",
	Title:      "two live owners use one address",
	Severities: []state.Severity{state.Critical},
	Why:        "Traffic for one owner reaches the other, or neither: routes for one address lead to one node only.",
	Confirm:    "kubectl get pods --all-namespaces -o wide shows both pods; calicoctl ipam show --ip=ADDRESS names the recorded owner.",
	Misread: "A finished pod, or one that is being deleted after its network is gone, keeps its last address in its status: these do " +
		"not count. Nor do the two pods of a virtual machine during a live migration.",
	Remedies: []remedies.Remedy{
		remedies.ByHand("restart the pod that the allocation does not name; if a network namespace without a pod has the address, stop its processes",
			"one owner is left", "the pod restarts: find out first which of the two owns the address"),
	},
	Verify:   "Each pod answers at an address of its own.",
	Never:    "Never release the address: one of the two owns it.",
	Requires: []blocks.Resource{blocks.Nodes, blocks.Pods, blocks.Blocks},
	Optional: []blocks.Resource{blocks.Pools},
	Run: func(st *state.State, f *audit.Findings) {
		if g := st.FirstMissing([]blocks.Resource{blocks.Pools}); g != nil && st.Views.ShowUses() {
			f.SkipPartial("not evaluated by host views: %s", g)
		}
		st.EachSharedUse(func(a netip.Addr, all []state.LiveUse) {
			addDuplicate(st, f, a, all)
		})
		// Addresses that views show in use twice, and that no live pod names.
		st.Views.EachUse(func(a netip.Addr, _ []hosts.Use) {
			if len(st.SecondOwners(a)) > 1 && len(st.LiveUses(a, st.NamedBy(a))) == 0 {
				addDuplicate(st, f, a, nil)
			}
		})
	},
}

// addDuplicate adds a finding if several owners use an address: live pods, tunnels, and further
// namespaces that host views show.
func addDuplicate(st *state.State, f *audit.Findings, a netip.Addr, all []state.LiveUse) {
	second := st.SecondOwners(a)
	if len(all)+len(second) < 2 {
		return // true for nearly every address
	}
	r, allocated := st.Allocation(a)
	users := joinOwners(state.Certain(all), r.AttributesIf(allocated))
	if len(users)+len(second) < 2 {
		return
	}
	if st.BlockMayCover(state.IPPrefix(a)) {
		f.SkipPartial("not evaluated for %s: a block that cannot be read may name both as one owner", a)
		return
	}
	var who, nodes []string
	for _, u := range users {
		who = append(who, fmt.Sprintf("%s on %s", u, u.Node))
		nodes = append(nodes, u.Node)
	}
	for _, u := range second {
		who = append(who, hosts.NamespaceText(u.View.Node, u.Namespace))
		nodes = append(nodes, u.View.Node)
	}
	named := "no one"
	if attr := r.AttributesIf(allocated); attr != nil {
		named = strings.TrimSpace(fmt.Sprintf("%s/%s %s on %s", attr.Namespace, attr.Pod, attr.Extras().Type, attr.Node))
	}
	x := audit.Finding{
		Absence: true, Severity: state.Critical, Subject: state.Subject{Kind: state.KindIP, IP: a.String()}, Pools: state.PoolsOf(st.EnabledPool(a)), Nodes: nodes,
		Message:  fmt.Sprintf("%s is used by %s", a, strings.Join(who, " and by ")),
		Evidence: state.Evidences("used by", phrase.ListBy("; ", who), "allocated to", named),
		Fix:      audit.Look("calico-audit explain " + a.String()), Remedies: duplicateRemedies(st, users, r.AttributesIf(allocated)),
	}
	x.Evidence = append(x.Evidence, hostUseEvidence(second...)...)
	f.Add(x)
}

// duplicateRemedies leave an address to the user that its allocation names. Pods that got it from
// another network first need Calico's.
func duplicateRemedies(st *state.State, users []state.LiveUse, attr *blocks.Attributes) (out []remedies.Remedy) {
	var nodes []string
	for _, u := range users {
		switch {
		case u.Pod == nil && attr.Tunnel() && attr.Node == u.Node, activeOwner(attr, u.Pod):
		case u.Pod == nil:
			out = append(out, remedies.RestartAgents([]string{u.Node}))
		case st.OtherIPAMOf(u.Pod) != "":
			if !slices.Contains(nodes, u.Node) {
				nodes = append(nodes, u.Node)
			}
		case attr != nil && attr.Pod != "":
			out = append(out, remedies.RestartRemedies(u.Pod, "it gets an address of its own, and "+phrase.FullName(attr.Namespace, attr.Pod)+" keeps this one")...)
		}
	}
	if slices.Sort(nodes); len(nodes) > 0 {
		out = append(out, useCalico(nodes))
	}
	return out
}

// joinOwners keeps one of several users that are the same owner: two pods that run one virtual
// machine, or the active and the alternate owner of an allocation during a live migration.
func joinOwners(users []state.LiveUse, attr *blocks.Attributes) []state.LiveUse {
	var out []state.LiveUse
	for _, u := range users {
		if !slices.ContainsFunc(out, func(before state.LiveUse) bool { return oneOwner(before.Pod, u.Pod, attr) }) {
			out = append(out, u)
		}
	}
	return out
}

// oneOwner reports whether two pods are the same owner of an address.
func oneOwner(a, b *blocks.Workload, attr *blocks.Attributes) bool {
	if a == nil || b == nil {
		return false
	}
	if a.Extras().VM != "" && a.Extras().VM == b.Extras().VM && a.Namespace == b.Namespace {
		return true
	}
	return activeOwner(attr, a) && alternateOwner(attr, b) || activeOwner(attr, b) && alternateOwner(attr, a)
}

// activeOwner reports whether a pod is the owner that an allocation names.
func activeOwner(attr *blocks.Attributes, w *blocks.Workload) bool {
	return attr != nil && w != nil && attr.Pod == w.Name && attr.Namespace == w.Namespace
}

// alternateOwner reports whether a pod is the alternate owner of an allocation, which takes the
// address over when a live migration ends.
func alternateOwner(attr *blocks.Attributes, w *blocks.Workload) bool {
	return attr != nil && activeOwner(attr.Extras().Alternate, w)
}
