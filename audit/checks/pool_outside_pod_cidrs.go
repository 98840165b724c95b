package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/scope"
	"github.com/calico-audit/calico-audit/blocks"
)

var poolOutsidePodCIDRs = audit.Check{
	ID: "pool/outside-pod-cidrs", Title: "all used pools of a family are outside their nodes' podCIDRs", Severities: []state.Severity{state.Info},
	Why: "Calico ignores podCIDRs, but kube-proxy usually has the network around them as its clusterCIDR. It then treats pods as clients " +
		"outside the cluster: they reach Services from their node's address, and network policies do not match them.",
	Confirm: "kubectl get configmaps --namespace kube-system kube-proxy -o yaml shows clusterCIDR; if it is empty, no change is needed.",
	Misread: "Addresses outside their node's podCIDR are normal, and so is an additional pool; kube-proxy may also run with another " +
		"detectLocalMode, or not at all.",
	Remedies: []remedies.Remedy{remedies.ByHand("let kube-proxy's clusterCIDR contain the pool (with k3s and RKE2 --cluster-cidr, with kubeadm podSubnet), or move the pods to a pool inside", "Services see the pods' own addresses",
		"kube-proxy restarts; a moved pod gets another address", "kubectl get configmaps --namespace kube-system kube-proxy -o yaml"),
		remedies.Restart("add a pool with the CIDR of calico-node's variable, then "+remedies.DisablePool+" and restart its pods, one controller at a time", "pods get addresses of the network that calico-node was set up for")},
	Never:    "Never change the CIDR of a pool in use.",
	Requires: scope.Reads,
	Optional: []blocks.Resource{blocks.FelixConfigs},
	Run: func(st *state.State, f *audit.Findings) {
		if other := st.OtherIPAM(); other.Cluster || other.Unknown != "" || st.Felix.BPFEnabled {
			return
		}
		for _, p := range st.Pools {
			if outside := scope.Outside(st, p); len(outside) > 0 && p.Automatic && scope.AllOutside(st, p) {
				missing, fixes := scope.NotCreated(st, p), f.Check.Remedies[:1]
				if missing != "" {
					fixes = []remedies.Remedy{f.Check.Remedies[1], f.Check.Remedies[0]}
				}
				f.Add(audit.Finding{
					Severity: state.Info, Subject: state.PoolSubject(p), Pools: state.PoolsOf(p), Remedies: fixes,
					Message: fmt.Sprintf("pool %s (%s) is outside its nodes' podCIDRs (%s); unless kube-proxy's clusterCIDR contains it, network policies do not match traffic over Services%s", p.Name, p.CIDR, outside, missing),
				})
			}
		}
	},
}
