package remedies

import "github.com/calico-audit/calico-audit/blocks"

// StopUpgrade is for clusters with host-local in which calico-node moves addresses into Calico's
// blocks. RemoveOtherCNI is for single pods with a network that Calico did not set up, such as pods
// that started before Calico's configuration was on their node.
var (
	StopUpgrade = Restart("remove the init container upgrade-ipam from the DaemonSet calico-node, which moved host-local's records into Calico's blocks; then restart the pods that blocks record",
		"host-local records the new addresses, so it assigns none of them twice", "kubectl get daemonsets --all-namespaces --selector=k8s-app=calico-node -o yaml")
	RemoveOtherCNI = UseCalico("the pods' nodes")
	InstallCanal   = Restart("if the other network should serve the pods and Calico should only enforce policy: install Calico without its IPAM (Canal for flannel), then restart the pods that blocks record",
		"only one network assigns addresses, so none is assigned twice", "kubectl get daemonsets --all-namespaces")
)

// OneNetwork is for nodes that another network's DaemonSets serve, too; without names, it is general.
func OneNetwork(networks blocks.Names) Remedy {
	who := namesOr(networks, "the other network's DaemonSet")
	return Restart("if Calico should serve the pods: delete "+who+", and its configuration in /etc/cni/net.d of each node (or replace the nodes), then restart its pods",
		"all pods get addresses of Calico's pools", "kubectl get daemonsets --all-namespaces")
}

// UseCalico is the remedy for pods that another network's CNI plugin serves on the given nodes.
func UseCalico(nodes string) Remedy {
	return Restart("if Calico should serve the pods: on "+nodes+", remove the other network's configuration from /etc/cni/net.d (Calico's must be the first by name), then restart the pods",
		"the pods get addresses of Calico's pools", "kubectl get pods --all-namespaces -o wide")
}

// AssignPodCIDR is for a node without a podCIDR, which host-local needs.
var AssignPodCIDR = ByHand("let kube-controller-manager give each node a podCIDR (--allocate-node-cidrs; a larger --cluster-cidr, or a smaller range for each node: --node-cidr-mask-size), then register the node again", "pods of the node get addresses",
	"the other nodes keep their podCIDRs", "kubectl get nodes -o custom-columns=NODE:.metadata.name,PODCIDRS:.spec.podCIDRs")

// RestartFlannel is for a node that flannel has not registered, or has registered with the address
// of another machine.
var RestartFlannel = ByHand("restart flannel on the node (the pod of kube-flannel or canal): when it starts, it writes the node's annotations flannel.alpha.coreos.com/…", "other nodes route to the node's pods",
	"traffic of the node's pods is interrupted while routes change", "kubectl get pods --all-namespaces -o wide")

// RenewPodCIDR is for nodes with a podCIDR that overlaps an older node's. It cannot be changed; without
// names, it is general.
func RenewPodCIDR(nodes blocks.Names) Remedy {
	who := namesOr(nodes, "the younger node")
	return Restart("drain "+who+", delete the Node and register it again, so that kube-controller-manager gives it another podCIDR; if the podCIDRs differ in size, replace the nodes of the former size (--node-cidr-mask-size), too",
		"each node assigns addresses of its own", "kubectl get nodes -o custom-columns=NODE:.metadata.name,PODCIDRS:.spec.podCIDRs")
}

// UsePodCIDR is for host-local in Calico's CNI configuration, while calico-node takes tunnel addresses
// from Calico's blocks. Its VXLAN tunnels always do (libcalico-go lib/backend/k8s/resources,
// K8sNodeToCalico).
var UsePodCIDR = ByHand("if host-local should serve the pods: set USE_POD_CIDR=true in the DaemonSet calico-node and in Typha, so that each IPIP tunnel takes the first address of its node's podCIDR (VXLAN needs calico-ipam in Calico's CNI configuration)",
	"no pod gets the address of a tunnel", "calico-node restarts on every node, and tunnels change their addresses", "kubectl get daemonsets --all-namespaces --selector=k8s-app=calico-node -o yaml")
