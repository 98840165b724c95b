package remedies

// Encapsulate is the remedy for a pool if nodes have no routes to its pods.
var Encapsulate = ByHand("set vxlanMode: Always on the pool (with Tigera's operator in the Installation, calicoNetwork.ipPools), or run calico-node with BIRD (CALICO_NETWORKING_BACKEND=bird; with the operator bgp: Enabled)",
	"Felix or BIRD programs routes between the nodes; pods keep their addresses", "a tunnel lowers the MTU, and VXLAN over IPv6 needs Linux 4.19.1", "kubectl get ippools -o yaml")

// ExportPool is for a pool whose routes no node announces.
var ExportPool = ByHand("set disableBGPExport: false on the pool (with Tigera's operator in the Installation, calicoNetwork.ipPools), or let VXLAN carry its traffic (vxlanMode: Always)",
	"nodes announce the pool's routes, or Felix programs them; pods keep their addresses", "BGP peers outside the cluster learn the pool's routes, too; a tunnel lowers the MTU", "kubectl get ippools -o yaml")

// JoinReflectors is for nodes whose routes no route reflector passes on.
var JoinReflectors = ByHand("give each route reflector a cluster ID of its own and let a BGPPeer peer the reflectors with each other, or let the BGPPeers peer each node with every reflector",
	"the reflectors pass on the routes of all nodes", "a reflector's sessions restart when its cluster ID changes", `kubectl get nodes -o custom-columns='NODE:.metadata.name,CLUSTER:.metadata.annotations.projectcalico\.org/RouteReflectorClusterID'`, "kubectl get bgpconfigurations,bgppeers -o yaml")

// StartReflector is for nodes that lost their routes with the nodes that passed them on.
var StartReflector = ByHand("start one of them again, or let the BGPPeers peer the nodes with further route reflectors; until then, nodeToNodeMeshEnabled: true in the BGPConfiguration carries the routes",
	"nodes learn each other's routes again", "a mesh of hundreds of nodes costs memory and time", "kubectl get nodes -o wide", "kubectl get bgpconfigurations,bgppeers -o yaml")

// PeerNodes is for nodes without any BGP session.
var PeerNodes = ByHand("set nodeToNodeMeshEnabled: true in the BGPConfiguration, or add BGPPeers that select the nodes, such as to route reflectors", "BIRD programs routes between the nodes", "none",
	"kubectl get bgpconfigurations,bgppeers -o yaml")

// UseVXLAN is for a pool whose IPIP packets the network drops.
var UseVXLAN = ByHand("set vxlanMode: Always and ipipMode: Never on the pool (with Tigera's operator encapsulation: VXLAN in the Installation, calicoNetwork.ipPools)",
	"nodes send the pods' traffic through VXLAN, which the network forwards; pods keep their addresses", "existing connections between nodes are interrupted", "kubectl get ippools -o yaml")

// AlwaysVXLAN is for nodes of several subnets that Felix takes for nodes of one.
var AlwaysVXLAN = ByHand("install Calico v3.28.3, v3.29.1 or newer, or until then set vxlanMode: Always on the pool (with Tigera's operator encapsulation: VXLAN in the Installation, calicoNetwork.ipPools)",
	"Felix routes to nodes of other subnets through VXLAN; pods keep their addresses", "with Always, traffic within a subnet is encapsulated, too", "kubectl get ippools -o yaml")
