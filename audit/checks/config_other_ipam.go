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

// stopUpgrade is for clusters with host-local whose calico-node moves addresses into Calico's blocks;
// removeOtherCNI for single pods whose network was not set up by Calico, such as pods that started
// before Calico's configuration was on their node.
var (
	stopUpgrade = remedies.Restart("remove the init container upgrade-ipam from the DaemonSet calico-node, which moved host-local's records into Calico's blocks; then restart the pods that blocks record",
		"host-local records their new addresses, and assigns none a second time", "kubectl get daemonsets --all-namespaces --selector=k8s-app=calico-node -o yaml")
	removeOtherCNI = useCalico("the pods' nodes")
	installCanal   = remedies.Restart("if the other network should serve the pods, and Calico only enforce policy: install Calico without its IPAM (Canal for flannel), then restart the pods that blocks record",
		"one network assigns addresses, so that no address is assigned twice", "kubectl get daemonsets --all-namespaces")
)

var configOtherIPAM = audit.Check{
	ID:         "config/other-ipam",
	Title:      "pods do not get their addresses from Calico's IPAM",
	Severities: []state.Severity{state.Info},
	Why: "The pods' addresses come from host-local (Canal, flannel), from a cloud's CNI, or from the pods' own annotation " +
		"ipAddrsNoIpam, so Calico's IPAM does not record them. ip/unallocated, node/no-block and the pool checks ignore these " +
		"pods, and no plan records their addresses.",
	Confirm: "Compare kubectl get pods -A -o wide with kubectl get nodes -o custom-columns=NODE:.metadata.name,PODCIDRS:.spec.podCIDRs; " +
		"on a node, ipam.type in /etc/cni/net.d names the IPAM plugin: Calico's is calico-ipam.",
	Misread:  "Calico's CNI plugin annotates pods with any IPAM plugin: the annotation cni.projectcalico.org/podIP does not mean that Calico's IPAM assigned the address.",
	Remedies: []remedies.Remedy{remedies.CleanUpIPAM, stopUpgrade, removeOtherCNI, installCanal},
	Never:    "Never record these addresses in Calico's blocks: Calico's nodes would claim the blocks and route them.",
	Requires: state.OtherIPAMReads,
	Optional: []blocks.Resource{blocks.Handles, blocks.Affinities, blocks.Namespaces, blocks.SandboxEvents},
	Run: func(st *state.State, f *audit.Findings) {
		other := st.OtherIPAM()
		agents := beside.Agents(st)
		x := audit.Finding{Severity: state.Info, Subject: state.ClusterSubject(st), Fix: audit.Look("kubectl get nodes -o custom-columns=NODE:.metadata.name,PODCIDRS:.spec.podCIDRs")}
		switch {
		case other.Cluster:
			x.Message = other.Reason
			x.Evidence = state.Evidences("its pods", phrase.Some(slices.Sorted(maps.Values(agents))), "waiting pods", waitingOfOthers(st))
			left := objects(st)
			x.Evidence = append(x.Evidence, state.Evidences("objects of Calico's IPAM", left)...)
			switch {
			case other.Mixed:
				x.Remedies = []remedies.Remedy{stopUpgrade} // its records are leaked only when the pods have ended
			case beside.Tunnels(st):
				x.Remedies = []remedies.Remedy{removeOtherCNI}
			case left != "":
				x.Remedies = []remedies.Remedy{remedies.CleanUpIPAM}
			}
		case len(other.Pods) > 0:
			x.Message = fmt.Sprintf("%s not get an address from Calico's IPAM: %s", phrase.PluralVerb(len(other.Pods), "pod", "does", "do"), phrase.Some(phrase.FullNames(other.Pods)))
			for _, w := range other.Pods[:min(len(other.Pods), 3)] {
				x.Evidence = append(x.Evidence, state.Evidence{Name: w.FullName(), Value: st.OtherIPAMOf(w)})
			}
			var nodes []string
			for _, w := range other.Pods {
				if !w.Extras().NoIPAM && w.Node != "" && !slices.Contains(nodes, w.Node) {
					nodes = append(nodes, w.Node)
				}
			}
			if slices.Sort(nodes); len(nodes) > 0 {
				x.Remedies = []remedies.Remedy{useCalico(phrase.Some(nodes))}
			}
		default:
			pods, nodes := beside.Calico(st, agents)
			if len(pods) == 0 {
				return
			}
			x.Message = fmt.Sprintf("another network runs alongside Calico's IPAM: %s an address of a node's podCIDR that no block records: %s", phrase.PluralVerb(len(pods), "pod", "has", "have"), phrase.Some(pods))
			for _, node := range nodes {
				x.Evidence = append(x.Evidence, state.Evidence{Name: node, Value: agents[node]})
			}
			x.Remedies = []remedies.Remedy{useCalico(phrase.Some(nodes)), installCanal}
		}
		f.Add(x)
	},
}

// waitingOfOthers names the pods that have waited longer than the grace for an address of another
// IPAM, and quotes the kubelet's event.
func waitingOfOthers(st *state.State) string {
	var out []string
	for _, w := range st.Workloads {
		if !w.Waiting() {
			continue
		}
		if p := waiting.Seen(st, w); st.PastGrace(p.Since) {
			text := w.FullName()
			if e := p.PluginError(); e != "" {
				text += " (" + e + ")"
			}
			out = append(out, text)
		}
	}
	return phrase.Some(out)
}

// useCalico is the remedy for pods on the given nodes that another network's CNI plugin serves.
func useCalico(nodes string) remedies.Remedy {
	return remedies.Restart("if Calico should serve the pods: on "+nodes+", remove the other network's configuration from /etc/cni/net.d (Calico's must be the first by name), then restart the pods",
		"the pods get addresses of Calico's pools", "kubectl get pods --all-namespaces -o wide")
}

// objects names the objects of Calico's IPAM in a cluster that uses another IPAM; empty if there are
// none.
func objects(st *state.State) string {
	var kinds []string
	add := func(kind string, count int, name func(int) string) {
		names := make([]string, count)
		for i := range names {
			names[i] = name(i)
		}
		if count > 0 {
			kinds = append(kinds, fmt.Sprintf("%s (%s)", phrase.Plural(count, kind), phrase.Some(names)))
		}
	}
	add("block", len(st.IPBlocks), func(i int) string { return "ipamblock/" + st.IPBlocks[i].Name })
	add("affinity", len(st.Affinities), func(i int) string { return "blockaffinity/" + st.Affinities[i].Name })
	add("handle", len(st.Handles), func(i int) string { return "ipamhandle/" + st.Handles[i].Name })
	return phrase.List(kinds)
}
