package blocks

import "strings"

// OtherNetworks names networks other than Calico's, by the prefix of the names of their DaemonSets.
// They assign pods addresses of their nodes' podCIDRs, or of a cloud's network.
var OtherNetworks = map[string]string{
	"kube-flannel": "flannel", "canal": "flannel (Canal)", "rke2-canal": "flannel (Canal)", "aws-node": "the AWS VPC CNI", "azure-cns": "the Azure CNI", "cilium": "Cilium",
	"weave-net": "Weave Net", "kube-router": "kube-router", "antrea-agent": "Antrea", "ovnkube-node": "OVN-Kubernetes",
}

// calicoNode is the prefix of the names of Calico's DaemonSets.
const calicoNode = "calico-node"

// NetworkPrefix returns the prefix of a DaemonSet's name that tells its network: Calico's, or one of
// [OtherNetworks]; "" if there is none.
func NetworkPrefix(name string) string {
	if strings.HasPrefix(name, calicoNode) {
		return calicoNode
	}
	for prefix := range OtherNetworks { // none begins with another
		if strings.HasPrefix(name, prefix) {
			return prefix
		}
	}
	return ""
}
