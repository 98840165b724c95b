package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/beside"
	"github.com/calico-audit/calico-audit/audit/state/duplicate"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/blocks"
)

var ipDuplicate = audit.Check{
	ID:         "ip/duplicate",
	Title:      "two live owners use the same address",
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
		for _, d := range duplicate.Of(st) {
			addDuplicate(st, f, &d)
		}
	},
}

// addDuplicate adds the finding of an address with several owners: live pods, tunnels, and further
// namespaces that host views show.
func addDuplicate(st *state.State, f *audit.Findings, d *duplicate.Address) {
	a := d.Addr
	if st.BlockMayCover(state.IPPrefix(a)) {
		f.SkipPartial("not evaluated for %s: a block that cannot be read may name both as one owner", a)
		return
	}
	r, allocated := st.Allocation(a)
	var who, nodes blocks.Names
	for _, u := range d.Users {
		who = append(who, fmt.Sprintf("%s on %s", u, u.Node))
		nodes = append(nodes, u.Node)
	}
	for _, u := range d.Second {
		who = append(who, hosts.NamespaceText(u.View.Node, u.Namespace))
		nodes = append(nodes, u.View.Node)
	}
	named := "no one"
	if attr := r.AttributesIf(allocated); attr != nil {
		named = strings.TrimSpace(fmt.Sprintf("%s/%s %s on %s", attr.Namespace, attr.Pod, attr.Extras().Type, attr.Node))
	}
	x := audit.Finding{
		Absence: true, Severity: state.Critical, Subject: state.Subject{Kind: state.KindIP, IP: a.String()}, Pools: state.PoolsOf(st.EnabledPool(a)), Nodes: nodes,
		Message:  fmt.Sprintf("%s is used by %s", a, who),
		Evidence: state.Evidences("used by", who, "allocated to", named),
		Remedies: duplicateRemedies(st, d),
	}
	if d.Owner != nil {
		x.Evidence = append(x.Evidence, state.Evidences("keeps the address", fmt.Sprintf("%s: %s", d.Owner, d.Why))...)
	}
	x.Evidence = append(x.Evidence, hostUseEvidence(d.Second...)...)
	f.Add(x)
}

// duplicateRemedies leave the address to one user. Pods that got it from another network first need
// to get Calico's network.
func duplicateRemedies(st *state.State, d *duplicate.Address) (out []remedies.Remedy) {
	var nodes blocks.Names
	var last *blocks.Workload // the other IPAM has recorded the address for the pod that started last
	late, _ := beside.Overlapping(st)
	switch {
	case !st.OtherIPAM().Cluster:
	case slices.ContainsFunc(d.Users, func(u state.LiveUse) bool { return slices.Contains(late, u.Node) }):
		return []remedies.Remedy{remedies.RenewPodCIDR(late)}
	case slices.ContainsFunc(d.Users, func(u state.LiveUse) bool { return u.Pod == nil }):
		return []remedies.Remedy{remedies.UsePodCIDR, remedies.RemoveOtherCNI}
	case len(d.Users) > 1:
		last = slices.MaxFunc(d.Users, func(a, b state.LiveUse) int { return cmp.Compare(a.Pod.Created, b.Pod.Created) }).Pod
	}
	for i := range d.Users {
		switch u := &d.Users[i]; {
		case last != nil && u.Pod != last:
			out = append(out, remedies.RestartRemedies(u.Pod, "the other IPAM assigns it an address of its own, and pod "+last.FullName()+" keeps this one")...)
		case last != nil:
		case u == d.Owner:
		case u.Pod == nil:
			out = append(out, remedies.RestartAgents([]string{u.Node}))
		case st.OtherIPAMOf(u.Pod) != "":
			if !slices.Contains(nodes, u.Node) {
				nodes = append(nodes, u.Node)
			}
		case d.Owner != nil:
			out = append(out, remedies.RestartRemedies(u.Pod, fmt.Sprintf("it gets an address of its own, and %s keeps this one", strings.TrimPrefix(d.Owner.String(), "pod ")))...)
		}
	}
	if slices.Sort(nodes); len(nodes) > 0 {
		out = append(out, remedies.UseCalico(nodes.String()))
	}
	return out
}
