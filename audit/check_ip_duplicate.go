package audit

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

func init() {
	register(Check{
		ID:       "ip/duplicate",
		Title:    "two live owners use one address",
		Severity: "critical",
		Why:      "Traffic for one of them reaches the other, or neither: routes for one address can lead to one node only.",
		Confirm:  "kubectl get pods --all-namespaces -o wide, and look for the address; calicoctl ipam show --ip=ADDRESS names the one that the allocation is for.",
		Misread:  "A finished pod keeps its last address in its status, and so does one being deleted after its network is gone: these do not count.",
		Fix:      "Restart the pod that the allocation does not name. Find out how it came about: an address released under a live pod, or overlapping blocks.",
		Verify:   "Both pods answer at addresses of their own.",
		Never:    "Never release the address: one of the two owns it.",
		Needs:    []blocks.Resource{blocks.Nodes, blocks.Pods},
		Run: func(st *State, f *Findings) {
			st.eachLiveUse(func(a netip.Addr, all []liveUse) {
				var users []liveUse
				for _, u := range all {
					if u.certain {
						users = append(users, u)
					}
				}
				if len(users) < 2 {
					return
				}
				var who, nodes []string
				for _, u := range users {
					who = append(who, fmt.Sprintf("%s on %s", u, u.node))
					nodes = append(nodes, u.node)
				}
				named := "nobody"
				if r, ok := st.Allocation(a); ok && r.Attributes() != nil {
					attr := r.Attributes()
					named = strings.TrimSpace(fmt.Sprintf("%s/%s %s on %s", attr.Namespace, attr.Pod, attr.Type, attr.Node))
				}
				f.Add(Finding{
					Absence: true, Severity: Critical, Subject: Subject{Kind: KindIP, IP: a.String()}, Pools: poolsOf(st.enabledPool(a)), Nodes: nodes,
					Message:  fmt.Sprintf("%s is used by %s", a, strings.Join(who, " and by ")),
					Evidence: Evidences("used by", listBy("; ", who), "allocated to", named),
					Fix:      Fix{"look", "calico-audit explain " + a.String()},
				})
			})
		},
	})
}
