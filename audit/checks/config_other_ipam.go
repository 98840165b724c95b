package checks

import (
	"fmt"
	"maps"
	"slices"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/beside"
	"github.com/calico-audit/calico-audit/audit/state/waiting"
	"github.com/calico-audit/calico-audit/blocks"
)

var configOtherIPAM = audit.Check{
	ID:         "config/other-ipam",
	Title:      "pods do not get their addresses from Calico's IPAM",
	Severities: []state.Severity{state.Info, state.Warning},
	Graded:     "info; warning if flannel has not registered a node, or with an address that is not its own, if pods wait on a node without a podCIDR, if podCIDRs overlap or contain another node's tunnel, if another network serves pods of the same nodes, or if no block contains a pod's address during a migration from flannel",
	Why:        "The pods' addresses come from host-local (Canal, flannel), from a cloud's CNI, or from the pods' own annotation ipAddrsNoIpam, so Calico's IPAM does not record them. ip/unallocated, node/no-block and the pool checks ignore these pods, and no plan records their addresses.",
	Confirm:    "Compare kubectl get pods -A -o wide with kubectl get nodes -o custom-columns=NODE:.metadata.name,PODCIDRS:.spec.podCIDRs; on a node, ipam.type in /etc/cni/net.d names the IPAM plugin: Calico's is calico-ipam.",
	Misread:    "Calico's CNI plugin annotates pods with any IPAM plugin: the annotation cni.projectcalico.org/podIP does not mean that Calico's IPAM assigned the address.",
	Remedies:   []remedies.Remedy{remedies.RestartFlannel, remedies.LeaveFlannel, remedies.AssignPodCIDR, remedies.CleanUpIPAM, remedies.StopUpgrade, remedies.RenewPodCIDR(nil), remedies.UsePodCIDR, remedies.RemoveOtherCNI, remedies.OneNetwork(nil), remedies.InstallCanal},
	Never:      "Never record these addresses in Calico's blocks: Calico's nodes would claim the blocks and route them.",
	Requires:   state.OtherIPAMReads,
	Optional:   []blocks.Resource{blocks.Handles, blocks.Affinities, blocks.Namespaces, blocks.SandboxEvents},
	Run: func(st *state.State, f *audit.Findings) {
		other := st.OtherIPAM()
		agents := beside.Agents(st)
		x := audit.Finding{Severity: state.Info, Subject: state.ClusterSubject(st), Fix: audit.Look("kubectl get nodes -o custom-columns=NODE:.metadata.name,PODCIDRS:.spec.podCIDRs")}
		switch {
		case other.Cluster:
			x.Message = other.Reason
			left := beside.Objects(st)
			x.Evidence = state.Evidences("its pods", slices.Sorted(maps.Values(agents)), "waiting pods", waiting.OfOthers(st), "objects of Calico's IPAM", left)
			warn := func(nodes []string, by remedies.Remedy, format string, args ...any) {
				x.Severity, x.Nodes, x.Absence, x.Remedies = state.Warning, nodes, true, []remedies.Remedy{by}
				x.Message = fmt.Sprintf(format, args...) + "; " + other.Reason
			}
			lost, lacking := beside.Unregistered(st), beside.WithoutPodCIDR(st)
			astray, where := beside.Astray(st)
			late, shared := beside.Overlapping(st)
			inside, tunnels := beside.TunnelsInside(st)
			switch {
			case len(late) > 0:
				warn(late, remedies.RenewPodCIDR(late), "nodes assign addresses of the same podCIDR: %s", shared)
			case len(inside) > 0:
				warn(inside, remedies.UsePodCIDR, "tunnels have addresses that the other IPAM assigns to pods: %s", tunnels)
				x.Remedies = append(x.Remedies, remedies.RemoveOtherCNI)
			case len(lost) > 0:
				warn(lost, remedies.RestartFlannel, "flannel has not registered %s, unlike other nodes, which have no route to its pods", lost)
			case len(lacking) > 0:
				warn(lacking, remedies.AssignPodCIDR, "pods wait on %s without a podCIDR, unlike other nodes", lacking)
			case len(astray) > 0:
				warn(astray, remedies.RestartFlannel, "flannel registered %s, which is not its InternalIP, unlike on the other nodes: they send traffic for its pods there, and it sends its own from there", where)
			case other.Mixed:
				x.Remedies = []remedies.Remedy{remedies.StopUpgrade} // its records are leaked only when the pods have ended
			case beside.Tunnels(st):
				x.Remedies = []remedies.Remedy{remedies.RemoveOtherCNI}
			case len(left) > 0:
				x.Remedies = []remedies.Remedy{remedies.CleanUpIPAM}
			}
		case len(other.Pods) > 0:
			if nodes, unrouted := beside.FromFlannel(st, other.Pods); len(nodes) > 0 {
				x.Message = fmt.Sprintf("migration from flannel is under way on %s", nodes)
				x.Nodes, x.Remedies = nodes, []remedies.Remedy{remedies.LeaveFlannel}
				if len(unrouted) > 0 {
					x.Severity = state.Warning
					x.Message += fmt.Sprintf("; migrated nodes have no route to these pods, which no block contains: %s", unrouted)
				}
				break
			}
			x.Message = fmt.Sprintf("pods get no address from Calico's IPAM: %s", phrase.FullNames(other.Pods))
			for _, w := range other.Pods[:min(len(other.Pods), 3)] {
				x.Evidence = append(x.Evidence, state.Evidence{Name: w.FullName(), Value: st.OtherIPAMOf(w)})
			}
			var nodes blocks.Names
			for _, w := range other.Pods {
				if !w.Extras().NoIPAM && w.Node != "" && !slices.Contains(nodes, w.Node) {
					nodes = append(nodes, w.Node)
				}
			}
			if slices.Sort(nodes); len(nodes) > 0 {
				x.Remedies = []remedies.Remedy{remedies.UseCalico(nodes.String())}
			}
			if networks := beside.Serving(st, nodes); len(networks) > 0 {
				x.Severity, x.Nodes, x.Remedies = state.Warning, nodes, []remedies.Remedy{remedies.OneNetwork(networks), remedies.InstallCanal}
				x.Message = fmt.Sprintf("nodes have both Calico's IPAM and another network (%s), and pods get addresses from either: %s", networks, phrase.FullNames(other.Pods))
			}
		default:
			pods, nodes := beside.Calico(st, agents)
			if len(pods) == 0 {
				return
			}
			x.Message = fmt.Sprintf("another network runs alongside Calico's IPAM: pods have addresses of a node's podCIDR that no block records: %s", pods)
			for _, node := range nodes {
				x.Evidence = append(x.Evidence, state.Evidence{Name: node, Value: agents[node]})
			}
			x.Remedies = []remedies.Remedy{remedies.UseCalico(nodes.String()), remedies.InstallCanal}
		}
		f.Add(x)
	},
}
