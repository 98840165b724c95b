package remedies

// The remedies for pools whose settings do not carry their pods' traffic.
var (
	// Encapsulate is for a pool without routes.
	Encapsulate = ByHand("set vxlanMode: Always on the pool (with Tigera's operator in the Installation, calicoNetwork.ipPools), or run calico-node with BIRD (CALICO_NETWORKING_BACKEND=bird; with the operator bgp: Enabled)",
		"Felix or BIRD programs routes between the nodes; pods keep their addresses", "a tunnel lowers the MTU, and VXLAN over IPv6 needs Linux 4.19.1", "kubectl get ippools -o yaml")
	// Translate is for a pool without outgoing NAT.
	Translate = ByHand("if pods should reach addresses outside the cluster: set natOutgoing: true on the pool, or let the network's routers send the pool to the nodes (BGPPeer)",
		"answers from outside reach the pods", "with NAT, servers outside see the nodes' addresses instead of the pods'", "kubectl get ippools -o yaml")
	// RecordSubnet is for nodes whose addresses are recorded without their subnet.
	RecordSubnet = ByHand("let calico-node detect the nodes' addresses with their subnets (IP=autodetect instead of a bare address), or set the mode to Always if the machines' interfaces have no subnet",
		"traffic within a subnet leaves the tunnel", "routes change when calico-node restarts; the network must deliver the pods' addresses within the subnet, and AWS does so only with source/destination checks off",
		"kubectl get daemonsets --all-namespaces --selector=k8s-app=calico-node -o yaml")
)
