package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
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
	Remedies: []remedies.Remedy{remedies.CleanUpIPAM},
	Never:    "Never record these addresses in Calico's blocks: Calico's nodes would claim the blocks and route them.",
	Requires: state.OtherIPAMReads,
	Optional: []blocks.Resource{blocks.Handles, blocks.Affinities},
	Run: func(st *state.State, f *audit.Findings) {
		other := st.OtherIPAM()
		x := audit.Finding{Severity: state.Info, Subject: state.ClusterSubject(st), Fix: audit.Look("kubectl get nodes -o custom-columns=NODE:.metadata.name,PODCIDRS:.spec.podCIDRs")}
		switch {
		case other.Cluster:
			x.Message = other.Reason
			if stale := staleObjects(st); stale != "" {
				x.Evidence = state.Evidences("stale objects", stale)
				x.Remedies = []remedies.Remedy{remedies.CleanUpIPAM}
			}
		case len(other.Pods) > 0:
			x.Message = fmt.Sprintf("%s not get an address from Calico's IPAM: %s", phrase.PluralVerb(len(other.Pods), "pod", "does", "do"), phrase.Some(phrase.FullNames(other.Pods)))
			for _, w := range other.Pods[:min(len(other.Pods), 3)] {
				x.Evidence = append(x.Evidence, state.Evidence{Name: w.FullName(), Value: st.OtherIPAMOf(w)})
			}
		default:
			return
		}
		f.Add(x)
	},
}

// staleObjects names the objects that Calico's IPAM left behind in a cluster that uses another
// IPAM; empty if there are none.
func staleObjects(st *state.State) string {
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
